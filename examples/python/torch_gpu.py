#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends torch tensors from a GPU of one process into tensors on a GPU of another. Neither side copies its tensors: hawser
registers a tensor in place, through __cuda_array_interface__ or DLPack.
    torch_gpu.py [cpu]                        both processes on this machine; the receiver uses the last GPU
    torch_gpu.py receive [DEVICE]             on one machine; prints its port
    torch_gpu.py send HOST PORT [DEVICE]      on the other machine
DEVICE: cuda:0, or cpu to try the program without a GPU. Between machines both processes need the same secret in a file,
KEY_FILE.

Streams. hawser does not synchronize with torch's streams. Before write(), the sender waits for the work that fills a tensor,
and it does not change the tensor before wait() has returned. The receiver waits for its own work on a tensor before it sends
the tensor's remote key. Once the notification has arrived, every byte is in the tensor and visible to all streams."""
import json
import os
import pathlib
import subprocess
import sys
import time

import torch

import hawser
from hawser import Event

WAIT = 60  # timeout in s for waiting for the other side
SHAPES = {"weights": ((4096, 2048), torch.float32), "kv": ((512, 8, 16, 256), torch.bfloat16), "ids": ((1 << 20,), torch.int64)}


def make_content(name):
    """Returns the tensor that is sent under this name, in host memory. Both sides compute the tensor, so the receiver
    can compare."""
    shape, kind = SHAPES[name]
    return torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(len(name))).to(kind)


def synchronize(device):
    """Waits for all work in all streams of the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def open_context():
    path = os.environ.get("KEY_FILE")
    return hawser.Context(events=True, key=pathlib.Path(path).read_bytes() if path else None)


def await_event(context, kind):
    while events := context.wait(WAIT, most=1):
        if events[0].event == kind:
            return events[0]
    sys.exit("the other process sent nothing")


def run_receiver(device):
    device = torch.device(device)
    with open_context() as context:
        print("port", context.listen(), flush=True)
        sender = await_event(context, Event.ARRIVED).peer
        tensors = {name: torch.zeros(shape, dtype=kind, device=device) for name, (shape, kind) in SHAPES.items()}
        synchronize(device)  # otherwise the zeros might overwrite the received bytes
        memory = {name: context.register(tensor) for name, tensor in tensors.items()}
        keys = {name: m.export(write=True, peer=sender).hex() for name, m in memory.items()}
        sender.notify(json.dumps(keys).encode()).wait()
        await_event(context, Event.NOTIFIED)  # all bytes have arrived and are visible to all streams
        for name, tensor in tensors.items():
            same = torch.equal(tensor, make_content(name).to(device))
            print(f"{name}: {memory[name].length} bytes on {device}, {'verified' if same else 'WRONG'}", flush=True)
        await_event(context, Event.DIED)  # the sender has received its confirmation and has closed


def run_sender(host, port, device):
    device = torch.device(device)
    with open_context() as context:
        receiver = context.connect(host, int(port), timeout=WAIT, gpu=device.index)
        keys = json.loads(await_event(context, Event.NOTIFIED).data)
        tensors = {name: make_content(name).to(device) for name in SHAPES}
        synchronize(device)  # otherwise the write might read the tensors before they are filled
        memory = {name: context.register(tensor) for name, tensor in tensors.items()}
        vecs = [(m, 0, m.length, hawser.Region(bytes.fromhex(keys[name])), 0) for name, m in memory.items()]
        begun = time.perf_counter()
        receiver.write(vecs, notification=b"sent", timeout=WAIT).wait()
        took, moved = time.perf_counter() - begun, sum(m.length for m in memory.values())
        speed = moved / took / 1e9
        print(f"{len(tensors)} tensors, {moved} bytes from {device} in {took * 1e3:.1f} ms, {speed:.2f} GB/s", flush=True)


def run_both(device=""):
    last = torch.cuda.device_count() - 1
    if last < 0 and not device:
        sys.exit("torch finds no GPU here; run `torch_gpu.py cpu` to try the program without one")
    receive = [sys.executable, __file__, "receive", device or f"cuda:{last}"]
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as other:
        try:
            run_sender("127.0.0.1", other.stdout.readline().split()[1], device or "cuda:0")
            print(other.stdout.read(), end="")
        finally:
            other.terminate()
    sys.exit(other.returncode)


if __name__ == "__main__":
    if sys.argv[1:2] == ["send"]:
        run_sender(*sys.argv[2:4], *sys.argv[4:] or ["cuda:0"])
    elif sys.argv[1:2] == ["receive"]:
        run_receiver(*sys.argv[2:] or ["cuda:0"])
    else:
        run_both(*sys.argv[1:])
