#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the Python binding: microseconds for a write of 8 bytes to another process of this machine, one
write after the other, with the Python classes, with the same calls through cffi, and in C (write8.c). All three take
turns in one process with one peer, so that conditions are equal. The overhead is the median of the differences within a
turn. Also measures a list of 1,024 descriptors, and a batch of 64 writes with the Python classes.
    PYTHONPATH=python HAWSER_LIBRARY=build/libhawser.so.1 bench/python/write8.py [LIBWRITE8.SO [TURNS]]"""
import functools
import os
import statistics
import subprocess
import sys
import threading
import time
from itertools import repeat

import hawser
from hawser import Event, Region, Vec, Write
from hawser._library import ffi, lib

LIMIT = 30
LIST, BATCH = 1024, 64

ffi.cdef("double write8_repeat(hawser_peer *peer, const struct hawser_vec *vecs, size_t n, unsigned times);")


def serve():
    """Runs the other process, which exports memory to every peer that connects."""
    context = hawser.Context(events=True)
    memory = context.alloc(1 << 20)
    print(context.listen("127.0.0.1"), flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()  # ends when its parent ends
    while True:
        for event in context.wait():
            if event.event == Event.ARRIVED:
                event.peer.notify(memory.export(write=True))


def time_calls(call, times):
    """Returns the seconds for this number of calls."""
    begun = time.perf_counter()
    for _ in repeat(None, times):
        call()
    return time.perf_counter() - begun


def make_vecs(memory, region, n):
    vecs = ffi.new("struct hawser_vec[]", n)
    for k, v in enumerate(vecs):
        v.mem, v.offset, v.length, v.region, v.remote_offset = memory._handle, k * 8, 8, region._data, k * 8
    return vecs


def make_bare_write(peer, vecs, n):
    """Returns a function that makes the same calls with prepared arguments, so that only the costs of cffi and the
    library remain."""
    cell, handle = ffi.new("hawser_op **"), peer._handle

    def write():
        if lib.hawser_write(handle, vecs, n, ffi.NULL, cell) or lib.hawser_wait(cell[0], 1000 * LIMIT):
            sys.exit("a write failed")
        lib.hawser_op_free(cell[0])
    return write


def compare(ways, turns, times):
    """Measures `times` calls of each method in each turn, in rotating order. Prints the microseconds per call, and the
    difference from the last method in the same turn."""
    names, found = list(ways), []
    for turn in range(turns):
        took = {}
        for k in range(len(names)):
            name = names[(turn + k) % len(names)]
            took[name] = ways[name](times) / times * 1e6
        found.append(took)
    for name in names:
        row = sorted(took[name] for took in found)
        beyond = sorted(took[name] - took[names[-1]] for took in found)
        tenth = turns // 10
        text = f"; beyond {names[-1]}: median {statistics.median(beyond):.2f} us, 10th to 90th percentile " \
               f"{beyond[tenth]:.2f} to {beyond[-1 - tenth]:.2f}"
        print(f"{name}: median {statistics.median(row):.2f} us, 10th to 90th percentile {row[tenth]:.2f} to "
              f"{row[-1 - tenth]:.2f}{text if name != names[-1] else ''}")


def compare_writes(peer, memory, region, library, turns):
    for n, times in ((1, 200), (LIST, 10)):
        print(f"one descriptor, {turns} turns of {times} writes" if n == 1 else f"{n} descriptors, {turns} turns of {times}")
        vecs, blocks = make_vecs(memory, region, n), [(memory, k * 8, 8, region, k * 8) for k in range(n)]
        bare = make_bare_write(peer, vecs, n)
        compare({"python": functools.partial(time_calls, lambda: peer.write(blocks).wait()),
                 "cffi": functools.partial(time_calls, bare),
                 "C": lambda times: library.write8_repeat(peer._handle, vecs, n, times)}, turns, times)
    batch = [Write([Vec(memory, k * 8, 8, region, k * 8)]) for k in range(BATCH)]
    took = sorted(time_calls(lambda: [op.wait() for op in peer.submit(batch)], 1) for _ in range(turns))
    print(f"one submit() of {BATCH} writes: median {statistics.median(took) * 1e6:.0f} us")


def main(library="build/bench/libwrite8.so", turns=300):
    server = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    with hawser.Context() as context:
        peer = context.connect("127.0.0.1", int(server.stdout.readline()), timeout=LIMIT)
        while (key := peer.notification()) is None:
            time.sleep(0.001)
        memory, region = context.alloc(1 << 20), Region(key)
        compare_writes(peer, memory, region, ffi.dlopen(library), int(turns))
    server.stdin.close()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main(*sys.argv[1:])
