# SPDX-License-Identifier: Apache-2.0
"""Stops, kills and replaces the prefill process while vLLM's NIXL connector reads KV blocks. Not part of the tests. Run
this script by hand, like vllm_connector.py:
    NIXL_PLUGIN_DIR=build/nixl VLLM_TARGET_DEVICE=cpu python tests/nixl/vllm_failure.py [BACKEND]"""
import json
import multiprocessing
import os
import pathlib
import signal
import socket
import sys
import tempfile
import time
from types import SimpleNamespace

from vllm_connector import BLOCKS, LAYERS, MODEL, TOKENS, USED, WAIT_S, Side

SLOTS = [(k * 7) % BLOCKS for k in range(USED)]
PROMPT = [1] * USED * TOKENS


def value(seed, layer, block):
    """Returns the content of each 16-bit word of a block."""
    return seed + layer * BLOCKS + block


def run_prefill(model, backend, port, pipe, seed):
    """For each name that comes through the pipe, offers the blocks under this name and sends vLLM's parameters."""
    import torch
    from vllm.v1.request import RequestStatus
    side = Side("kv_producer", model, backend, "NixlConnector", port)
    for layer, tensor in enumerate(side.cache.values()):
        words = tensor.view(torch.int16).numpy()
        for block in range(BLOCKS):
            words[block] = value(seed, layer, block)
    pipe.send("ready")
    while True:
        if pipe.poll(0.001):
            name = pipe.recv()
            if name is None:
                break
            request = SimpleNamespace(request_id=name, kv_transfer_params={"do_remote_decode": True},
                                      status=RequestStatus.FINISHED_LENGTH_CAPPED, num_computed_tokens=len(PROMPT),
                                      num_prompt_tokens=len(PROMPT), prompt_token_ids=PROMPT)
            side.scheduler.update_state_after_alloc(request, None, 0)
            side.step()
            _, params = side.scheduler.request_finished_all_groups(request, (list(range(USED)),))
            pipe.send(params)
        side.step()
    side.worker.shutdown()
    side.scheduler.shutdown()


def read(side, name, params, seed, meanwhile=None):
    """Reads the blocks of a request. Returns the number of blocks that vLLM reports as not loaded and of wrong blocks."""
    import torch
    request = SimpleNamespace(request_id=name, kv_transfer_params=params, num_prompt_tokens=len(PROMPT), prompt_token_ids=PROMPT)
    side.scheduler.on_new_request(request)
    tokens, _ = side.scheduler.get_num_new_matched_tokens(request, 0)
    blocks = SimpleNamespace(blocks=([SimpleNamespace(block_hash=None, is_null=False)] * USED,),
                             get_unhashed_block_ids_all_groups=lambda: (SLOTS,), get_block_ids=lambda: (SLOTS,))
    side.scheduler.update_state_after_alloc(request, blocks, tokens)
    for tensor in side.cache.values():
        tensor.zero_()
    begun, lost, finished = time.monotonic(), set(), False
    while not finished and time.monotonic() < begun + WAIT_S:
        finished = name in (side.step()[1] or set())
        lost |= side.worker.get_block_ids_with_load_errors() or set()
        if meanwhile:
            meanwhile()
            meanwhile = None
        time.sleep(0.001)
    took = time.monotonic() - begun
    wrong = 0
    for layer, tensor in enumerate(side.cache.values()):
        words = tensor.view(torch.int16).numpy().reshape(BLOCKS, -1)
        wrong += sum(not (words[slot] == value(seed, layer, k)).all() for k, slot in enumerate(SLOTS))
    print(f"{name}: finished: {finished}, {took * 1e3:.0f} ms, {len(lost)} blocks reported as not loaded, {wrong} of "
          f"{USED * LAYERS} blocks wrong", flush=True)
    assert finished
    return len(lost), wrong


def main(backend="HAWSER"):
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as model, socket.socket() as one, socket.socket() as two:
        pathlib.Path(model, "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
        for s in (one, two):
            s.bind(("127.0.0.1", 0))
        ports = [s.getsockname()[1] for s in (one, two)]
        one.close()
        two.close()

        def start(seed):
            mine, theirs = context.Pipe()
            process = context.Process(target=run_prefill, args=(model, backend, ports[0], theirs, seed), daemon=True)
            process.start()
            assert mine.recv() == "ready"
            return process, lambda name: (mine.send(name), mine.recv())[1] if name else mine.send(None)

        first, offer = start(1)
        side = Side("kv_consumer", model, backend, "NixlConnector", ports[1])
        assert read(side, "first prefill", offer("r1"), 1) == (0, 0)
        params = offer("r2")
        os.kill(first.pid, signal.SIGSTOP)
        lost, _ = read(side, "prefill killed during the read", params, 1, lambda: (time.sleep(0.2), first.kill(), first.join()))
        assert lost == USED
        second, offer = start(3)
        assert read(side, "second prefill on the same port", offer("r3"), 3) == (0, 0)
        assert read(side, "second prefill again", offer("r4"), 3) == (0, 0)
        os.kill(second.pid, signal.SIGSTOP)
        begun = time.monotonic()
        side.worker.shutdown()
        print(f"shutdown while the prefill process is stopped: {(time.monotonic() - begun) * 1e3:.0f} ms", flush=True)
        side.scheduler.shutdown()
        os.kill(second.pid, signal.SIGCONT)
        offer(None)
        second.join(WAIT_S)
        second.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
