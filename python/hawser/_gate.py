# SPDX-License-Identifier: Apache-2.0
"""Ensures that a handle is not used during or after the call that frees it, as hawser.h requires."""
from __future__ import annotations

import time
from threading import get_ident

POLL_S = 0.0005  # how often drain() checks


class Gate:
    """The calls into the library that are in progress.

    A call adds a token of its own to `calls`, then checks whether its object is closed, and deletes the token at its
    end. close() first marks the object closed, then waits in drain() for the calls that may not have seen the mark.
    Adding and deleting are single dict operations: atomic, and cheaper than a lock."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: dict[object, int] = {}

    def refuse_own(self) -> None:
        """RuntimeError: this thread is inside a call, and drain() would wait for itself."""
        if get_ident() in self.calls.copy().values():
            raise RuntimeError("close() was called inside another call of this thread, as by a signal handler")

    def drain(self, timeout: float | None = None) -> bool:
        """Waits for the calls that are in progress now. Returns False on timeout."""
        before = self.calls.copy()
        end = None if timeout is None else time.monotonic() + timeout
        while any(token in self.calls for token in before):
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(POLL_S)
        return True
