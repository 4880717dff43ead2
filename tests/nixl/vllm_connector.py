# SPDX-License-Identifier: Apache-2.0
"""Transfers KV blocks between two processes with vLLM's NIXL connector. Not part of the tests, because vLLM and PyTorch
take 6 GB. Run this script by hand, with vLLM, nixl and nixl-cu13 (or cu12) installed:
    NIXL_PLUGIN_DIR=build/nixl VLLM_TARGET_DEVICE=cpu python tests/nixl/vllm_connector.py [BACKEND [CONNECTOR]]
CONNECTOR is NixlConnector (the decode process reads) or NixlPushConnector (the prefill process writes)."""
import json
import multiprocessing
import os
import pathlib
import socket
import sys
import tempfile
import time
from types import SimpleNamespace

LAYERS, HEADS, HEAD, TOKENS, BLOCKS, USED, WAIT_S = 4, 8, 128, 32, 1024, 1000, 120
REQUEST = "request-1"
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HEADS * HEAD, "num_attention_heads": HEADS,
         "num_key_value_heads": HEADS, "head_dim": HEAD, "num_hidden_layers": LAYERS, "intermediate_size": 512,
         "vocab_size": 256, "max_position_embeddings": BLOCKS * TOKENS, "torch_dtype": "bfloat16"}


class Side:
    """Both halves of the connector in one process. vLLM has one half in the scheduler and the other in the worker."""

    def __init__(self, role, model, backend, connector, port):
        os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(port)
        import torch
        from vllm.config import CacheConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig, set_current_vllm_config
        from vllm.distributed.kv_transfer.kv_connector.v1 import nixl
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
        from vllm.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
        transfer = KVTransferConfig(kv_connector=connector, kv_role=role, kv_buffer_device="cpu",
                                    kv_connector_extra_config={"backends": [backend]})
        config = VllmConfig(
            model_config=ModelConfig(model=model, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=BLOCKS * TOKENS),
            cache_config=CacheConfig(block_size=TOKENS),
            scheduler_config=SchedulerConfig(max_model_len=BLOCKS * TOKENS, is_encoder_decoder=False),
            kv_transfer_config=transfer)
        config.cache_config.kv_cache_layout = "LBHNC"  # the engine's setting for this connector
        names = [f"model.layers.{k}.self_attn.attn" for k in range(LAYERS)]
        spec = FullAttentionSpec(block_size=TOKENS, num_kv_heads=HEADS, head_size=HEAD, dtype=torch.bfloat16)
        page = spec.page_size_bytes
        caches = KVCacheConfig(num_blocks=BLOCKS, kv_cache_groups=[KVCacheGroupSpec(names, spec)], kv_cache_tensors=[
            KVCacheTensor(size=page * BLOCKS, layers=[name], layer_stride=page * BLOCKS, block_stride=page) for name in names])
        with set_current_vllm_config(config):
            init_distributed_environment(1, 0, f"file://{tempfile.mktemp()}", 0, "gloo")
            initialize_model_parallel()
            make = getattr(nixl, connector)
            self.scheduler = make(config, KVConnectorRole.SCHEDULER, caches)
            self.worker = make(config, KVConnectorRole.WORKER, caches)
            self.cache = {name: torch.zeros(BLOCKS, HEADS, TOKENS, 2 * HEAD, dtype=torch.bfloat16) for name in names}
            self.worker.register_kv_caches(self.cache)
            self.scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): self.worker.get_handshake_metadata()})

    def step(self):
        """Makes the calls that the engine makes for each step. Returns the requests that have been sent, and the
        requests that have been received."""
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(SimpleNamespace()))
        self.worker.start_load_kv(None)
        return self.worker.get_finished(set())

    def step_until(self, done):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            sent, came = self.step()
            if done(sent or set(), came or set()):
                return
            time.sleep(0.001)
        sys.exit("the transfer did not end")


def fill_blocks(side):
    """Fills the blocks with numpy, because torch takes minutes on a busy machine."""
    import torch
    for layer, tensor in enumerate(side.cache.values()):
        words = tensor.view(torch.int16).numpy()
        for block in range(BLOCKS):
            words[block] = layer * BLOCKS + block


