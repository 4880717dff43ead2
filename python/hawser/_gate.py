# SPDX-License-Identifier: Apache-2.0
"""Ensures that no handle is used during or after the call that frees it, as hawser.h requires."""
from __future__ import annotations

import sys
import time
from threading import get_ident
from types import FrameType

POLL_S = 0.0005  # s between checks in drain()


class Block:
    """The token of a call that a `with` block makes. `owner` identifies the frame of the function with the block.

    If Ctrl-C interrupts contextlib at the start of the block, the block never runs, but the traceback keeps the token
    until the exception is handled. The owner is then no longer on the stack of its thread."""

    __slots__ = ("owner",)

    def __init__(self, owner: FrameType) -> None:
        self.owner = id(owner)

    def is_running(self) -> bool:
        """Returns whether the owner is on the stack of the calling thread, which must be the block's thread."""
        frame: FrameType | None = sys._getframe()
        while frame is not None and id(frame) != self.owner:
            frame = frame.f_back
        return frame is not None


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
        me = get_ident()
        if any(ident == me and (not isinstance(token, Block) or token.is_running())
               for token, ident in self.calls.copy().items()):
            raise RuntimeError("close() was called inside another call of this thread, for example by a signal handler")

    def drain(self, timeout: float | None = None) -> bool:
        """Waits for the calls of other threads that are in progress now. Returns False on timeout."""
        me = get_ident()
        before = [token for token, ident in self.calls.copy().items() if ident != me]
        end = None if timeout is None else time.monotonic() + timeout
        while any(token in self.calls for token in before):
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(POLL_S)
        return True
