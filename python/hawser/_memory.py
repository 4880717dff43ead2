# SPDX-License-Identifier: Apache-2.0
"""Registered memory, and regions of peers' memory."""
from __future__ import annotations

import mmap
import sys
from contextlib import contextmanager
from errno import ENOMEM
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterator

from ._buffers import CUDA, HOST, find_buffer, find_span
from ._gate import Block
from ._library import Unique, address_of, check, ffi, invalid, lib
from .errors import make_error

if TYPE_CHECKING:
    from ._context import Context
    from ._peer import Peer

KEY_SIZE = 64  # HAWSER_KEY_SIZE
SIZES = 2**64  # number of values of size_t
KINDS = {"host": HOST, "cuda": CUDA}
REMOTE_READ, REMOTE_WRITE = 1, 2


class Region:
    """A region of a peer's memory, imported from a remote key. A region is plain data: it owns nothing and belongs to no
    context. It can be copied and pickled.

    length: bytes. readable, writable: the access that the exporting side permits. Raises ArgumentError if key is not a
    64-byte remote key from Memory.export()."""

    __slots__ = ("_key", "_data", "_location", "length", "readable", "writable")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_SIZE:
            raise invalid(f"a remote key has {KEY_SIZE} bytes, not {len(key)}")
        data = ffi.new("struct hawser_region *")
        check(lib.hawser_import(ffi.from_buffer("uint8_t[]", key), data))
        self._key = bytes(key)
        self._data = data
        self._location = address_of(data)  # has another name than Memory's address, so that neither is taken for the other
        self.length = int(data.length)
        self.readable = bool(data.rights & REMOTE_READ)
        self.writable = bool(data.rights & REMOTE_WRITE)

    def __reduce__(self) -> tuple[type[Region], tuple[bytes]]:
        return Region, (self._key,)

    def __repr__(self) -> str:
        return f"<hawser.Region of {self.length} bytes>"


