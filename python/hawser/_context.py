# SPDX-License-Identifier: Apache-2.0
"""Contexts, which own the peers, memory and completions of a program."""
from __future__ import annotations

import atexit
import ctypes
import enum
import errno
import mmap
import os
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import get_ident
from types import FrameType, TracebackType
from typing import Any

from . import _memory
from ._async import Hub
from ._gate import Block, Gate
from ._library import SLICE_MS, TAKE_LOG, Unique, check, fail, ffi, invalid, last_error, lib, milliseconds, remaining_ms
from ._memory import Memory
from ._operation import NULL
from ._peer import Peer
from .errors import BusyError, CanceledError, ClosedError, ForkedError, HawserError, NotReadyError, make_error

CALLER_PROGRESS, INSECURE, EVENTS, TRUSTED = 1, 2, 4, 8  # flags of struct hawser_options
ONLY_DIALLED = 1
EXIT_S = 1.0  # s; limit of each of the three waits for other threads when the interpreter exits


class Event(enum.IntEnum):
    """The kinds of Completion."""

    ENDED = 1
    ARRIVED = 3
    DIED = 4
    NOTIFIED = 5


@dataclass(frozen=True)
class Completion:
    """An event, from Context.poll(), wait() or completions().

    event: ENDED means that an operation of post(), or of submit() with `user`, has ended. With events=True there are
    also ARRIVED (peer has connected), DIED (peer has died and must be closed) and NOTIFIED (peer has sent the
    notification in data). error: why the operation failed or the peer died, or None. user: the operation's number.
    length: bytes of the operation (for a receive, of its message) or of the notification."""

    event: Event
    peer: Peer
    error: HawserError | None = None
    user: int = 0
    length: int = 0
    data: bytes = b""


