# SPDX-License-Identifier: Apache-2.0
"""Tests GPU memory: alloc(), its __cuda_array_interface__, and a copy between the GPU memory of two contexts. Runs in a
separate process, because a process loads the driver (here tests/fakes/cuda) only once. Prints "right"."""
import hawser
from hawser import Region, Vec

LIMIT = 50


class Array:
    """Imitates a CuPy array over memory that belongs to another owner."""

    def __init__(self, about):
        self.__cuda_array_interface__ = about


with hawser.Context() as a, hawser.Context() as b:
    to_a = b.connect("127.0.0.1", a.listen("127.0.0.1"), timeout=LIMIT)
    source, target = b.alloc(1 << 16, "cuda", 0), a.alloc(1 << 16, "cuda", 0)
    data = bytes(k * 13 % 256 for k in range(1 << 16))
    source.store(data)
    again = b.register(Array(dict(source.__cuda_array_interface__, shape=(1 << 14,), typestr="<f4", strides=(4,))))
    assert again.kind == "cuda" and again.address == source.address and again.length == 1 << 16
    to_a.write([Vec(again, region=Region(target.export(write=True)))]).wait(LIMIT)
    assert target.load() == data
    try:
        b.alloc(4096, "cuda", 4000)
    except hawser.NoDeviceError as e:
        print("right:", e)
