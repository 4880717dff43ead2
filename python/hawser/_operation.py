# SPDX-License-Identifier: Apache-2.0
"""Operations, and the arguments with which they are started."""
from __future__ import annotations

import errno
import struct
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Union

from ._buffers import open_buffer
from ._library import (SLICE_MS, Unique, address_of, ffi, invalid, last_error, lib, milliseconds, operation_ms,
                       remaining_ms)
from ._memory import Memory, Region
from .errors import HawserError, make_error

if TYPE_CHECKING:
    from ._context import Context

VEC = struct.Struct("@PQQPQP")  # struct hawser_vec; one pack call replaces six assignments
OPTIONS = struct.Struct("@NiPNIIQ")  # struct hawser_op_options
ROOM = 64  # number of descriptors for which a new Scratch has room
NULL = ffi.NULL


class Vec(NamedTuple):
    """One descriptor of an operation: local bytes and, for write and read, their location at the peer.

    memory: a Memory or, for write and send, an object with the buffer protocol. The bytes of such an object are copied
    before the call returns; one operation may have at most 4096 such bytes, and offset must be 0. offset, length: in
    bytes; if length is None, the descriptor extends to the end of memory. region, remote_offset: the peer's region and
    the offset in the region, in bytes. A plain tuple is accepted too."""

    memory: Any
    offset: int = 0
    length: int | None = None
    region: Region | None = None
    remote_offset: int = 0


Vecs = Iterable[Union[Vec, "tuple[Any, ...]"]]
Held = Sequence[Union[Vec, "tuple[Any, ...]"]]


def hold_vecs(vecs: Vecs) -> Held:
    """Returns a list or tuple of the descriptors. The caller keeps it until the library has copied the descriptors, because
    another sequence may create its regions during an iteration."""
    return vecs if type(vecs) is list or type(vecs) is tuple else list(vecs)


@dataclass(frozen=True)
class Request:
    """One operation for Peer.submit() or Peer.post(); use Write, Read, Send, Recv or Notify.

    vecs: the descriptors. timeout: seconds, see Peer.write(). user: a 64-bit number, or None. With a number, the
    operation has no handle, and its end is reported by a Completion with that number."""

    kind: ClassVar[int] = 0
    vecs: Vecs = ()
    timeout: float | None = None
    user: int | None = None


@dataclass(frozen=True)
class Write(Request):
    """See Peer.write()."""

    kind: ClassVar[int] = 1
    notification: bytes | None = None


@dataclass(frozen=True)
class Read(Request):
    """See Peer.read()."""

    kind: ClassVar[int] = 2


@dataclass(frozen=True)
class Send(Request):
    """See Peer.send()."""

    kind: ClassVar[int] = 3
    stream: int = 0
    tag: int = 0


@dataclass(frozen=True)
class Recv(Request):
    """See Peer.recv()."""

    kind: ClassVar[int] = 4
    stream: int = 0
    tag: int = 0


@dataclass(frozen=True)
class Notify(Request):
    """See Peer.notify(). vecs remains empty."""

    kind: ClassVar[int] = 5
    data: bytes = b""


class Scratch:
    """Memory for a call's arguments, reused by later calls. There is a pool and not one object per thread, because a
    signal handler may start an operation while its thread is starting another."""

    __slots__ = ("room", "bytes", "vecs", "option_bytes", "options", "cell", "keep")

    def __init__(self) -> None:
        self.room = 0
        self.grow(ROOM)
        self.option_bytes = bytearray(OPTIONS.size)
        self.options = ffi.cast("struct hawser_op_options *", ffi.from_buffer(self.option_bytes))
        self.cell = ffi.new("hawser_op **")
        self.keep: list[Any] = []  # the objects that descriptors and options point to

    def grow(self, n: int) -> None:
        self.room = n
        self.bytes = bytearray(n * VEC.size)
        self.vecs = ffi.cast("struct hawser_vec *", ffi.from_buffer(self.bytes))

    def pack_vecs(self, vecs: Held, fills: bool, first: int = 0) -> int:
        """Writes the descriptors, beginning at entry `first`, and returns their number. fills: whether the operation writes
        to the memory."""
        at = first * VEC.size
        if first + len(vecs) > self.room:
            self.grow(2 * (first + len(vecs)))
        for v in vecs:
            memory, offset, length, region, remote_offset = v if len(v) == 5 else Vec(*v)
            data = 0
            if type(memory) is Memory:
                handle = memory._address
                if handle == 0:
                    raise memory._context._closed_error("the memory")
                if fills and memory._readonly:
                    raise invalid("the memory is read-only, so no data can be read or received into it")
                if length is None:
                    length = memory.length - offset
            else:
                handle, data, length = self.pack_data(memory, length)
            try:
                VEC.pack_into(self.bytes, at, handle, offset, length, region._location if region is not None else 0,
                              remote_offset, data)
            except (struct.error, AttributeError) as e:
                if region is not None and not isinstance(region, Region):
                    raise invalid(f"a descriptor has a {type(region).__name__} in place of a Region: use hawser.Region(key)"
                                  ) from None
                raise invalid(f"invalid descriptor ({offset}, {length}, {region!r}, {remote_offset}): {e}") from None
            at += VEC.size
        return at // VEC.size - first

    def pack_data(self, data: Any, length: int | None) -> tuple[int, int, int]:
        """Returns the handle (0), address and length of bytes that the library will copy."""
        if data is None:
            return 0, 0, length or 0
        view = open_buffer(data)
        if not view.c_contiguous:
            raise invalid("the data is not contiguous")
        if length is not None and not 0 <= length <= view.nbytes:
            raise invalid(f"invalid length {length}; the data has {view.nbytes} bytes")
        pointer = ffi.from_buffer(view)
        self.keep.append(pointer)
        return 0, address_of(pointer), view.nbytes if length is None else length

    def pack_options(self, timeout: float | None, notification: Any, stream: int, tag: int, user: int) -> Any:
        """Returns the options, or NULL if all of them have their defaults."""
        if timeout is None and notification is None and not stream and not tag and not user:
            return NULL
        address = length = 0
        if notification is not None:
            pointer = ffi.from_buffer(notification)
            self.keep.append(pointer)
            # An empty notification is also sent, but only if its address is not NULL.
            address, length = address_of(pointer) or address_of(self.cell), len(pointer)
        try:
            OPTIONS.pack_into(self.option_bytes, 0, OPTIONS.size, operation_ms(timeout), address, length, stream, tag, user)
        except struct.error as e:
            raise invalid(f"stream {stream}, tag {tag}, user {user}: {e}") from None
        return self.options


