# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libhawser.so.1, and turns its return codes into exceptions.

cffi releases the GIL around every call into the library. The library stores one error line per thread, so last_error()
must be called in the thread of the failed call, before any other call."""
from __future__ import annotations

import errno
import importlib
import math
import os
import time
from typing import Any, NoReturn

from ._cdef import CDEF
from ._paths import NATIVE
from .errors import ArgumentError, HawserError, make_error

NAME = "libhawser.so.1"
SLICE_MS = 100  # longest wait of one call into the library, except connect; Ctrl-C and close() take effect between calls

ffi: Any = importlib.import_module("cffi").FFI()  # imported by name, because cffi has no type annotations
ffi.cdef(CDEF)


def find_library() -> str:
    """Returns the library to load: HAWSER_LIBRARY if set, else the wheel's library, else the name for the loader."""
    named = os.environ.get("HAWSER_LIBRARY")
    if named:
        return named
    own = NATIVE / NAME
    return str(own) if own.exists() else NAME


def load_library() -> Any:
    path = find_library()
    try:
        return ffi.dlopen(path)
    except OSError as e:
        raise ImportError(f"cannot load {path}: {e}; set HAWSER_LIBRARY to the path of {NAME}") from None


lib: Any = load_library()

TAKE_LOG = ffi.typeof("void(*)(void *, int, const char *)")
TAKE_KNOB = ffi.typeof("void(*)(void *, const char *, const char *, const char *, const char *, const char *)")
TYPES = ("char *[]", "char[]", "hawser **", "hawser_mem **", "hawser_op **", "hawser_op *[]", "hawser_peer **", "size_t *",
         "struct hawser_channel_stats", "struct hawser_channel_stats[]", "struct hawser_completion *",
         "struct hawser_connect_options", "struct hawser_connect_options *", "struct hawser_op_options *",
         "struct hawser_options", "struct hawser_options *", "struct hawser_path", "struct hawser_path[]",
         "struct hawser_region *", "struct hawser_request[]", "struct hawser_vec *", "uint16_t *", "uint8_t[]", "uintptr_t",
         "void *")


def resolve_names() -> None:
    """Looks up all functions and types that the package uses.

    cffi does so on first use, and holds a lock meanwhile that its thread cannot take again. Without this function, a
    Context that the garbage collector closes, or a signal handler that calls hawser, could wait forever for the call
    that it interrupts, and a child of fork() for a thread of its parent."""
    for name in dir(lib):
        getattr(lib, name, None)  # a library of an earlier release may lack a function
    for name in TYPES:
        ffi.typeof(name)


resolve_names()


def last_error() -> str:
    """Returns the calling thread's last error line."""
    return str(ffi.string(lib.hawser_error()).decode("utf-8", "replace"))


def fail(rc: int) -> HawserError:
    """Returns the exception for a call that has just returned a negative rc."""
    return make_error(rc, last_error())


def check(rc: int) -> int:
    """Returns rc, or raises if it is negative."""
    if rc < 0:
        raise fail(rc)
    return rc


def invalid(text: str) -> ArgumentError:
    """Returns the exception for an argument that the Python code refuses."""
    return ArgumentError(errno.EINVAL, text)


class Unique:
    """Base of the classes that own a handle of the library or its memory. Two objects would free a handle twice."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        """Refuses copy.copy(), copy.deepcopy() and pickle, which call this method."""
        raise TypeError(f"a hawser.{type(self).__name__} cannot be copied or pickled")


def address_of(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def milliseconds(seconds: float) -> int:
    """Returns whole milliseconds, rounded up and limited to the range of a C int."""
    if not seconds >= 0:
        raise invalid(f"invalid timeout of {seconds} s: it must be 0 or more")
    return 2**31 - 1 if seconds > 2e6 else math.ceil(seconds * 1000)


def remaining_ms(end: float) -> int:
    """Returns whole milliseconds until `end`, a time of time.monotonic() or math.inf, limited to the range of a C int."""
    seconds = end - time.monotonic()
    return 2**31 - 1 if seconds > 2e6 else max(0, round(seconds * 1000))


def operation_ms(seconds: float | None) -> int:
    """Returns an operation's timeout_ms: 0 (the knob's value) for None, and -1 (no deadline) for math.inf."""
    if seconds is None:
        return 0
    return -1 if seconds == math.inf else max(1, milliseconds(seconds))


def version() -> str:
    """Returns the version of the library, such as "1.0.0"."""
    return str(ffi.string(lib.hawser_version()).decode())


def knobs() -> dict[str, tuple[str, str, str, str]]:
    """Returns a dict from each knob's name to (environment variable, default, unit, one line of documentation)."""
    found: dict[str, tuple[str, str, str, str]] = {}

    def take(_arg: Any, *words: Any) -> None:
        name, env, default, unit, doc = (ffi.string(w).decode() if w else "" for w in words)
        found[name] = (env, default, unit, doc)

    callback = ffi.callback(TAKE_KNOB, take)
    lib.hawser_knobs(callback, ffi.NULL)
    return found
