#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A prefill process pushes the KV cache of two requests, 1,024 and 8,192 blocks of 64 KiB, into the cache of a decode
process. Each request is one write, and its notification informs the decode process that all blocks are in place.
    kv_push.py                       both processes on this machine
    kv_push.py decode                on one machine; prints its port
    kv_push.py prefill HOST PORT     on the other machine
Between machines both processes need the same secret in a file, KEY_FILE (head -c 32 /dev/urandom >FILE)."""
import os
import pathlib
import random
import struct
import subprocess
import sys
import time

import hawser
from hawser import Event

REQUESTS, BLOCK, WAIT = (1024, 8192), 64 << 10, 30  # blocks of each request; bytes per block; timeout in s for waiting


def block_content(request, k):
    return struct.pack("<II", request, k) * (BLOCK // 8)


def open_context():
    path = os.environ.get("KEY_FILE")
    return hawser.Context(events=True, key=pathlib.Path(path).read_bytes() if path else None)


def await_event(context, kind):
    """Returns the next event of the given kind, and discards other events."""
    while events := context.wait(WAIT, most=1):
        if events[0].event == kind:
            return events[0]
    sys.exit("the other process sent nothing")


def run_decode():
    with open_context() as context, context.alloc(max(REQUESTS) * BLOCK) as cache:
        cache.view[:] = b"\xff" * cache.length  # so that the kernel allocates all pages now and not during the first write
        print("port", context.listen(), flush=True)
        prefill = await_event(context, Event.ARRIVED).peer
        prefill.notify(cache.export(write=True, peer=prefill)).wait()
        for request, count in enumerate(REQUESTS):
            free = random.sample(range(max(REQUESTS)), count)  # the blocks of the cache for this request
            prefill.notify(struct.pack(f"<{count}I", *free)).wait()
            done = await_event(context, Event.NOTIFIED)  # all blocks have arrived
            for k, slot in enumerate(free):
                at = slot * BLOCK
                assert bytes(cache.view[at:at + BLOCK]) == block_content(request, k), f"block {k} is wrong"
            print(f"{done.data.decode()}: {count} blocks of {BLOCK} bytes, all of them verified", flush=True)
        await_event(context, Event.DIED)  # the prefill process has received its confirmation and has closed


def run_prefill(host, port):
    with open_context() as context, context.alloc(max(REQUESTS) * BLOCK) as cache:
        decode = context.connect(host, int(port), timeout=WAIT)
        region = hawser.Region(await_event(context, Event.NOTIFIED).data)
        for request, count in enumerate(REQUESTS):
            for k in range(count):  # in place of the model's output
                cache.view[k * BLOCK:(k + 1) * BLOCK] = block_content(request, k)
            slots = struct.unpack(f"<{count}I", await_event(context, Event.NOTIFIED).data)
            blocks = [(cache, k * BLOCK, BLOCK, region, slot * BLOCK) for k, slot in enumerate(slots)]
            begun = time.perf_counter()
            decode.write(blocks, notification=f"request {request}".encode(), timeout=WAIT).wait()
            took = time.perf_counter() - begun
            speed = count * BLOCK / took / 1e9
            print(f"request {request}: {count} blocks pushed in {took * 1e3:.1f} ms, {speed:.2f} GB/s", flush=True)


def run_both():
    with subprocess.Popen([sys.executable, __file__, "decode"], stdout=subprocess.PIPE, text=True) as other:
        try:
            run_prefill("127.0.0.1", other.stdout.readline().split()[1])
            print(other.stdout.read(), end="")
        finally:
            other.terminate()
    sys.exit(other.returncode)


if __name__ == "__main__":
    if sys.argv[1:2] == ["prefill"]:
        run_prefill(*sys.argv[2:4])
    elif sys.argv[1:] == ["decode"]:
        run_decode()
    else:
        run_both()