pool: list[Scratch] = []


def take_scratch() -> Scratch:
    try:
        return pool.pop()
    except IndexError:
        return Scratch()


def give_scratch(scratch: Scratch) -> None:
    if scratch.keep:
        scratch.keep.clear()
    if scratch.room <= 16 * ROOM:
        pool.append(scratch)


class Operation(Unique):
    """An operation, from Peer.write(), read(), send(), recv(), notify() or submit().

    The library uses the operation's registered memory until the operation ends. If the program drops the object, the
    operation continues to its end. `await operation` waits in asyncio and returns the same value as result()."""

    __slots__ = ("_context", "_handle", "_rc", "_text", "__weakref__")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rc = 1  # 1 until the operation is known to have ended
        self._text = ""
        self._handle: Any = None  # set when the library has started the operation

    def _note(self, rc: int) -> bool:
        """Records the result of hawser_test() or hawser_wait(). Returns False if the operation is still in flight."""
        if rc == 0:
            self._rc = 0
            return True
        if rc == -errno.EAGAIN:
            return False
        self._text = last_error()
        self._rc = rc
        return True

    def _raise(self) -> None:
        if self._rc < 0:
            raise make_error(self._rc, self._text)

    def done(self) -> bool:
        """Returns whether the operation has ended, with or without success. Does the work that is ready, and does not
        block."""
        if self._rc <= 0:
            return True
        context, token = self._context, object()
        context._waits.calls[token] = get_ident()
        try:
            context._check_fork()
            return self._note(lib.hawser_test(self._handle))
        finally:
            del context._waits.calls[token]

    def wait(self, timeout: float | None = None) -> None:
        """Waits up to timeout seconds or, if timeout is None, until the operation ends. Raises the operation's error if
        it failed, and NotReadyError if it is still in flight. KeyboardInterrupt (Ctrl-C) ends only the wait, and the
        program may wait again."""
        if self._rc > 0 and (timeout is not None or not self._wait_slice(SLICE_MS)):
            self._wait(timeout)
        if self._rc < 0:
            self._raise()

    def _wait_slice(self, ms: int) -> bool:
        """Waits up to ms milliseconds. Returns False if the operation is still in flight."""
        context, token = self._context, object()
        calls = context._waits.calls
        calls[token] = get_ident()
        try:
            if context._forked:
                context._check_fork()
            rc = lib.hawser_wait(self._handle, ms)
            if rc == 0:
                self._rc = 0
                return True
            return self._note(rc)
        finally:
            del calls[token]

    def _wait(self, timeout: float | None) -> None:
        ms = SLICE_MS if timeout is None else milliseconds(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        while not self._wait_slice(min(ms, SLICE_MS)):
            if end is not None and (ms := remaining_ms(end)) == 0:
                raise make_error(-errno.EAGAIN, f"the operation has not ended within {timeout} s")

    def result(self, timeout: float | None = None) -> int:
        """Waits like wait(), and returns the operation's length in bytes or, for a receive, the length of its message."""
        self.wait(timeout)
        return int(lib.hawser_op_length(self._handle))

    def cancel(self) -> None:
        """Requests cancellation. The operation ends soon, with CanceledError or with the result that it already had. Wait
        for its end before you reuse the memory. Some bytes of a write may have reached the peer."""
        if self._rc <= 0:
            return
        context, token = self._context, object()
        context._waits.calls[token] = get_ident()
        try:
            context._check_fork()
            lib.hawser_cancel(self._handle)
        finally:
            del context._waits.calls[token]

    @property
    def bytes(self) -> int:
        """Number of bytes that have been confirmed (write, send) or have arrived (read) so far. For a receive, 0 until
        it has succeeded."""
        self._context._check_fork()
        return int(lib.hawser_op_bytes(self._handle))

    @property
    def error(self) -> HawserError | None:
        """The error with which the operation failed, or None if it succeeded or is in flight."""
        return make_error(self._rc, self._text) if self.done() and self._rc < 0 else None

    def __await__(self) -> Generator[Any, None, int]:
        if not self.done():
            yield from self._context._hub.wait_until(lambda: self.done() or None, self).__await__()
        return self.result(0)

    def __del__(self) -> None:
        handle = self._handle
        if handle is not None and not self._context._forked:
            if self._rc <= 0 or self._context._closed:
                lib.hawser_op_free(handle)
            else:
                self._context._orphans.append(handle)

    def __repr__(self) -> str:
        state = "under way" if self._rc > 0 else "ended" if self._rc == 0 else f"failed: {self._text}"
        return f"<hawser.Operation, {state}>"
