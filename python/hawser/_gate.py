# SPDX-License-Identifier: Apache-2.0
"""Ensures that no handle is used during or after the call that frees it, as hawser.h requires."""
from __future__ import annotations

import time
from threading import get_ident

POLL_S = 0.0005  # s between checks in drain()


class Gate:
    """The calls into the library that are in progress.

    Each call adds its own token to `calls`, then checks whether its object is closed, and deletes the token at the end.
    close() first marks the object as closed, and then waits in drain() for calls that might not have seen the mark.
    Adding and deleting are single dict operations, which are atomic and cheaper than a lock."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: dict[object, int] = {}

    def refuse_own(self) -> None:
        """Raises RuntimeError if this thread is inside a call, because drain() would then wait for itself."""
        if get_ident() in self.calls.copy().values():
            raise RuntimeError("close() was called inside another call of this thread, for example by a signal handler")

    def drain(self, timeout: float | None = None) -> bool:
        """Waits for the calls that are in progress now. Returns False on timeout."""
        before = self.calls.copy()
        end = None if timeout is None else time.monotonic() + timeout
        while any(token in self.calls for token in before):
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(POLL_S)
        return True
