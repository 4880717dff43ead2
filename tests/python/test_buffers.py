# SPDX-License-Identifier: Apache-2.0
"""Tests registration of buffers, NumPy arrays, GPU pointers and DLPack objects, and objects that must be refused."""
import array
import contextlib
import gc
import mmap
import os
import sys
import types
import weakref

import pytest

import hawser
from conftest import LIMIT, start_python
from hawser import Region, Vec
from hawser._buffers import find_dlpack, is_contiguous

numpy = pytest.importorskip("numpy", reason="numpy is not installed (Debian: python3-numpy)")


@pytest.mark.parametrize("make", [
    lambda: bytearray(range(64)), lambda: memoryview(bytearray(range(64)))[8:24], lambda: array.array("d", [1.5, -2]),
    lambda: mmap.mmap(-1, 4096), lambda: numpy.arange(24, dtype="f4").reshape(2, 3, 4),
    lambda: numpy.arange(100)[10:20], lambda: numpy.arange(12).reshape(3, 4)[1:2], lambda: numpy.float32(7).reshape(1)])
def test_registers_the_bytes_where_they_lie(pair, make):
    source = make()
    size = memoryview(source).nbytes
    mine, theirs = pair.b.register(source), pair.a.alloc(size)
    assert mine.length == size and mine.kind == "host"
    pair.to_a.write([Vec(mine, region=Region(theirs.export(write=True)))]).wait(LIMIT)
    assert theirs.load() == memoryview(source).tobytes()


def test_array_of_numpy_is_read_into(pair):
    into, theirs = numpy.zeros((4, 8), dtype="i2"), pair.a.register(numpy.arange(32, dtype="i2"))
    pair.to_a.read([Vec(pair.b.register(into), region=Region(theirs.export(read=True)))]).wait(LIMIT)
    assert (into == numpy.arange(32).reshape(4, 8)).all()


@pytest.mark.parametrize("make", [
    lambda: numpy.zeros((4, 4))[:, 1], lambda: numpy.zeros(16)[::2], lambda: numpy.zeros((3, 4)).T,
    lambda: numpy.zeros(8)[::-1], lambda: memoryview(bytearray(8))[::2]])
def test_refuses_what_is_not_contiguous(context, make):
    with pytest.raises(hawser.ArgumentError, match="not contiguous in C order"):
        context.register(make())


@pytest.mark.parametrize("shape, strides, expected", [
    ((2, 3, 4), (48, 16, 4), True), ((2, 3, 4), (16, 48, 4), False), ((2, 1, 4), (16, 999, 4), True), ((5,), (-4,), False),
    ((0, 3), (1, 1), True), ((), (), True), ((4,), None, True), ((2, 2), (8, 8), False)])
def test_strides_in_c_order(shape, strides, expected):
    assert is_contiguous(shape, strides, 4) is expected


def test_numpy_type_without_a_buffer_format(pair):
    """datetime64 represents the types of other packages, such as bfloat16 of ml_dtypes."""
    source, into = numpy.arange(12).astype("M8[s]").reshape(3, 4), numpy.zeros((3, 4), dtype="M8[s]")
    with pytest.raises(ValueError):
        memoryview(source)
    mine, theirs = pair.b.register(source), pair.a.register(into)
    assert mine.length == 96 and mine.address == source.ctypes.data
    region = Region(theirs.export(write=True))
    pair.to_a.write([Vec(mine, region=region)]).wait(LIMIT)
    assert (into == source).all()
    pair.to_a.write([Vec(source[:1] + 5, region=region)]).wait(LIMIT)
    assert (into[0] == source[0] + 5).all()
    with pytest.raises(hawser.ArgumentError, match="not contiguous in C order"):
        pair.b.register(source.T)
    source.flags.writeable = False
    assert pair.b.register(source).readonly


def test_refuses_references_to_objects(context):
    for obj in (numpy.array([1, "a"], dtype=object), numpy.zeros(2, dtype=[("n", "i4"), ("x", "O")])):
        with pytest.raises(hawser.ArgumentError, match="references to Python objects"):
            context.register(obj)
    assert context.register(numpy.zeros(2, dtype=[("O", "i4"), ("x", "f8")])).length == 24


@pytest.mark.parametrize("obj", [None, 7, "text", [1, 2], object()])
def test_refuses_what_has_no_bytes_to_show(context, obj):
    with pytest.raises(hawser.ArgumentError, match="neither the buffer protocol"):
        context.register(obj)
    with pytest.raises(hawser.ArgumentError, match="no bytes"):
        context.register(b"")


def test_bytes_are_sent_and_never_written(pair):
    mine, theirs = pair.b.register(b"immutable"), pair.a.alloc(9)
    region = Region(theirs.export(read=True, write=True))
    pair.to_a.write([Vec(mine, region=region)]).wait(LIMIT)
    assert theirs.load() == b"immutable" and mine.readonly
    for call in (lambda: pair.to_a.read([Vec(mine, region=region)]), lambda: pair.to_a.recv([Vec(mine)]),
                 lambda: mine.store(b"x"), lambda: mine.export(write=True),
                 lambda: pair.to_a.submit([hawser.Recv([Vec(mine)])])):
        with pytest.raises(hawser.ArgumentError, match="read-only"):
            call()
    array_of = numpy.arange(3)
    array_of.flags.writeable = False
    assert pair.b.register(array_of).readonly


