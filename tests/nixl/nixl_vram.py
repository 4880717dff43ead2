# SPDX-License-Identifier: Apache-2.0
"""Tests transfers of the NIXL backend from and to GPU memory (TAP), between two processes. The CUDA driver allocates
the memory. HAWSER_CUDA_LIBRARY can name the fake driver of tests/fakes/cuda instead. Run by nixl_run.py and
tests/gpu/run."""
import ctypes
import importlib
import json
import os
import subprocess
import sys
import time

from nixl_agents import WAIT_S, nixl_agent, nixl_agent_config, np
from tap import done, ok, skip

SIZE, BLOCK = 64 << 20, 64 << 10
BLOCKS = SIZE // BLOCK
NON_BLOCKING = 1


class Driver:
    """The CUDA driver, with the primary context of one GPU as the current context."""

    def __init__(self, gpu):
        self.lib = ctypes.CDLL(os.environ.get("HAWSER_CUDA_LIBRARY", "libcuda.so.1"))
        context, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), gpu)
        self.call("cuCtxPushCurrent_v2", context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), NON_BLOCKING)

    def call(self, name, *args):
        rc = getattr(self.lib, name)(*args)
        if rc:
            raise RuntimeError(f"{name}: CUDA error {rc}")

    def alloc(self, size):
        address = ctypes.c_ulonglong()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def store(self, address, data):
        self.call("cuMemcpyHtoDAsync_v2", ctypes.c_ulonglong(address), ctypes.c_void_p(data.ctypes.data),
                  ctypes.c_size_t(data.nbytes), self.stream)
        self.call("cuStreamSynchronize", self.stream)

    def load(self, address, size):
        data = np.empty(size, np.uint8)
        self.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(data.ctypes.data), ctypes.c_ulonglong(address),
                  ctypes.c_size_t(size), self.stream)
        self.call("cuStreamSynchronize", self.stream)
        return data


def count_gpus():
    """Returns the number of GPUs, and the reason if there are none."""
    try:
        lib, n = ctypes.CDLL(os.environ.get("HAWSER_CUDA_LIBRARY", "libcuda.so.1")), ctypes.c_int()
    except OSError as e:
        return 0, f"no CUDA driver: {e}"
    rc = lib.cuInit(0) or lib.cuDeviceGetCount(ctypes.byref(n))
    return (n.value, "the driver finds no GPU") if rc == 0 else (0, f"the CUDA driver: error {rc}")


class Agent:
    """An agent with a buffer in GPU memory and one in host memory."""

    def __init__(self, name, gpu):
        self.driver, self.gpu = Driver(gpu), gpu
        self.agent = nixl_agent(name, nixl_agent_config(backends=[]))
        self.agent.create_backend("HAWSER")
        self.host = np.zeros(SIZE, np.uint8)
        self.base = {"VRAM": self.driver.alloc(SIZE), "DRAM": self.host.ctypes.data}
        self.agent.register_memory([(self.base["VRAM"], SIZE, gpu, "")], "VRAM")
        self.agent.register_memory([(self.base["DRAM"], SIZE, 0, "")], "DRAM")

    def store(self, kind, data):
        if kind == "VRAM":
            self.driver.store(self.base[kind], data)
        else:
            self.host[:] = data

    def load(self, kind):
        return self.driver.load(self.base[kind], SIZE) if kind == "VRAM" else self.host.copy()


def make_content(seed):
    """Returns random bytes, which differ from block to block."""
    return np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)


def serve_agent(gpu):
    """Runs in the other process, and executes commands. Each command is a line of JSON."""
    me = Agent("far", gpu)
    print(json.dumps({"metadata": me.agent.get_agent_metadata().hex(), "base": me.base}), flush=True)
    for line in sys.stdin:
        q = json.loads(line)
        if q["do"] == "store":
            me.store(q["kind"], make_content(q["seed"]))
            answer = {}
        elif q["do"] == "same":
            # Block k of the sender is in slot `slots[k]` here.
            found = me.load(q["kind"]).reshape(BLOCKS, BLOCK)
            answer = {"same": bool((found[q["slots"]] == make_content(q["seed"]).reshape(BLOCKS, BLOCK)).all())}
        else:
            got, end = {}, time.monotonic() + WAIT_S
            while not got and time.monotonic() < end:
                got = me.agent.get_new_notifs()
            answer = {"notes": [n.decode() for n in got.get("near", [])]}
        print(json.dumps(answer), flush=True)


