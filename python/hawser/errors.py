# SPDX-License-Identifier: Apache-2.0
"""One exception class for each error code of the library. The text is the library's line, errno is set, and each class
also derives from Python's built-in exception for the code."""
from __future__ import annotations

import errno as codes
import os
from typing import Any


class HawserError(OSError):
    """An error of libhawser. `errno` is the code; str() returns the line that says what was tried, on what, and what to
    do.

    `started`: if submit() or post() raises, the results of the requests before the failed one."""

    started: list[Any] | None = None

    def __str__(self) -> str:
        return str(self.strerror)


class NotReadyError(HawserError, BlockingIOError):
    """EAGAIN: not done yet. The timeout of a call passed, or too many operations are pending. Nothing was lost."""


class DeadlineError(HawserError, TimeoutError):
    """ETIMEDOUT: the deadline of an operation or of a connect passed, and it has failed."""


class PeerDiedError(HawserError, ConnectionResetError):
    """ECONNRESET: the peer died, or every path to the peer did."""


class PeerClosedError(HawserError, BrokenPipeError):
    """ESHUTDOWN: the peer or this side closed the connection in an orderly way."""


class ProtocolError(HawserError):
    """EPROTO: the peer sent something that the protocol does not allow."""


class AccessError(HawserError, PermissionError):
    """EACCES: wrong key, or a region's rights do not allow the operation."""


class BoundsError(HawserError, ValueError):
    """EFAULT: outside the bounds of a region or of memory."""


class StaleRegionError(HawserError):
    """ESTALE: the region was revoked, or never existed."""


class MessageSizeError(HawserError):
    """EMSGSIZE: the message is larger than the receive that it matched."""


class CanceledError(HawserError):
    """ECANCELED: cancel() was called on the operation, or its stream was closed."""


class ArgumentError(HawserError, ValueError):
    """EINVAL: an argument, an option or a knob is not allowed."""


class NoMemoryError(HawserError, MemoryError):
    """ENOMEM: no memory."""


class NoDescriptorsError(HawserError):
    """EMFILE: the process has no file descriptors left."""


class BusyError(HawserError):
    """EBUSY: operations still use the memory, or the context listens already."""


class AddressInUseError(HawserError):
    """EADDRINUSE: the port is taken."""


class AddressError(HawserError):
    """EADDRNOTAVAIL: this machine has no such address."""


class RefusedError(HawserError, ConnectionRefusedError):
    """ECONNREFUSED: nobody listens there."""


class UnreachableError(HawserError):
    """EHOSTUNREACH: no such name, or no route."""


class NoKeyError(HawserError, PermissionError):
    """EPERM: without a job key, hawser talks to loopback and to a lab's addresses only."""


class NoDeviceError(HawserError):
    """ENODEV: no driver, no such GPU, no such NIC."""


class TooManyError(HawserError):
    """E2BIG: too many descriptors, channels, or bytes of inline data."""


class UnsupportedError(HawserError):
    """EOPNOTSUPP: this library or transport cannot do that."""


class DeviceFailedError(HawserError):
    """EIO: the GPU failed."""


class ClosedError(HawserError):
    """EBADF: the object was closed. Raised by the binding."""


class ForkedError(ClosedError):
    """EBADF: the object belongs to the process that this one was forked from. Raised by the binding."""


_CLASSES: dict[int, type[HawserError]] = {
    codes.EAGAIN: NotReadyError, codes.ETIMEDOUT: DeadlineError, codes.ECONNRESET: PeerDiedError,
    codes.ESHUTDOWN: PeerClosedError, codes.EPROTO: ProtocolError, codes.EACCES: AccessError,
    codes.EFAULT: BoundsError, codes.ESTALE: StaleRegionError, codes.EMSGSIZE: MessageSizeError,
    codes.ECANCELED: CanceledError, codes.EINVAL: ArgumentError, codes.ENOMEM: NoMemoryError,
    codes.EMFILE: NoDescriptorsError, codes.EBUSY: BusyError, codes.EADDRINUSE: AddressInUseError,
    codes.EADDRNOTAVAIL: AddressError, codes.ECONNREFUSED: RefusedError, codes.EHOSTUNREACH: UnreachableError,
    codes.EPERM: NoKeyError, codes.ENODEV: NoDeviceError, codes.E2BIG: TooManyError,
    codes.EOPNOTSUPP: UnsupportedError, codes.EIO: DeviceFailedError, codes.EBADF: ClosedError,
}


def make_error(rc: int, text: str) -> HawserError:
    """Returns the exception for the negative errno rc, with the library's line as its text."""
    code = -rc
    return _CLASSES.get(code, HawserError)(code, text or os.strerror(code))
