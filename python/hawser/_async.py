# SPDX-License-Identifier: Apache-2.0
"""asyncio support: wakes awaiting tasks through the context's event file descriptor."""
from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Callable, TypeVar

from ._library import check, lib
from .errors import ClosedError

if TYPE_CHECKING:
    from ._context import Context
    from ._operation import Operation

T = TypeVar("T")

# Seconds between checks. With caller_progress, calls outside asyncio may end an awaited operation without a signal.
CALLER_PERIOD = 0.01


class Hub:
    """The waits of one context in asyncio. A hub belongs to one event loop at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1  # a duplicate, because closing the context must not close the file descriptor that the loop watches
        self._waiting: dict[asyncio.Future[None], Operation | None] = {}  # operation to wait for, or None for any event
        # One per running wait_until(). A wait whose future has been set is not in _waiting until its task has run, and
        # must keep the loop nevertheless.
        self._waits: set[object] = set()
        self._ticking = False
        self._lock = threading.Lock()  # between loops that run in different threads

    def _attach(self, wait: object) -> None:
        """Makes the running loop watch the context's file descriptor for a wait. Raises RuntimeError if another loop
        awaits operations or events of the context."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._loop is not loop:
                if self._loop is not None and not self._loop.is_closed():
                    if self._waits:
                        raise RuntimeError("another event loop awaits operations or events of this context; use one context per loop")
                    self._detach()
                self._waiting.clear()
                self._waits.clear()
                self._ticking = False  # the timer of the other loop may never run
                if self._fd < 0:
                    with self._context._use() as handle:
                        self._fd = os.dup(check(lib.hawser_eventfd(handle)))
                loop.add_reader(self._fd, self._wake)
                self._loop = loop
            self._waits.add(wait)

    def _detach(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._fd)

    async def _wait(self, operation: Operation | None) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = operation
        try:
            # The operation may have ended before the loop watched the file descriptor.
            if operation is None or not operation.done():
                if self._context._caller_progress:
                    self._tick()
                await future
        finally:
            self._waiting.pop(future, None)

    async def wait_until(self, take: Callable[[], T | None], operation: Operation | None = None) -> T:
        """Calls take() until it returns something other than None, and returns that. Between the calls, waits for the
        end of the operation or, without one, for any event of the context."""
        wait = object()
        self._attach(wait)
        try:
            while (taken := take()) is None:
                await self._wait(operation)
            return taken
        finally:
            self._waits.discard(wait)

    def _tick(self) -> None:
        if not self._ticking and self._loop is not None:
            self._ticking = True
            self._loop.call_later(CALLER_PERIOD, self._end_tick, self._loop)

    def _end_tick(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:  # the timer was started before the context moved to another loop
            return
        self._ticking = False
        self._wake()
        if self._waiting:
            self._tick()

    def _wake(self) -> None:
        context = self._context
        if context._caller_progress:
            try:
                with context._use() as handle:
                    lib.hawser_progress(handle, 0)
            except ClosedError:
                pass
        elif self._fd >= 0:  # the callback of end() may run after another callback has closed the file descriptor
            try:
                os.read(self._fd, 8)
            except BlockingIOError:
                pass
        for future, operation in list(self._waiting.items()):
            if operation is None or operation.done():
                self._waiting.pop(future, None)
                if not future.done():
                    future.set_result(None)
        if context._closed:
            self._release()

    def _release(self) -> None:
        self._detach()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:  # the loop was closed before it ran the callback of end()
            os.close(self._fd)

    def end(self) -> None:
        """Wakes all waiters in their loop's thread, after the context was closed."""
        loop = self._loop
        if loop is None or loop.is_closed():
            self._loop = None
            self._release()
            return
        try:
            loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop was closed in the meantime
            self._release()