class Far:
    def __init__(self, gpu):
        self.process = subprocess.Popen([sys.executable, __file__, "--peer", str(gpu)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.gpu, self.answer = gpu, self.read()

    def read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def ask(self, what, **words):
        print(json.dumps({"do": what} | words), file=self.process.stdin, flush=True)
        return self.read()


def move_blocks(near, far, operation, here, there, slots, note):
    """Transfers all blocks. Block k is in slot slots[k] on the other side. Returns the last state and the seconds."""
    base, remote = near.base[here], far.answer["base"][there]
    mine = [(base + k * BLOCK, BLOCK, near.gpu if here == "VRAM" else 0) for k in range(BLOCKS)]
    theirs = [(remote + slot * BLOCK, BLOCK, far.gpu if there == "VRAM" else 0) for slot in slots]
    begun = time.monotonic()
    handle = near.agent.initialize_xfer(operation, near.agent.get_xfer_descs(mine, here), near.agent.get_xfer_descs(theirs, there),
                                        "far", note)
    try:
        state = near.agent.transfer(handle)
        while state == "PROC" and time.monotonic() < begun + WAIT_S:
            state = near.agent.check_xfer_state(handle)
    except Exception as e:
        state = type(e).__name__
    took = time.monotonic() - begun
    near.agent.release_xfer_handle(handle)
    return state, took


def check_moves(near, far):
    slots = [int(k) for k in np.random.default_rng(1).permutation(BLOCKS)]
    for seed, (here, there) in enumerate((("VRAM", "VRAM"), ("DRAM", "VRAM"), ("VRAM", "DRAM")), 10):
        near.store(here, make_content(seed))
        state, took = move_blocks(near, far, "WRITE", here, there, slots, b"written")
        notes = far.ask("notes")["notes"]
        same = far.ask("same", kind=there, seed=seed, slots=slots)["same"]
        ok(state == "DONE" and notes == ["written"] and same,
           f"{BLOCKS} blocks of {BLOCK} bytes are written from {here} to {there}, with a notification", state, notes, same)
        print(f"# {took * 1e3:.1f} ms, {SIZE / took / 1e9:.2f} GB/s", flush=True)
        far.ask("store", kind=there, seed=seed + 10)
        state, took = move_blocks(near, far, "READ", here, there, range(BLOCKS), b"read")
        notes = far.ask("notes")["notes"]
        same = bool((near.load(here) == make_content(seed + 10)).all())
        ok(state == "DONE" and notes == ["read"] and same, f"and are read from {there} to {here}", state, notes, same)
        print(f"# {took * 1e3:.1f} ms, {SIZE / took / 1e9:.2f} GB/s", flush=True)


def time_moves(near, far):
    """Measures the speed of further transfers of each kind. The first transfers, which allocate staging memory, are in
    check_moves()."""
    slots = [int(k) for k in np.random.default_rng(2).permutation(BLOCKS)]
    for here, there in ("VRAM", "VRAM"), ("DRAM", "VRAM"), ("VRAM", "DRAM"), ("DRAM", "DRAM"):
        took = [move_blocks(near, far, "WRITE", here, there, slots, b"") for _ in range(5)]
        best = min(seconds for _, seconds in took)
        ok(all(state == "DONE" for state, _ in took), f"five times more from {here} to {there}", took)
        print(f"# {best * 1e3:.1f} ms, {SIZE / best / 1e9:.2f} GB/s at best", flush=True)


def check_torch(near, far):
    """Tests PyTorch tensors, which NIXL itself converts to descriptors."""
    what = "a tensor of torch on a GPU is registered and written from"
    if not getattr(importlib.import_module("torch"), "__version__", ""):
        return skip(what, "no torch")
    import torch
    if "HAWSER_CUDA_LIBRARY" in os.environ or not torch.cuda.is_available():
        return skip(what, "torch finds no GPU")
    tensor = torch.from_numpy(make_content(40)).to(f"cuda:{near.gpu}").reshape(BLOCKS, BLOCK)
    torch.cuda.synchronize()
    registered = near.agent.register_memory(tensor)
    remote = [(far.answer["base"]["VRAM"] + k * BLOCK, BLOCK, far.gpu) for k in range(BLOCKS)]
    handle = near.agent.initialize_xfer("WRITE", near.agent.get_xfer_descs([tensor[k] for k in range(BLOCKS)]),
                                        near.agent.get_xfer_descs(remote, "VRAM"), "far", b"tensor")
    state, end = near.agent.transfer(handle), time.monotonic() + WAIT_S
    while state == "PROC" and time.monotonic() < end:
        state = near.agent.check_xfer_state(handle)
    same = far.ask("notes")["notes"] == ["tensor"] and far.ask("same", kind="VRAM", seed=40, slots=list(range(BLOCKS)))["same"]
    near.agent.release_xfer_handle(handle)
    near.agent.deregister_memory(registered)
    return ok(state == "DONE" and same, what, state, same)


def main():
    gpus, why = count_gpus()
    if gpus == 0:
        print(f"1..0 # SKIP {why}")
        return 77
    near, far = Agent("near", 0), Far(gpus - 1)
    try:
        near.agent.add_remote_agent(bytes.fromhex(far.answer["metadata"]))
        check_moves(near, far)
        time_moves(near, far)
        check_torch(near, far)
    finally:
        far.process.kill()
        far.process.wait()
    return done()


if __name__ == "__main__":
    sys.exit(serve_agent(int(sys.argv[2])) if sys.argv[1:2] == ["--peer"] else main())
