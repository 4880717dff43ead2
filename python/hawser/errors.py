# SPDX-License-Identifier: Apache-2.0
"""One exception class for each error code of the library. The text is the library's error line, and errno is set. A
class also derives from a built-in exception of Python, if a similar one exists."""
from __future__ import annotations

import errno as codes
import os
from typing import Any


class HawserError(OSError):
    """An error of libhawser. `errno` is the code. str() returns the library's error line.

    `started`: if submit() raises the error because the library could not start a request, the list that
    submit() would have returned for the requests before it."""

    started: list[Any] | None = None

    def __str__(self) -> str:
        return str(self.strerror)


class NotReadyError(HawserError, BlockingIOError):
    """EAGAIN: not done yet. The timeout of a call has expired, or too many operations are pending. Nothing was lost."""


class DeadlineError(HawserError, TimeoutError):
    """ETIMEDOUT: an operation or a connection attempt has failed because its deadline has passed."""


class PeerDiedError(HawserError, ConnectionResetError):
    """ECONNRESET: the peer has died, or every path to the peer has failed."""


class PeerClosedError(HawserError, BrokenPipeError):
    """ESHUTDOWN: the peer or this side closed the connection or the stream."""


class ProtocolError(HawserError):
    """EPROTO: the peer has violated the protocol."""


class IncompatibleError(HawserError):
    """EPROTONOSUPPORT: the two sides use different transports, or have no common version of the session protocol."""


class AccessError(HawserError, PermissionError):
    """EACCES: the key is wrong, or a region's rights do not permit the operation."""


class BoundsError(HawserError, ValueError):
    """EFAULT: a range is outside the bounds of a region or of memory."""


class StaleRegionError(HawserError):
    """ESTALE: the region was revoked or never existed."""


class MessageSizeError(HawserError):
    """EMSGSIZE: the message is larger than the receive that it matched."""


class CanceledError(HawserError):
    """ECANCELED: this side or the peer cancelled the operation, or its stream was closed."""


class ArgumentError(HawserError, ValueError):
    """EINVAL: an argument, an option or a knob is invalid."""


class NoMemoryError(HawserError, MemoryError):
    """ENOMEM: out of memory."""


class NoDescriptorsError(HawserError):
    """EMFILE: the process has reached its limit of file descriptors."""


class BusyError(HawserError):
    """EBUSY: operations still use the memory, or the context already listens."""


class AddressInUseError(HawserError):
    """EADDRINUSE: the port is in use."""


class AddressError(HawserError):
    """EADDRNOTAVAIL: this machine has no such address."""


class RefusedError(HawserError, ConnectionRefusedError):
    """ECONNREFUSED: no process listens at that address and port, or the peer has too many peers (knob max_peers)."""


class UnreachableError(HawserError):
    """EHOSTUNREACH: the host's name is unknown, or no path to the host works."""


class NoKeyError(HawserError, PermissionError):
    """EPERM: without a job key or insecure=True, hawser connects only to loopback and lab addresses."""


class NoDeviceError(HawserError):
    """ENODEV: there is no driver, no such GPU or no such NIC, or too few pairs of NICs work."""


class TooManyError(HawserError):
    """E2BIG: there are too many descriptors, channels or bytes of inline data."""


class UnsupportedError(HawserError):
    """EOPNOTSUPP: this library or transport does not support the request."""


class DeviceFailedError(HawserError):
    """EIO: the GPU failed."""


class ClosedError(HawserError):
    """EBADF: the object was closed. Raised by the Python code."""


class ForkedError(ClosedError):
    """EBADF: the object belongs to the process that this one was forked from. Raised by the Python code."""


_CLASSES: dict[int, type[HawserError]] = {
    codes.EAGAIN: NotReadyError, codes.ETIMEDOUT: DeadlineError, codes.ECONNRESET: PeerDiedError,
    codes.ESHUTDOWN: PeerClosedError, codes.EPROTO: ProtocolError, codes.EPROTONOSUPPORT: IncompatibleError,
    codes.EACCES: AccessError, codes.EFAULT: BoundsError, codes.ESTALE: StaleRegionError,
    codes.EMSGSIZE: MessageSizeError, codes.ECANCELED: CanceledError, codes.EINVAL: ArgumentError,
    codes.ENOMEM: NoMemoryError, codes.EMFILE: NoDescriptorsError, codes.EBUSY: BusyError,
    codes.EADDRINUSE: AddressInUseError, codes.EADDRNOTAVAIL: AddressError, codes.ECONNREFUSED: RefusedError,
    codes.EHOSTUNREACH: UnreachableError, codes.EPERM: NoKeyError, codes.ENODEV: NoDeviceError,
    codes.E2BIG: TooManyError, codes.EOPNOTSUPP: UnsupportedError, codes.EIO: DeviceFailedError,
    codes.EBADF: ClosedError,
}


def make_error(rc: int, text: str) -> HawserError:
    """Returns the exception for the negative errno rc, with the library's error line as its text."""
    code = -rc
    return _CLASSES.get(code, HawserError)(code, text or os.strerror(code))