def test_registration_keeps_the_object(context):
    class Kept(bytearray):
        pass

    obj = Kept(64)
    seen = weakref.ref(obj)
    memory = context.register(obj)
    with pytest.raises(BufferError):
        obj.extend(b"more")
    del obj
    gc.collect()
    assert seen() is not None
    memory.close()
    gc.collect()
    assert seen() is None


def test_resize_is_allowed_again_after_close(context):
    data = bytearray(8)
    with context.register(data):
        with pytest.raises(BufferError):
            data.append(1)
    data.append(1)


def test_view_outlives_its_memory(context):
    memory = context.alloc(4096)
    view = memory.view
    view[:4] = b"kept"
    memory.close()
    assert bytes(view[:4]) == b"kept" and bytes(memory.view[:4]) == b"kept"
    context.close()
    assert bytes(view[:4]) == b"kept"
    with pytest.raises(hawser.ClosedError):
        memory.load()


class DLPackOnly:
    """Imitates a PyTorch tensor in host memory, which supports DLPack but not the buffer protocol."""

    def __init__(self, obj, device=(1, 0)):
        self.obj, self.device = obj, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        return self.obj.__dlpack__()


def test_dlpack_tensor_in_host_memory(pair):
    source = numpy.arange(1000, dtype="f8")[100:900].reshape(20, 40)
    mine, theirs = pair.b.register(DLPackOnly(source)), pair.a.alloc(6400)
    assert mine.length == 6400 and mine.address == source.ctypes.data
    pair.to_a.write([Vec(mine, region=Region(theirs.export(write=True)))]).wait(LIMIT)
    assert theirs.load() == source.tobytes()


def test_dlpack_serves_a_type_that_cuda_arrays_have_no_name_for(context):
    class Float8(DLPackOnly):
        """Imitates a PyTorch tensor."""

        @property
        def __cuda_array_interface__(self):
            return {}["float8"]

    source = numpy.arange(64, dtype="u1")
    assert context.register(Float8(source)).address == source.ctypes.data


def test_dlpack_of_another_device_than_torchs_current_one(monkeypatch):
    current = [0]

    class Tensor(DLPackOnly):
        def __dlpack__(self, stream=None):
            if current[0] != self.device[1]:
                raise BufferError("Can't export tensors on a different CUDA device index")
            return super().__dlpack__()

    @contextlib.contextmanager
    def device(index):
        before, current[0] = current[0], index
        yield
        current[0] = before

    tensor = Tensor(numpy.zeros(8, "u1"), (2, 1))
    with pytest.raises(BufferError):
        find_dlpack(tensor)  # a tensor of an unknown library
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace(device=device)))
    span = find_dlpack(tensor)
    assert span.length == 8 and current == [0]


def test_dlpack_refusals(context):
    with pytest.raises(hawser.ArgumentError, match="not contiguous"):
        context.register(DLPackOnly(numpy.zeros((4, 6)).T))
    with pytest.raises(hawser.UnsupportedError, match="ROCm"):
        context.register(DLPackOnly(numpy.zeros(4), (10, 0)))
    with pytest.raises(hawser.UnsupportedError, match="device 99"):
        context.register(DLPackOnly(numpy.zeros(4), (99, 0)))


class Cuda:
    """Imitates a CuPy array."""

    def __init__(self, address, shape, strides=None, typestr="<f4", mask=None):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (address, False), "version": 3,
                                         "strides": strides, "mask": mask}


def test_gpu_pointer_without_a_driver():
    code = ("import hawser, test_buffers\nwith hawser.Context() as c:\n try: c.register(test_buffers.Cuda(1 << 40, (4, 4)))\n"
            " except hawser.NoDeviceError as e: print('refused:', e)")
    child = start_python("-c", code, env={**os.environ, "HAWSER_CUDA_LIBRARY": "/nonexistent/libcuda.so.1"})
    said, _ = child.communicate(timeout=LIMIT)
    assert child.returncode == 0 and said.startswith("refused: ") and "/nonexistent/libcuda.so.1" in said


@pytest.mark.skipif("HAWSER_TEST_CUDA" not in os.environ, reason="HAWSER_TEST_CUDA names no driver to test with")
def test_gpu_memory_by_a_driver():
    child = start_python("gpu.py", env={**os.environ, "HAWSER_CUDA_LIBRARY": os.environ["HAWSER_TEST_CUDA"]})
    said, _ = child.communicate(timeout=LIMIT)
    assert child.returncode == 0 and said.startswith("right: ")


def test_gpu_refusals(context):
    for wrong in (Cuda(4096, (4, 4), (4, 16)), Cuda(4096, (8,), (8,)), Cuda(4096, (4,), mask=object()), Cuda(0, (0,))):
        with pytest.raises(hawser.ArgumentError):
            context.register(wrong)
