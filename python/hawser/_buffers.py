# SPDX-License-Identifier: Apache-2.0
"""Finds the bytes of a Python object through the buffer protocol, __cuda_array_interface__ or DLPack."""
from __future__ import annotations

import ctypes
import errno
import math
import re
import sys
from typing import Any, NamedTuple

from ._library import address_of, ffi, invalid
from .errors import UnsupportedError

HOST, CUDA = 0, 1  # enum hawser_mem_kind
DLPACK_KINDS = {1: HOST, 2: CUDA, 3: HOST}  # kDLCPU, kDLCUDA, kDLCUDAHost
DLPACK_NAMES = {4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 11: "ROCm host", 13: "CUDA managed", 14: "oneAPI"}

ffi.cdef("""
struct dl_tensor { void *data; int32_t device_type, device_id; int32_t ndim; uint8_t code, bits; uint16_t lanes;
                   int64_t *shape; int64_t *strides; uint64_t byte_offset; };
""")
ffi.typeof("struct dl_tensor *")  # see resolve_names()


class Span(NamedTuple):
    """The bytes of an object. `keep` keeps the bytes allocated and in place."""

    kind: int
    address: int
    length: int
    readonly: bool
    keep: Any


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> bool:
    """Returns whether the strides are those of a contiguous array in C order. Strides and itemsize have the same unit."""
    if strides is None or 0 in shape:
        return True
    step = itemsize
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def refuse_strides(obj: object) -> Exception:
    return invalid(f"{type(obj).__name__}: not contiguous in C order; use a contiguous copy")


def has_cuda_array(obj: Any) -> bool:
    try:
        return hasattr(obj, "__cuda_array_interface__")
    except KeyError:  # torch raises this for a type that only DLPack can describe, such as float8
        return False


def find_cuda_array(obj: Any) -> Span:
    about = obj.__cuda_array_interface__
    shape = tuple(about["shape"])
    itemsize = int(about["typestr"][2:])
    if about.get("mask") is not None:
        raise invalid(f"{type(obj).__name__}: arrays with a mask cannot be registered")
    if not is_contiguous(shape, about.get("strides"), itemsize):
        raise refuse_strides(obj)
    address, readonly = about["data"]
    return Span(CUDA, int(address or 0), math.prod(shape) * itemsize, bool(readonly), obj)


def open_buffer(obj: Any) -> memoryview:
    """Returns a view of an object with the buffer protocol. Raises TypeError for other objects, and ArgumentError if the
    bytes are references to Python objects."""
    try:
        view = memoryview(obj)
    except ValueError:  # NumPy has no buffer format for this type, for example bfloat16 or datetime64
        if not hasattr(obj, "__array_interface__"):
            raise
        view = memoryview(obj.view(f"V{obj.itemsize}"))
    if "O" in view.format and "O" in re.sub(":[^:]*:", "", view.format):  # names of fields are between colons
        raise invalid(f"{type(obj).__name__}: contains references to Python objects, which are invalid in other processes")
    return view


def find_buffer(obj: Any) -> Span:
    view = open_buffer(obj)
    if not view.c_contiguous:
        raise refuse_strides(obj)
    data = ffi.from_buffer("char[]", view)
    return Span(HOST, address_of(data), view.nbytes, view.readonly, (data, obj))


def open_capsule(capsule: object) -> Any:
    """Returns the DLTensor at the start of a capsule's DLManagedTensor, which the capsule owns and frees."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ffi.cast("struct dl_tensor *", get(capsule, b"dltensor"))


def export_dlpack(obj: Any, device: int, index: int) -> Any:
    if device != 2:
        return obj.__dlpack__()
    # Stream -1 means no synchronization, because registration does not read the memory.
    try:
        return obj.__dlpack__(stream=-1)
    except BufferError:
        # torch exports only tensors on its current device
        torch: Any = sys.modules.get("torch")
        if torch is None or not isinstance(obj, torch.Tensor):
            raise
        with torch.cuda.device(index):
            return obj.__dlpack__(stream=-1)


def find_dlpack(obj: Any) -> Span:
    device, index = (int(x) for x in obj.__dlpack_device__())
    if device not in DLPACK_KINDS:
        name = DLPACK_NAMES.get(device, "unknown")
        raise UnsupportedError(errno.EOPNOTSUPP, f"{type(obj).__name__}: memory of DLPack device {device} ({name}), "
                               f"number {index}: hawser supports only host and CUDA memory")
    capsule = export_dlpack(obj, device, index)
    t = open_capsule(capsule)
    shape = tuple(t.shape[i] for i in range(t.ndim))
    strides = tuple(t.strides[i] for i in range(t.ndim)) if t.strides else None
    if not is_contiguous(shape, strides, 1):
        raise refuse_strides(obj)
    length = (math.prod(shape) * t.bits * t.lanes + 7) // 8
    return Span(DLPACK_KINDS[device], address_of(t.data) + t.byte_offset, length, False, (capsule, obj))


def find_span(obj: Any) -> Span:
    """Returns the location of obj's bytes. Raises ArgumentError if the bytes are not contiguous, obj has a mask, or obj
    supports none of the protocols, and UnsupportedError for memory that is neither host nor CUDA memory."""
    if has_cuda_array(obj):
        return find_cuda_array(obj)
    try:
        return find_buffer(obj)
    except TypeError:
        pass
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return find_dlpack(obj)
    raise invalid(f"{type(obj).__name__} has neither the buffer protocol, nor __cuda_array_interface__, nor DLPack")
