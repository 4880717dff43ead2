# SPDX-License-Identifier: Apache-2.0
"""Peers, and the operations with them."""
from __future__ import annotations

import errno
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._gate import Block
from ._library import Unique, check, fail, ffi, invalid, last_error, lib
from ._operation import (NULL, ROOM, Notify, Operation, Recv, Request, Scratch, Send, Vecs, Write, give_scratch,
                         hold_vecs, pool, take_scratch)
from .errors import HawserError, make_error

if TYPE_CHECKING:
    from ._context import Context

FIRST_ROOM = 4096  # size of the first buffer for a notification in bytes
PATH_STATES = {1: "used", 2: "awaited", 3: "unused", 4: "spare"}


class Peer(Unique):
    """The other end of a session, from Context.connect(), Context.accept() or a completion. A peer is open until close()
    or the context's close().

    name: address and port, such as "198.18.0.2:20000". user: any object of the program, initially None."""

    def __init__(self, context: Context, handle: Any, unannounced: bool = False) -> None:
        self._context = context
        self._handle = handle
        self._closed = False
        self._freed = False
        self._unannounced = unannounced  # another thread has taken the arrival's completion but not returned it yet
        self.user: Any = None
        self.name = ffi.string(lib.hawser_peer_name(handle)).decode()

    def _get_handle(self) -> Any:
        """Returns the handle, for a call that holds a token. Raises ClosedError if the peer is closed."""
        if self._closed:
            raise self._context._closed_error(f"the peer {self.name}")
        return self._handle

    @contextmanager
    def _use(self) -> Iterator[Any]:
        """Keeps the handle valid within the block. Raises ClosedError if the peer is closed."""
        calls, token = self._context._calls.calls, Block(sys._getframe(2))
        calls[token] = get_ident()
        try:
            yield self._get_handle()
        finally:
            del calls[token]

    # ---- operations

    def write(self, vecs: Vecs, *, timeout: float | None = None, notification: Any = None) -> Operation:
        """Starts to write the descriptors' bytes to the peer's regions, as one operation.

        The operation ends when the peer has confirmed that every byte is in place. vecs: a list of Vec or tuples
        (memory, offset, length, region, remote_offset), in bytes. notification: up to 262,144 bytes, which are copied,
        and which the peer's program receives once all data is in place. timeout: seconds until the operation fails;
        None means knob op_timeout_ms, and math.inf means no deadline. Raises BoundsError, AccessError, ArgumentError,
        TooManyError, NotReadyError (if too many operations are pending), ClosedError, or the error with which the peer
        died. The Operation may later raise DeadlineError, StaleRegionError or another HawserError."""
        return self._start(lib.hawser_write, vecs, timeout, notification)

    def read(self, vecs: Vecs, *, timeout: float | None = None) -> Operation:
        """Starts to read bytes from the peer's regions into the descriptors' memory. The arguments and errors are those of
        write(), without notification."""
        return self._start(lib.hawser_read, vecs, timeout, None, fills=True)

    def send(self, vecs: Vecs, *, timeout: float | None = None, stream: int = 0, tag: int = 0) -> Operation:
        """Starts to send the descriptors' bytes as one message, which matches a receive of the peer with the same stream
        and tag.

        Messages match receives in order within a stream and tag. The operation ends when the message is in the
        receiver's memory. The Operation raises MessageSizeError if the receive was too short."""
        return self._start(lib.hawser_send, vecs, timeout, None, stream, tag)

    def recv(self, vecs: Vecs, *, timeout: float | None = None, stream: int = 0, tag: int = 0) -> Operation:
        """Starts to receive one message into the descriptors' memory. Operation.result() returns the message's length in
        bytes. If timeout is None, there is no deadline. The Operation raises MessageSizeError if the message is longer
        than the descriptors."""
        return self._start(lib.hawser_recv, vecs, timeout, None, stream, tag, fills=True)

    def notify(self, data: Any, *, timeout: float | None = None) -> Operation:
        """Starts to deliver data, up to 262,144 bytes, to the peer's program. The data is copied. The notifications
        of notify() arrive in the order in which they were started."""
        op, = self.submit([Notify(timeout=timeout, data=data)])
        assert op is not None
        return op

    def _start(self, function: Any, vecs: Vecs, timeout: float | None, notification: Any, stream: int = 0, tag: int = 0,
               fills: bool = False) -> Operation:
        context, token = self._context, object()
        try:
            scratch = pool.pop()  # inlined take_scratch()
        except IndexError:
            scratch = take_scratch()
        op, cell = Operation(context), scratch.cell
        calls = context._calls.calls
        calls[token] = get_ident()
        try:
            if self._closed:
                self._get_handle()
            vecs = hold_vecs(vecs)
            n = scratch.pack_vecs(vecs, fills)
            options = NULL
            if timeout is not None or notification is not None or stream or tag:
                options = scratch.pack_options(timeout, notification, stream, tag, 0)
            rc = function(self._handle, scratch.vecs, n, options, cell)
            if rc < 0:
                raise fail(rc)
            op._handle = cell[0]
            cell[0] = NULL
        finally:
            try:  # Python 3.10 may raise KeyboardInterrupt at a branch of this block
                if op._handle is None and cell[0]:  # Ctrl-C arrived in between, and the operation continues
                    op._handle = cell[0]
                    cell[0] = NULL
            finally:
                del calls[token]
            if scratch.keep or scratch.room != ROOM:
                give_scratch(scratch)
            else:
                pool.append(scratch)
        if context._orphans:
            context._free_orphans()
        return op

    def submit(self, requests: Iterable[Request]) -> list[Operation | None]:
        """Starts the requests in order with one call, so that small ones go to the kernel together.

        Returns a list with an Operation for each request, or None for a request with a `user` number, whose end is
        reported by a Completion. If the library cannot start a request, its error is raised, and the error's `started`
        is the list for the requests before this one, whose operations continue."""
        batch = list(requests)
        context, scratch = self._context, take_scratch()
        cells = ffi.new("hawser_op *[]", len(batch))
        ops = [None if r.user is not None else Operation(context) for r in batch]
        started = ffi.new("size_t *")
        try:
            with self._use() as handle:
                try:
                    keep: list[Any] = []
                    reqs = pack_requests(batch, scratch, cells, keep)
                    rc = lib.hawser_submit(handle, reqs, len(batch), started)
                    error = fail(rc) if rc < 0 else None
                finally:
                    for op, k in zip(ops, range(len(batch))):
                        if op is not None and cells[k]:
                            op._handle = cells[k]
        finally:
            give_scratch(scratch)
        context._free_orphans()
        if error is not None:
            error.started = ops[:started[0]]
            raise error
        return ops

    def post(self, request: Request, user: int = 0) -> None:
        """Starts one request without a handle. Its end is reported by a Completion with the number user (64 bits)."""
        scratch = take_scratch()
        try:
            with self._use() as handle:
                keep: list[Any] = []
                reqs = pack_requests([request], scratch, None, keep, user)
                check(lib.hawser_submit(handle, reqs, 1, NULL))
        finally:
            give_scratch(scratch)

    # ---- notifications and state of the peer

    def notification(self) -> bytes | None:
        """Returns the peer's oldest notification, or None if there is none. This is for contexts without events; with
        events=True, notifications are completions. If the peer has died, raises its error once no notification is
        left."""
        length, room = ffi.new("size_t *"), FIRST_ROOM
        with self._use() as handle:
            while True:
                data = ffi.new("char[]", room)
                rc = lib.hawser_notification(handle, data, room, length)
                if rc == 0:
                    return bytes(ffi.buffer(data, length[0]))
                if rc == -errno.EAGAIN:
                    return None
                if rc != -errno.EMSGSIZE:
                    raise fail(rc)
                room = length[0]

    async def wait_notification(self) -> bytes:
        """Waits in asyncio for the peer's next notification, and returns it. Raises the peer's error if it has died. See
        notification()."""
        return await self._context._hub.wait_until(self.notification)

    @property
    def error(self) -> HawserError | None:
        """The error with which the peer died, or None if the peer is alive."""
        with self._use() as handle:
            rc = lib.hawser_peer_state(handle)
            return make_error(rc, last_error()) if rc < 0 else None

    def close_stream(self, stream: int) -> None:
        """Ends this side's use of a stream. The stream must not be 0, and must not be used with this peer again. Pending
        operations of the stream end with CanceledError here, and with PeerClosedError or CanceledError at the peer."""
        if not 0 <= stream < 2**32:
            raise invalid(f"invalid stream {stream}; streams are 32-bit numbers")
        with self._use() as handle:
            check(lib.hawser_stream_close(handle, stream))

    def channels(self) -> list[dict[str, Any]]:
        """Returns the statistics of each channel as a dict with the fields of struct hawser_channel_stats."""
        return self._list(lib.hawser_channel_stats, "struct hawser_channel_stats")

    def paths(self) -> list[dict[str, Any]]:
        """Returns the pairs of NICs that connect the two machines, and then the unused NICs with the reason. On the side that
        accepted the connection, returns only the local NICs of the channels. Each entry is a dict with the fields of
        struct hawser_path; state is "used", "awaited", "unused" or "spare"."""
        rows = self._list(lib.hawser_paths, "struct hawser_path")
        return [{**row, "state": PATH_STATES.get(row["state"], row["state"])} for row in rows]

    def _list(self, function: Any, kind: str) -> list[dict[str, Any]]:
        room = 64
        with self._use() as handle:
            while True:
                rows, n = ffi.new(kind + "[]", room), ffi.new("size_t *", room)
                check(function(handle, rows, n))
                if n[0] <= room:
                    break
                room = n[0]
        fields = [(name, field.type.kind) for name, field in ffi.typeof(kind).fields if name != "reserved"]
        return [{name: ffi.string(getattr(rows[i], name)).decode() if type_kind == "array" else getattr(rows[i], name)
                 for name, type_kind in fields} for i in range(n[0])]

    # ---- the end

    @property
    def closed(self) -> bool:
        """True after close() or the context's close()."""
        return self._closed

    def close(self) -> None:
        """Tells the peer that the session ends, and fails pending operations with PeerClosedError. Closing twice is
        allowed."""
        self._context._close_peer(self)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hawser.Peer {self.name}{', closed' if self._closed else ''}>"