class Context(Unique):
    """A context of libhawser, with its threads, listener, peers and memory. Any thread may call any method.

    key: the job key that both sides have, 16 to 4096 bytes, or None. events: report arrivals, deaths and notifications
    as completions. caller_progress: start no threads; progress(), waits and asyncio do the work. insecure: without a
    key, accept any address. trusted: see HAWSER_TRUSTED in hawser.h. log: a function that is called from any thread
    with a level (0 for error to 3 for debug) and a line, and must not call hawser. knobs: values by name, such as
    `window=1 << 20`, which override the environment; hawser.knobs() lists the knobs.

    Raises ArgumentError (for an invalid key or knob) or another HawserError. Close a context with close() or use it in
    a `with` statement."""

    def __init__(self, *, key: bytes | None = None, events: bool = False, caller_progress: bool = False,
                 insecure: bool = False, trusted: bool = False, log: Callable[[int, str], None] | None = None,
                 **knobs: object) -> None:
        self._closed = self._closing = self._forked = False
        self._handle: Any = NULL
        self._caller_progress = caller_progress
        self._events = events
        self._calls = Gate()  # short calls on objects of the context
        self._waits = Gate()  # blocking calls of the context and of operations
        self._close_lock = threading.RLock()
        self._peers: dict[Any, Peer] = {}  # by handle; includes closed peers, because their completions may still arrive
        self._peers_lock = threading.RLock()
        self._memories: set[Memory] = set()
        self._orphans: deque[Any] = deque()  # handles of operations that have no Python object and may be running
        self._unclaimed: deque[Peer] = deque()  # peers that were accepted when Ctrl-C interrupted accept()
        self._taken: deque[Completion] = deque()  # completions that were taken when Ctrl-C interrupted poll() or wait()
        self._hub = Hub(self)
        flags = CALLER_PROGRESS * caller_progress | INSECURE * insecure | EVENTS * events | TRUSTED * trusted
        out = ffi.new("hawser **")
        options, self._keep = make_options(flags, key, log, knobs)
        check(lib.hawser_open(options, out))
        self._handle = out[0]
        _contexts.add(self)

    # ---- use of handles

    def _check_fork(self) -> None:
        if self._forked:
            raise ForkedError(errno.EBADF, "the context belongs to the process that this one was forked from; "
                              "create a context after the fork")

    def _closed_error(self, what: str) -> ClosedError:
        try:
            self._check_fork()
        except ForkedError as e:
            return e
        return ClosedError(errno.EBADF, f"{what} is closed")

    @contextmanager
    def _use(self, gate: Gate | None = None, owner: FrameType | None = None) -> Iterator[Any]:
        """Keeps the handle valid within the block. owner: the frame that the block runs in, if it is not the caller's."""
        calls, token = (gate or self._calls).calls, Block(owner or sys._getframe(2))
        calls[token] = get_ident()
        try:
            if self._closing or self._forked:
                raise self._closed_error("the context")
            yield self._handle
        finally:
            del calls[token]

    def _slices(self, timeout: float | None) -> Iterator[tuple[Any, int]]:
        """Yields the handle and the ms for which one call may block, until timeout seconds have passed."""
        ms = SLICE_MS if timeout is None else milliseconds(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._use(self._waits, sys._getframe(1)) as handle:
                yield handle, min(ms, SLICE_MS)
            if end is not None and (ms := remaining_ms(end)) == 0:
                return

    def _adopt_peer(self, handle: Any, arrived: bool = True) -> Peer:
        """Returns the Peer of a handle. If arrived is true, the handle belongs to a new peer."""
        with self._peers_lock:
            peer = self._peers.get(handle)
            if peer is None or (arrived and peer._closed and not peer._unannounced):
                peer = self._peers[handle] = Peer(self, handle, unannounced=not arrived)
            if arrived:
                peer._unannounced = False
            return peer

    def _free_orphans(self, ended: bool = False) -> None:
        """Frees the handles of ended operations that have no Python object. If ended is true, all of them have ended."""
        token = object()
        self._waits.calls[token] = get_ident()
        try:
            for _ in range(len(self._orphans)):
                handle = self._orphans.popleft()
                if ended or lib.hawser_test(handle) != -errno.EAGAIN:
                    lib.hawser_op_free(handle)
                else:
                    self._orphans.append(handle)
        except IndexError:  # another thread took the last handle
            pass
        finally:
            del self._waits.calls[token]

    # ---- peers

    def listen(self, address: str | None = None, port: int = 0) -> int:
        """Listens on one TCP port and returns the port. Port 0 selects a free port. address: a numeric address, or None
        for all addresses. Raises BusyError (if the context already listens), AddressInUseError, AddressError
        or ArgumentError."""
        bound = ffi.new("uint16_t *")
        if not 0 <= port < 65536:
            raise invalid(f"invalid port {port}; ports are 0 to 65535")
        with self._use() as handle:
            check(lib.hawser_listen(handle, NULL if address is None else address.encode(), port, bound))
        return int(bound[0])

    def accept(self, timeout: float | None = None) -> Peer:
        """Returns the next peer that has connected. Waits up to timeout seconds and then raises NotReadyError; if
        timeout is None, waits without limit. The context owns the peer, which remains open until Peer.close() or
        close(). Raises ArgumentError if the context has events=True, because arrivals are then completions."""
        if self._events:
            raise invalid("the context has events=True, so arrivals are completions: use Context.wait() instead")
        for handle, ms in self._slices(timeout):
            if self._unclaimed:
                return self._unclaimed.popleft()
            out, peer = ffi.new("hawser_peer **"), None
            try:
                rc = lib.hawser_accept(handle, ms, out)
                error = None if rc == 0 else fail(rc)
                if error is None:
                    peer = self._adopt_peer(out[0])
                    return peer
            except BaseException:
                if out[0]:
                    self._unclaimed.append(peer or self._adopt_peer(out[0]))
                raise
            if rc != -errno.EAGAIN:
                raise error
        raise NotReadyError(errno.EAGAIN, f"no peer has connected within {timeout} s")

    async def accept_async(self) -> Peer:
        """Waits in asyncio for the next peer that connects, and returns it. See accept()."""
        def take() -> Peer | None:
            try:
                return self.accept(0)
            except NotReadyError:
                return None

        return await self._hub.wait_until(take)

    def connect(self, host: str, port: int, *, timeout: float = 10.0, nics: str = "", peer_nics: str = "",
                channels: int = 0, only_dialled: bool = False, key: bytes | None = None, gpu: int | None = None,
                peer_gpu: int | None = None, prefer: str = "") -> Peer:
        """Connects to a listening context. host: a name or a numeric address. timeout: seconds for the whole call.

        nics: the local NICs, such as "eth1,eth2"; if empty, knob nics decides. peer_nics: the peer's NICs; if empty,
        all. The k-th of the local NICs, if they are specified, is paired with the k-th of peer_nics. prefer: the local
        NICs that carry data as long as one of them works; if empty, all NICs carry data. channels: data connections per
        pair of NICs; 0 means the knob's value. key: the peer's job key if it differs from the context's. gpu, peer_gpu:
        the CUDA devices, here and at the peer, whose memory the connections carry. Raises RefusedError, DeadlineError,
        UnreachableError, AccessError (for a wrong key), NoKeyError, NoDeviceError, TooManyError, ProtocolError,
        IncompatibleError or another HawserError. Ctrl-C ends the wait; a connection that is established later is then
        closed."""
        return self._plan_connect(host, port, timeout, nics, peer_nics, channels, only_dialled, key, gpu, peer_gpu,
                                  prefer).run()

    async def connect_async(self, host: str, port: int, **options: Any) -> Peer:
        """Connects in asyncio. The arguments and errors are those of connect(). If the task is cancelled, a connection that
        is established later is closed."""
        import asyncio
        call = self._plan_connect(host, port, **options)
        try:
            return await asyncio.get_running_loop().run_in_executor(None, call.run)
        except asyncio.CancelledError:
            call.give_up()
            raise

    def _plan_connect(self, host: str, port: int, timeout: float = 10.0, nics: str = "", peer_nics: str = "",
                      channels: int = 0, only_dialled: bool = False, key: bytes | None = None, gpu: int | None = None,
                      peer_gpu: int | None = None, prefer: str = "") -> _Connect:
        options, keep = make_connect_options(nics, peer_nics, prefer, channels, only_dialled, key, gpu, peer_gpu)
        if not 0 <= port < 65536:
            raise invalid(f"invalid port {port}; ports are 0 to 65535")
        return _Connect(self, host.encode(), port, options, keep, milliseconds(timeout))

    def _close_peer(self, peer: Peer) -> None:
        with self._close_lock:
            if peer._freed or self._closed or self._forked:
                return
            self._calls.refuse_own()
            peer._closed = True
            self._calls.drain()
            self._free_peer(peer)
            self._free_orphans()

    def _free_peer(self, peer: Peer) -> None:
        if not peer._freed:
            peer._freed = True
            lib.hawser_peer_close(peer._handle)

    # ---- memory

    def register(self, obj: Any) -> Memory:
        """Registers the bytes of obj in place, without a copy. obj must support the buffer protocol (bytearray, mmap,
        numpy), __cuda_array_interface__ (cupy, numba, torch) or DLPack (torch, jax). It may have any shape, but must be
        contiguous in C order.

        The registration keeps obj alive until Memory.close() or the context's close(). It does not wait for pending GPU
        work on obj; the caller must. Raises ArgumentError if obj is not contiguous, has no bytes or supports none of
        these protocols, UnsupportedError for memory that is neither host nor CUDA memory, and NoDeviceError for GPU
        memory without a driver."""
        with self._use() as handle:
            return self._add_memory(_memory.register(self, obj, handle))

    def alloc(self, length: int, kind: str = "host", device: int = 0) -> Memory:
        """Allocates length page-aligned bytes and registers them. kind: "host", or "cuda" for GPU number `device`.
        Memory.view gives access to host memory. Memory.close() or close() frees GPU memory; host memory remains while
        the Memory object or a view exists. Raises ArgumentError, NoMemoryError or NoDeviceError."""
        with self._use() as handle:
            return self._add_memory(_memory.allocate(self, length, kind, device, handle))

    def _add_memory(self, memory: Memory) -> Memory:
        self._memories.add(memory)
        return memory

    def _close_memory(self, memory: Memory) -> None:
        with self._close_lock:
            if memory._address == 0 or self._forked:
                return
            self._free_orphans()
            self._calls.refuse_own()
            address, memory._address = memory._address, 0
            try:
                self._calls.drain()
            except BaseException:
                memory._address = address
                raise
            try:
                check(lib.hawser_mem_deregister(memory._handle))
            except BusyError:
                memory._address = address
                raise
            memory._keep = _keep_view(memory._keep)
            self._memories.discard(memory)

    def revoke(self, key: bytes) -> None:
        """Revokes an export. After revoke() has returned, no peer writes to or reads from the region. Raises
        StaleRegionError if there is no such export, and ArgumentError if key is not a remote key."""
        if len(key) != _memory.KEY_SIZE:
            raise invalid(f"a remote key has {_memory.KEY_SIZE} bytes, not {len(key)}")
        with self._use() as handle:
            check(lib.hawser_revoke(handle, ffi.from_buffer("uint8_t[]", key)))

    # ---- completions and progress

    def poll(self, most: int = 64) -> list[Completion]:
        """Returns up to `most` completions, oldest first, or an empty list if there are none. Does not block."""
        with self._use(self._waits) as handle:
            return self._take(handle, 0, most)

    def wait(self, timeout: float | None = None, most: int = 64) -> list[Completion]:
        """Like poll(), but waits up to timeout seconds for the first completion, or without limit if timeout is None.
        Returns an empty list on timeout. KeyboardInterrupt (Ctrl-C) loses no completion."""
        for handle, ms in self._slices(timeout):
            if got := self._take(handle, ms, most):
                return got
        return []

    async def completions(self) -> AsyncIterator[Completion]:
        """Iterates over the completions in asyncio. Raises ClosedError when the context is closed."""
        while True:
            for completion in await self._hub.wait_until(lambda: self.poll(1) or None):
                yield completion

    def progress(self, timeout: float = 0) -> bool:
        """Does the work that is ready, and waits up to timeout seconds (0.1 at most) for work. Needed only with
        caller_progress. Returns False if there was nothing to do."""
        with self._use(self._waits) as handle:
            return bool(lib.hawser_progress(handle, min(milliseconds(timeout), SLICE_MS)) == 0)

    def _take(self, handle: Any, ms: int, most: int) -> list[Completion]:
        """Takes up to `most` completions, one per call, because the thread's error line belongs to the last completion."""
        if most < 1:
            raise invalid(f"at most {most} completions were requested; request at least 1")
        got: list[Completion] = []
        out = ffi.new("struct hawser_completion *")
        try:
            while len(got) < most:
                if self._taken:
                    got.append(self._taken.popleft())
                    continue
                if got or ms == 0:
                    n = lib.hawser_poll(handle, out, 1)
                else:
                    n = lib.hawser_poll_wait(handle, out, 1, ms)
                if check(n) == 0:
                    break
                self._convert(out, got)
            return got
        except BaseException:
            if out.event:
                self._convert(out, got)
            self._taken.extendleft(reversed(got))
            raise

    def _convert(self, out: Any, got: list[Completion]) -> None:
        """Appends the completion in out to got exactly once. If Ctrl-C interrupts the first call, a second call finishes
        its work."""
        text = last_error() if out.result < 0 else ""
        peer = self._adopt_peer(out.peer, out.event == Event.ARRIVED)
        if out.event == Event.DIED:
            try:
                text = str(peer.error or text)
            except ClosedError:
                pass
        data = bytes(ffi.buffer(out.data, out.length)) if out.data else b""
        error = make_error(out.result, text) if out.result < 0 else None
        completion = Completion(Event(out.event), peer, error, out.user, out.length, data)
        length = len(got)
        try:
            got.append(completion)
        finally:
            if len(got) > length:
                out.event = 0
        block, out.data = out.data, NULL
        lib.hawser_data_free(block)

    # ---- the end

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._closing

    def close(self) -> None:
        """Closes all peers, fails pending operations with PeerClosedError, and frees all registrations. Waits for calls
        in other threads; those that are blocked raise an exception. Closing twice is allowed."""
        with self._close_lock:
            if not self._closed and not self._forked:
                self._calls.refuse_own()
                self._waits.refuse_own()
                self._close(None)

    def _close(self, patience: float | None) -> None:
        """Closes the context. patience: seconds to wait for calls in other threads; if calls remain, the library is not
        closed. If Ctrl-C interrupts the wait, the next call continues it."""
        self._closing = True
        for peer in list(self._peers.values()):
            peer._closed = True
        for memory in list(self._memories):
            memory._address = 0
        if not self._calls.drain(patience):
            return
        for peer in list(self._peers.values()):
            self._free_peer(peer)  # wakes the threads that wait for the peer's operations
        if not self._waits.drain(patience):
            return
        handle, self._handle = self._handle, NULL
        lib.hawser_close(handle)
        self._closed = True
        _contexts.discard(self)
        for memory in list(self._memories):
            memory._keep = _keep_view(memory._keep)
        self._memories.clear()
        self._free_orphans(ended=True)
        self._hub.end()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", NULL) and not self._closed and not self._forked:
            warnings.warn("a hawser.Context was not closed", ResourceWarning, source=self, stacklevel=2)
            self.close()

    def __repr__(self) -> str:
        return f"<hawser.Context{', closed' if self._closing else ''}>"


class _Connect:
    """Connects in a separate thread, because the library's call cannot be interrupted."""

    def __init__(self, context: Context, host: bytes, port: int, options: Any, keep: Any, ms: int) -> None:
        self.context, self.keep = context, keep
        self.arguments = (host, port, options, ms)
        self.lock = threading.Lock()
        self.started, self.over = threading.Event(), threading.Event()
        self.given_up = False
        self.peer: Peer | None = None
        self.error: BaseException | None = None

    def run(self) -> Peer:
        try:
            threading.Thread(target=self._work, name="hawser connect", daemon=True).start()
            while not self.over.wait(SLICE_MS / 1000):
                if self.given_up:
                    raise CanceledError(errno.ECANCELED, "the attempt to connect was cancelled")
            if self.error is not None:
                raise self.error
            assert self.peer is not None
            return self.peer
        except BaseException:  # the attempt's error, Ctrl-C, or an exception from another signal handler
            self.give_up()
            self.started.wait(1)  # CPython crashes if the interpreter ends while a thread is starting
            raise

    def give_up(self) -> None:
        """Ends run() within 0.1 s. A connection that is or will be established is closed."""
        with self.lock:
            self.given_up = True
        if self.peer is not None:
            self.peer.close()

    def _work(self) -> None:
        self.started.set()
        try:
            host, port, options, ms = self.arguments
            out = ffi.new("hawser_peer **")
            with self.context._use(self.context._waits) as handle:
                check(lib.hawser_connect(handle, host, port, options, ms, out))
                peer = self.context._adopt_peer(out[0])
            with self.lock:
                self.peer = peer
                given_up = self.given_up
            if given_up:
                peer.close()
        except BaseException as e:
            self.error = e
        finally:
            self.over.set()


def _keep_view(keep: Any) -> Any:
    """Returns the references that closed memory keeps, or None. Memory from alloc() keeps its bytes, which Memory.view
    may still use."""
    return (keep[-1],) if isinstance(keep, tuple) and isinstance(keep[-1], mmap.mmap) else None


def make_options(flags: int, key: bytes | None, log: Callable[[int, str], None] | None,
                 knobs: dict[str, object]) -> tuple[Any, Any]:
    """Returns struct hawser_options and the objects that it points to, which the context keeps alive."""
    texts = [ffi.new("char[]", f"{name}={int(v) if isinstance(v, bool) else v}".encode()) for name, v in knobs.items()]
    options = ffi.new("struct hawser_options *")
    options.size = ffi.sizeof("struct hawser_options")
    options.flags = flags
    keep: list[Any] = [texts]
    if texts:
        options.knobs = names = ffi.new("char *[]", texts + [NULL])
        keep.append(names)
    if key is not None:
        options.key = data = ffi.from_buffer(key)
        options.key_len = len(data)
        keep.append(data)
    if log is not None:
        function = log

        def take(_arg: Any, level: int, line: Any) -> None:
            function(level, ffi.string(line).decode("utf-8", "replace"))

        options.log = callback = ffi.callback(TAKE_LOG, take)
        keep.append(callback)
    return options, keep


def make_connect_options(nics: str, peer_nics: str, prefer: str, channels: int, only_dialled: bool, key: bytes | None,
                         gpu: int | None, peer_gpu: int | None) -> tuple[Any, Any]:
    """Returns struct hawser_connect_options and the objects that it points to."""
    options = ffi.new("struct hawser_connect_options *")
    keep: list[Any] = [options]
    options.size = ffi.sizeof("struct hawser_connect_options")
    for field, text in (("nics", nics), ("peer_nics", peer_nics), ("prefer", prefer)):
        if text:
            keep.append(ffi.new("char[]", text.encode()))
            setattr(options, field, keep[-1])
    if key is not None:
        keep.append(ffi.from_buffer(key))
        options.key, options.key_len = keep[-1], len(keep[-1])
    for name, number in (("gpu", gpu), ("peer_gpu", peer_gpu)):
        if number is not None and number < 0:
            raise invalid(f"invalid {name} {number}; GPUs are numbered from 0")
    try:
        options.channels = channels
        options.flags = ONLY_DIALLED * only_dialled
        options.gpu = 0 if gpu is None else gpu + 1
        options.peer_gpu = 0 if peer_gpu is None else peer_gpu + 1
    except OverflowError as e:
        raise invalid(f"channels {channels}, gpu {gpu}, peer_gpu {peer_gpu}: {e}") from None
    return options, keep


_contexts: weakref.WeakSet[Context] = weakref.WeakSet()


def _close_all() -> None:
    """Runs at interpreter exit, and ends the library's threads while they can still call Python."""
    for context in list(_contexts):
        if context._close_lock.acquire(timeout=EXIT_S):
            try:
                if not context._closed and not context._forked:
                    context._close(EXIT_S)
            finally:
                context._close_lock.release()
        if not context._closed:  # its threads continue, so the memory must outlive them
            ctypes.pythonapi.Py_IncRef(ctypes.py_object([m._keep for m in context._memories]))


def _forget_all() -> None:
    """Runs in the child after a fork. The child has the handles but not the threads, and must neither use nor free the
    parent's objects."""
    for context in list(_contexts):
        context._forked = context._closing = True
        context._close_lock, context._peers_lock = threading.RLock(), threading.RLock()  # a thread of the parent may hold them
        for peer in context._peers.values():
            peer._closed = True
        for memory in context._memories:
            memory._address = 0
        _contexts.discard(context)


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)
