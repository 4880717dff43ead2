# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the memory of other processes, and generates the expected bytes, so that the check does not depend
on either end of a transfer."""
import array
import ctypes
import os
import random

PAGE = 4096
BLOCK = 1 << 20
libc = ctypes.CDLL(None, use_errno=True)


class Range(ctypes.Structure):
    """struct iovec"""
    _fields_ = [("base", ctypes.c_size_t), ("size", ctypes.c_size_t)]


def copy_memory(function, pid, address, data):
    """Calls process_vm_readv(2) or process_vm_writev(2) until all of data, a bytearray, is copied."""
    base, at = ctypes.addressof(ctypes.c_char.from_buffer(data)), 0
    function.restype = ctypes.c_ssize_t
    while at < len(data):
        ours, theirs = Range(base + at, len(data) - at), Range(address + at, len(data) - at)
        n = function(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        if n <= 0:
            code = ctypes.get_errno()
            raise OSError(code, f"{os.strerror(code)}: process {pid}, memory at {address + at:#x}")
        at += n


def write_memory(pid, address, data):
    copy_memory(libc.process_vm_writev, pid, address, data if isinstance(data, bytearray) else bytearray(data))


def read_memory(pid, address, size):
    data = bytearray(size)
    copy_memory(libc.process_vm_readv, pid, address, data)
    return data


def make_pattern(seed, size):
    """Returns bytes in which all pages differ from each other and from the pages of other seeds."""
    block = random.Random(seed).randbytes(min(BLOCK, size))
    data = bytearray(block * (-(-size // len(block))))[:size]
    words = memoryview(data)[:size // 8 * 8].cast("Q")
    stamps = words[::PAGE // 8]
    stamps[:] = array.array("Q", ((seed << 32) + k for k in range(len(stamps))))
    return data


def find_difference(got, want):
    """Returns the number of pages that differ, and the offset of the first byte that differs, or (0, None) if got
    equals want."""
    if got == want:
        return 0, None
    bad = [k for k in range(0, len(want), PAGE) if got[k:k + PAGE] != want[k:k + PAGE]]
    return len(bad), next(k for k in range(bad[0], len(want)) if got[k] != want[k])


def measure_process(pid):
    """Returns a process's resident anonymous memory in bytes, file descriptors, threads and CPU seconds."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        status = dict(line.split(":", 1) for line in f)
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        ticks = f.read().rpartition(")")[2].split()[11:13]
    return {"memory": int(status["RssAnon"].split()[0]) * 1024, "threads": int(status["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "cpu_s": sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")}