def pack_requests(batch: list[Request], scratch: Scratch, cells: Any, keep: list[Any], user: int | None = None) -> Any:
    """Returns the array of struct hawser_request. keep receives the objects that the array points to. user: the number for
    all requests, or None to use each request's own."""
    reqs = ffi.new("struct hawser_request[]", len(batch))
    lists = [hold_vecs(r.vecs) for r in batch]
    keep.append(lists)
    total = sum(len(vecs) for vecs in lists)
    if total > scratch.room:
        scratch.grow(total)
    first = 0
    for k, (r, vecs, req) in enumerate(zip(batch, lists, reqs)):
        number = r.user if user is None else user
        req.kind = r.kind
        if isinstance(r, Notify):
            data = ffi.from_buffer(r.data)
            keep.append(data)
            req.data, req.len = data, len(data)
        else:
            req.vecs = scratch.vecs + first
            req.n_vecs = scratch.pack_vecs(vecs, r.kind in (2, 4), first)
            first += req.n_vecs
        message = isinstance(r, (Send, Recv))
        options = scratch.pack_options(r.timeout, r.notification if isinstance(r, Write) else None,
                                       getattr(r, "stream", 0) if message else 0,
                                       getattr(r, "tag", 0) if message else 0, number or 0)
        if options:
            copy = ffi.new("struct hawser_op_options *", options[0])
            keep.append(copy)
            req.opts = copy
        if number is None:
            req.op = cells + k
    return reqs