class Memory(Unique):
    """Memory registered with a context, from Context.register() or Context.alloc().

    The memory remains registered until close() or the context's close(), even if the program keeps no reference. The
    registration keeps the registered object alive. A buffer such as a bytearray cannot be resized meanwhile.

    kind: "host" or "cuda". address: address of the first byte, which is a device address for GPU memory. length: bytes.
    readonly: True for objects such as bytes, which cannot receive data."""

    __slots__ = ("_context", "_handle", "_address", "_keep", "_readonly", "kind", "address", "length", "__weakref__")

    def __init__(self, context: Context, handle: Any, kind: str, address: int, length: int, readonly: bool,
                 keep: Any) -> None:
        self._context = context
        self._handle = handle
        self._address = address_of(handle)  # value of the handle; 0 if closed
        self._keep = keep
        self._readonly = readonly
        self.kind = kind
        self.address = address
        self.length = length

    @property
    def readonly(self) -> bool:
        return self._readonly

    @property
    def closed(self) -> bool:
        """True after close() or the context's close()."""
        return self._address == 0

    @property
    def view(self) -> memoryview:
        """The bytes of host memory from Context.alloc(), without a copy. The view remains valid after close(). Raises
        ArgumentError for GPU memory, and for registered objects other than mmap, which need no view."""
        if not isinstance(self._keep, tuple) or not isinstance(self._keep[-1], mmap.mmap):
            raise invalid("only host memory from alloc() has a view; for registered memory, use the registered object")
        return memoryview(self._keep[-1])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Describes GPU memory as an array of bytes for cupy, torch and numba. Do not use the array after close()."""
        if self.kind != "cuda":
            raise AttributeError("host memory has no __cuda_array_interface__")
        return {"shape": (self.length,), "typestr": "|u1", "data": (self.address, self._readonly), "version": 3}

    def export(self, offset: int = 0, length: int | None = None, *, read: bool = False, write: bool = False,
               peer: Peer | None = None) -> bytes:
        """Permits a peer to read or write the bytes [offset, offset + length). If length is None, the range extends to the
        end.

        peer: the only peer that may use the export, or None for any peer of the context that presents the remote key.
        Returns the 64-byte remote key for the other side's Region(). Raises BoundsError or ArgumentError if the range is
        outside the memory, and ArgumentError if neither read nor write is set, if write is set for read-only memory, or
        if the peer belongs to another context."""
        if write and self._readonly:
            raise invalid("a read-only object cannot be exported for writing")
        length = self.length - offset if length is None else length
        if not (0 <= offset < SIZES and 0 <= length < SIZES):
            raise invalid(f"cannot export {length} bytes at offset {offset} of memory of {self.length} bytes")
        key = ffi.new("uint8_t[]", KEY_SIZE)
        rights = REMOTE_READ * read | REMOTE_WRITE * write
        with use_memory(self):
            whom = ffi.NULL if peer is None else peer._get_handle()
            check(lib.hawser_export(self._handle, offset, length, rights, whom, key))
        return bytes(ffi.buffer(key))

    def load(self, offset: int = 0, length: int | None = None) -> bytes:
        """Returns a copy of length bytes from offset, or of all bytes up to the end if length is None. Intended for
        checks, not for speed. Raises BoundsError or ArgumentError if the range is outside the memory, and
        DeviceFailedError if the GPU failed."""
        length = self.length - offset if length is None else length
        if not (0 <= offset < SIZES and 0 <= length < SIZES):
            raise invalid(f"cannot load {length} bytes at offset {offset} of memory of {self.length} bytes")
        if length > self.length:
            raise invalid(f"cannot load {length} bytes from memory of {self.length} bytes")
        data = bytearray(length)
        with use_memory(self):
            check(lib.hawser_mem_load(self._handle, offset, ffi.from_buffer(data), length))
        return bytes(data)

    def store(self, data: Any, offset: int = 0) -> None:
        """Copies data, an object with the buffer protocol, to offset. Intended for set-up, not for speed. Raises
        BoundsError if the range is outside the memory, ArgumentError if the memory is read-only or offset is negative,
        and DeviceFailedError if the GPU failed."""
        if self._readonly or not 0 <= offset < SIZES:
            raise invalid("the memory is read-only" if self._readonly else f"cannot store at offset {offset}")
        span = find_buffer(data)
        with use_memory(self):
            check(lib.hawser_mem_store(self._handle, offset, span.keep[0], span.length))

    def close(self) -> None:
        """Revokes the memory's exports and frees the registration. After close() has returned, no peer accesses the memory.
        Raises BusyError if operations still use the memory, which then remains registered. Closing twice is allowed."""
        self._context._close_memory(self)

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hawser.Memory of {self.length} bytes, {'closed' if self.closed else self.kind}>"


@contextmanager
def use_memory(memory: Memory) -> Iterator[None]:
    """Keeps the memory's handle valid within the block. Raises ClosedError if the memory is closed."""
    context, token = memory._context, Block(sys._getframe(2))
    context._calls.calls[token] = get_ident()
    try:
        if memory._address == 0:
            raise context._closed_error("the memory")
        yield
    finally:
        del context._calls.calls[token]


def register(context: Context, obj: Any, handle: Any) -> Memory:
    """Registers obj with the context. Call within Context._use(), which keeps the handle valid."""
    span = find_span(obj)
    if span.length == 0:
        raise invalid(f"{type(obj).__name__} has no bytes to register")
    out = ffi.new("hawser_mem **")
    pointer = ffi.cast("void *", span.address)
    check(lib.hawser_mem_register(handle, span.kind, pointer, span.length, out))
    return Memory(context, out[0], "cuda" if span.kind == CUDA else "host", span.address, span.length, span.readonly,
                  span.keep)


def allocate(context: Context, length: int, kind: str, device: int, handle: Any) -> Memory:
    """Allocates memory of the context. Call within Context._use(), which keeps the handle valid."""
    if length < 1:
        raise invalid(f"cannot allocate {length} bytes; allocate at least 1")
    if kind not in KINDS:
        raise invalid(f"unknown kind of memory {kind!r}; use \"host\" or \"cuda\"")
    if kind == "host":  # allocated by Python, so that a view outlives the registration
        try:
            mapping = mmap.mmap(-1, length)
        except (OSError, OverflowError) as e:
            code = (e.errno if isinstance(e, OSError) else None) or ENOMEM
            raise make_error(-code, f"cannot allocate {length} bytes: {e}") from e
        return register(context, mapping, handle)
    out = ffi.new("hawser_mem **")
    try:
        check(lib.hawser_mem_alloc(handle, CUDA, device, length, out))
    except OverflowError as e:
        raise invalid(f"cannot allocate {length} bytes on GPU {device}: {e}") from None
    return Memory(context, out[0], kind, address_of(lib.hawser_mem_ptr(out[0])), length, False, None)
