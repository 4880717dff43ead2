# SPDX-License-Identifier: Apache-2.0
"""Tests torch tensors on GPUs as hawser's memory (TAP). Run by tests/gpu/run python."""
import sys
import time

from tap import done, ok, skip

LIMIT = 60
BLOCKS, BLOCK = 1024, 64 << 10


class DLPackOnly:
    """A tensor that supports only DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, stream=None):
        with sys.modules["torch"].cuda.device(self.tensor.device):  # torch exports only tensors of the current device
            return self.tensor.__dlpack__(stream=stream)


class Pair:
    """Two contexts of this process. `near` has connected to `far`. Tensors are on the first and the last GPU."""

    def __init__(self, torch, hawser):
        self.torch, self.hawser = torch, hawser
        self.near_gpu, self.far_gpu = torch.device("cuda:0"), torch.device(f"cuda:{torch.cuda.device_count() - 1}")
        self.far, self.near = hawser.Context(), hawser.Context()
        self.to_far = self.near.connect("127.0.0.1", self.far.listen("127.0.0.1"), timeout=LIMIT, gpu=0,
                                        peer_gpu=self.far_gpu.index)
        self.to_near = self.far.accept(LIMIT)

    def make_bytes(self, size, seed, device="cpu"):
        generator = self.torch.Generator().manual_seed(seed)
        return self.torch.randint(0, 256, (size,), generator=generator, dtype=self.torch.uint8).to(device)

    def write(self, source, target):
        """Writes the bytes of one object into another, and registers both objects only for this write."""
        with self.near.register(source) as mine, self.far.register(target) as theirs:
            self.to_far.write([(mine, 0, mine.length, self.hawser.Region(theirs.export(write=True)), 0)]).wait(LIMIT)
            return mine, theirs


def error_of(call):
    try:
        call()
    except Exception as e:
        return e
    return None


def check_types(p):
    torch = p.torch
    for kind in ("float32", "float16", "bfloat16", "float8_e4m3fn", "uint8", "int64", "bool", "complex64"):
        what = f"a tensor of {kind} is registered where it lies, and written"
        if not hasattr(torch, kind):
            skip(what, f"torch {torch.__version__} has no such type")
            continue
        kind = getattr(torch, kind)
        source = p.make_bytes(1 << 20, 1, p.near_gpu).view(kind) if kind != torch.bool else p.make_bytes(1 << 20, 1, p.near_gpu) > 99
        target = torch.zeros_like(source, device=p.far_gpu)
        torch.cuda.synchronize(p.near_gpu)
        torch.cuda.synchronize(p.far_gpu)
        try:
            mine, theirs = p.write(source, target)
        except Exception as e:
            ok(False, what, repr(e))
            continue
        same = torch.equal(source.view(torch.uint8).cpu(), target.view(torch.uint8).cpu())
        ok(same and (mine.address, mine.length, mine.kind) == (source.data_ptr(), source.nbytes, "cuda") and
           (theirs.address, theirs.kind) == (target.data_ptr(), "cuda"), what, same, mine, theirs)


def check_shapes(p):
    torch = p.torch
    whole = torch.zeros(8, 4, 1024, device=p.far_gpu)
    source = torch.arange(8192, dtype=torch.float32, device=p.near_gpu).reshape(2, 4, 1024)
    torch.cuda.synchronize(p.near_gpu)
    torch.cuda.synchronize(p.far_gpu)
    p.write(source, whole[3:5])
    ok(torch.equal(whole[3:5].cpu(), source.cpu()) and whole.count_nonzero() == 8191, "a slice is written, and nothing beside it")
    for what, tensor in (("a column", whole[:, 1]), ("a transposed tensor", whole.transpose(0, 2))):
        e = error_of(lambda tensor=tensor: p.near.register(tensor))
        ok(isinstance(e, p.hawser.ArgumentError) and "contiguous" in str(e), f"{what} is refused", repr(e))
    e = error_of(lambda: p.near.register(torch.empty(0, device=p.near_gpu)))
    ok(isinstance(e, p.hawser.ArgumentError), "an empty tensor is refused", repr(e))
    e = error_of(lambda: p.near.register(torch.zeros(4, device=p.near_gpu, requires_grad=True)))
    ok(e is not None and "detach" in str(e), "a tensor that requires a gradient is refused, with torch's advice", repr(e))
    parameter = torch.nn.Parameter(torch.ones(4096, device=p.near_gpu))
    torch.cuda.synchronize()
    target = torch.zeros(4096, device=p.far_gpu)
    torch.cuda.synchronize(p.far_gpu)
    p.write(parameter.detach(), target)
    ok(bool((target == 1).all()), "parameter.detach() is written")


def check_dlpack(p):
    torch = p.torch
    source, target = p.make_bytes(1 << 20, 2, p.near_gpu), torch.zeros(1 << 20, dtype=torch.uint8, device=p.far_gpu)
    torch.cuda.synchronize(p.near_gpu)
    torch.cuda.synchronize(p.far_gpu)
    mine, theirs = p.write(DLPackOnly(source), DLPackOnly(target))
    ok(mine.kind == theirs.kind == "cuda" and mine.address == source.data_ptr() and torch.equal(source.cpu(), target.cpu()),
       "memory of a GPU is registered by DLPack alone", mine, theirs)
    host = torch.zeros(1 << 20, dtype=torch.uint8).pin_memory()
    p.write(source, host)
    ok(torch.equal(source.cpu(), host), "a GPU's tensor is written into a pinned tensor of the host")
    host = p.make_bytes(1 << 20, 3)
    p.write(host, target)
    ok(torch.equal(host, target.cpu()), "and one of the host into a GPU's")


def check_alloc(p):
    torch = p.torch
    memory = p.near.alloc(1 << 20, "cuda", p.near_gpu.index)
    tensor = torch.as_tensor(memory, device=p.near_gpu)
    data = p.make_bytes(1 << 20, 4)
    tensor.copy_(data)
    torch.cuda.synchronize(p.near_gpu)
    ok(tensor.data_ptr() == memory.address and memory.load() == data.numpy().tobytes(),
       "memory from alloc() is a tensor of torch, without a copy", tensor.data_ptr(), memory.address)
    del tensor
    memory.close()


def check_streams(p):
    """Writes content that a separate stream produces after at least half a second of work. The caller waits only for
    that stream."""
    torch = p.torch
    side = torch.cuda.Stream(p.near_gpu)
    source = torch.zeros(16 << 20, dtype=torch.uint8, device=p.near_gpu)
    data = p.make_bytes(16 << 20, 5, p.near_gpu)
    target = torch.zeros(16 << 20, dtype=torch.uint8, device=p.far_gpu)
    torch.cuda.synchronize(p.near_gpu)
    torch.cuda.synchronize(p.far_gpu)
    with torch.cuda.stream(side):
        torch.cuda._sleep(1_000_000_000)  # clock cycles: half a second or more
        source.copy_(data)
        filled = side.record_event()
    early = not filled.query()
    filled.synchronize()
    p.write(source, target)
    later = torch.cuda.Stream(p.far_gpu)
    with torch.cuda.stream(later):
        total = target.sum(dtype=torch.int64)
    later.synchronize()
    ok(early and int(total) == int(data.sum(dtype=torch.int64)) and torch.equal(data.cpu(), target.cpu()),
       "what a stream fills is written once its event is over, and is there for another stream", early)


def check_blocks(p):
    torch = p.torch
    source = p.make_bytes(BLOCKS * BLOCK, 6, p.near_gpu).reshape(BLOCKS, BLOCK)
    target = torch.zeros(BLOCKS, BLOCK, dtype=torch.uint8, device=p.far_gpu)
    slots = torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(7))
    torch.cuda.synchronize(p.near_gpu)
    torch.cuda.synchronize(p.far_gpu)
    mine, theirs = p.near.register(source), p.far.register(target)
    region = p.hawser.Region(theirs.export(read=True, write=True))
    vecs = [(mine, k * BLOCK, BLOCK, region, slot * BLOCK) for k, slot in enumerate(slots.tolist())]
    times = []
    for n in range(5):
        begun = time.perf_counter()
        p.to_far.write(vecs, notification=b"%d" % n).wait(LIMIT)
        times.append(time.perf_counter() - begun)
    ok(torch.equal(target.cpu()[slots], source.cpu()), f"{BLOCKS} blocks of {BLOCK} bytes are written to scattered places")
    print(f"# {min(times) * 1e3:.1f} ms at best of {len(times)}, {BLOCKS * BLOCK / min(times) / 1e9:.2f} GB/s", flush=True)
    source.zero_()
    torch.cuda.synchronize(p.near_gpu)
    p.to_far.read(vecs).wait(LIMIT)
    ok(torch.equal(target.cpu()[slots], source.cpu()) and bool(source.any()), "and are read back")
    got = [p.to_near.notification() for _ in range(6)]
    ok(got == [b"0", b"1", b"2", b"3", b"4", None], "each write's notification is there", got)
    receive = p.to_near.recv([(theirs, 0, BLOCK, None, 0)], tag=3)
    p.to_far.send([(mine, 0, BLOCK, None, 0)], tag=3).wait(LIMIT)
    ok(receive.result(LIMIT) == BLOCK and torch.equal(target[0].cpu(), source[0].cpu()), "a message goes from tensor to tensor")
    mine.close()
    theirs.close()


def main():
    try:
        import torch
    except ImportError as e:
        print(f"1..0 # SKIP {e}")
        return 77
    if not torch.cuda.is_available():
        print("1..0 # SKIP torch finds no GPU")
        return 77
    import hawser
    print(f"# torch {torch.__version__}, {torch.cuda.device_count()} of {torch.cuda.get_device_name(0)}")
    p = Pair(torch, hawser)
    for check in (check_types, check_shapes, check_dlpack, check_alloc, check_streams, check_blocks):
        try:
            check(p)
        except Exception as e:
            ok(False, check.__name__, repr(e))
    p.near.close()
    p.far.close()
    return done()


if __name__ == "__main__":
    sys.exit(main())