def run_prefill(model, backend, connector, port, pipe):
    from vllm.v1.request import RequestStatus
    side = Side("kv_producer", model, backend, connector, port)
    fill_blocks(side)
    request = SimpleNamespace(request_id=REQUEST, kv_transfer_params={"do_remote_decode": True},
                              status=RequestStatus.FINISHED_LENGTH_CAPPED, num_computed_tokens=USED * TOKENS,
                              num_prompt_tokens=USED * TOKENS, prompt_token_ids=[1] * USED * TOKENS)
    side.scheduler.update_state_after_alloc(request, None, 0)
    side.step()
    kept, params = side.scheduler.request_finished_all_groups(request, (list(range(USED)),))
    assert kept, "the blocks are kept until they were sent"
    pipe.send(params)
    side.step_until(lambda sent, _: REQUEST in sent)
    print(f"prefill: {USED} blocks of {LAYERS} layers sent, and free again", flush=True)
    pipe.send("sent")
    pipe.recv()
    side.worker.shutdown()
    side.scheduler.shutdown()


def run_decode(model, backend, connector, port, pipe):
    import torch
    side = Side("kv_consumer", model, backend, connector, port)
    params = pipe.recv()
    slots = [(k * 7) % BLOCKS for k in range(USED)]
    request = SimpleNamespace(request_id=REQUEST, kv_transfer_params=params, num_prompt_tokens=USED * TOKENS,
                              prompt_token_ids=[1] * USED * TOKENS)
    side.scheduler.on_new_request(request)
    tokens, later = side.scheduler.get_num_new_matched_tokens(request, 0)
    assert tokens == USED * TOKENS and later
    blocks = SimpleNamespace(blocks=([SimpleNamespace(block_hash=None, is_null=False)] * USED,),
                             get_unhashed_block_ids_all_groups=lambda: (slots,), get_block_ids=lambda: (slots,))
    side.scheduler.update_state_after_alloc(request, blocks, tokens)
    begun = time.perf_counter()
    side.step_until(lambda _, came: REQUEST in came)
    took = time.perf_counter() - begun
    for layer, tensor in enumerate(side.cache.values()):
        words = tensor.view(torch.int16).numpy()
        for k, slot in enumerate(slots):
            assert (words[slot] == layer * BLOCKS + k).all(), f"layer {layer}, block {k} is wrong"
    moved = sum(t[0].nbytes for t in side.cache.values()) * USED
    stats = side.worker.get_kv_connector_stats()
    print(f"decode: {USED} blocks of {LAYERS} layers, {moved} bytes, all of them verified, {took * 1e3:.0f} ms; vLLM's statistics: "
          f"{stats.reduce() if stats else None}", flush=True)
    pipe.send("verified")
    pipe.recv()
    side.worker.shutdown()
    side.scheduler.shutdown()


def main(backend="HAWSER", connector="NixlConnector"):
    with tempfile.TemporaryDirectory() as model, socket.socket() as one, socket.socket() as two:
        pathlib.Path(model, "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        for s in (one, two):
            s.bind(("127.0.0.1", 0))
        ports = [s.getsockname()[1] for s in (one, two)]
        one.close()
        two.close()
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe(), context.Pipe()]
        sides = [context.Process(target=run, args=(model, backend, connector, port, pipe[1]))
                 for run, port, pipe in zip((run_prefill, run_decode), ports, pipes)]
        for side in sides:
            side.start()
        (prefill, _), (decode, _) = pipes
        for _, theirs in pipes:
            theirs.close()  # so that the pipe reports end-of-file if a side dies
        try:
            decode.send(prefill.recv())
            assert decode.recv() == "verified" and prefill.recv() == "sent"
            prefill.send("end")
            decode.send("end")
            for side in sides:
                side.join(WAIT_S)
        finally:
            for side in sides:
                side.kill()
        sys.exit(any(side.exitcode for side in sides))


if __name__ == "__main__":
    main(*sys.argv[1:])
