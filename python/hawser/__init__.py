# SPDX-License-Identifier: Apache-2.0
"""hawser: verified transfers between the memory of two machines (host or GPU) over many TCP connections and NICs.

Sizes and offsets are in bytes, times in seconds. Any thread may make any call, and each call releases the GIL while it
is in the library. docs/python.md is an introduction; include/hawser.h specifies each operation."""
from ._context import Completion, Context, Event
from ._library import knobs, version
from ._memory import Memory, Region
from ._operation import Notify, Operation, Read, Recv, Request, Send, Vec, Write
from ._paths import nccl_plugin_path, nixl_plugin_dir
from ._peer import Peer
from .errors import (AccessError, AddressError, AddressInUseError, ArgumentError, BoundsError, BusyError, CanceledError,
                     ClosedError, DeadlineError, DeviceFailedError, ForkedError, HawserError, IncompatibleError,
                     MessageSizeError, NoDescriptorsError, NoDeviceError, NoKeyError, NoMemoryError, NotReadyError,
                     PeerClosedError, PeerDiedError, ProtocolError, RefusedError, StaleRegionError, TooManyError,
                     UnreachableError, UnsupportedError)

__all__ = [
    "AccessError", "AddressError", "AddressInUseError", "ArgumentError", "BoundsError", "BusyError", "CanceledError",
    "ClosedError", "Completion", "Context", "DeadlineError", "DeviceFailedError", "Event", "ForkedError", "HawserError",
    "IncompatibleError", "Memory", "MessageSizeError", "NoDescriptorsError", "NoDeviceError", "NoKeyError",
    "NoMemoryError", "NotReadyError", "Notify", "Operation", "Peer", "PeerClosedError", "PeerDiedError",
    "ProtocolError", "Read", "Recv", "RefusedError", "Region", "Request", "Send", "StaleRegionError", "TooManyError",
    "UnreachableError", "UnsupportedError", "Vec", "Write", "knobs", "nccl_plugin_path", "nixl_plugin_dir", "version",
]
