#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the Python binding costs: microseconds for a write of 8 bytes, one after the other, by Python and by the C API
(engine_bench write-8), in turns on this machine over loopback; and by the same calls without the classes. Also a list of
1,024 descriptors, and a batch of 64 writes.
    PYTHONPATH=python HAWSER_LIBRARY=build/libhawser.so.1 bench/python/write8.py [ENGINE_BENCH [SECONDS [ROUNDS]]]"""
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import hawser
from hawser import Event, Region, Vec, Write
from hawser._library import ffi, lib

LIMIT = 30


def serve():
    """The other process: exports memory to whoever comes."""
    context = hawser.Context(events=True)
    memory = context.alloc(1 << 20)
    print(context.listen("127.0.0.1"), flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()  # ends with its parent
    while True:
        for event in context.wait():
            if event.event == Event.ARRIVED:
                event.peer.notify(memory.export(write=True))


def measure(call, seconds):
    """Seconds of each call, sorted."""
    times, end = [], time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        call()
        times.append(time.perf_counter() - begun)
    return sorted(times)


def make_bare_write(peer, memory, region):
    """The same calls with arguments that were made before: what is left is cffi and the library."""
    vec = ffi.new("struct hawser_vec *", {"mem": memory._handle, "length": 8, "region": region._data})
    cell, handle = ffi.new("hawser_op **"), peer._handle

    def write():
        if lib.hawser_write(handle, vec, 1, ffi.NULL, cell) or lib.hawser_wait(cell[0], 1000):
            sys.exit("a write failed")
        lib.hawser_op_free(cell[0])
    return write


def measure_python(peer, memory, region, seconds):
    vecs = [(memory, 0, 8, region, 0)]
    blocks = [(memory, k * 8, 8, region, k * 8) for k in range(1024)]
    batch = [Write([Vec(memory, k * 8, 8, region, k * 8)]) for k in range(64)]
    return {"one": measure(lambda: peer.write(vecs).wait(), seconds),
            "one by bare cffi": measure(make_bare_write(peer, memory, region), seconds),
            "list of 1024": measure(lambda: peer.write(blocks).wait(), seconds / 4),
            "batch of 64": measure(lambda: [op.wait() for op in peer.submit(batch)], seconds / 4)}


def main(bench="build/bench/engine_bench", seconds=2.0, rounds=3):
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    with hawser.Context() as context:
        peer = context.connect("127.0.0.1", int(server.stdout.readline()), timeout=LIMIT)
        while (key := peer.notification()) is None:
            time.sleep(0.001)
        memory, region = context.alloc(1 << 20), Region(key)
        for n in range(int(rounds)):
            found = measure_python(peer, memory, region, float(seconds))
            for name, times in found.items():
                print(f"python {name}: median {statistics.median(times) * 1e6:.1f} us, mean {statistics.mean(times) * 1e6:.1f} us, "
                      f"p99 {times[len(times) * 99 // 100] * 1e6:.1f} us")
            if os.path.exists(bench):
                row = json.loads(subprocess.run([bench, "write-8", str(seconds)], check=True, capture_output=True, text=True).stdout)
                print(f"C one: median {row['p50']:.1f} us, mean {row['us']:.1f} us, p99 {row['p99']:.1f} us")
    server.stdin.close()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main(*sys.argv[1:])
