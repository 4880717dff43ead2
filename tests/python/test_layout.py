# SPDX-License-Identifier: Apache-2.0
"""Tests that the hand-written cdef matches hawser.h as a compiler reads it: the same functions, and structures with the
same sizes and offsets. Also tests that the binding has annotations that mypy accepts, and docstrings."""
import inspect
import os
import re
import shutil
import struct
import subprocess
import sys

import pytest

import hawser
from conftest import LIMIT, ROOT
from hawser import _operation
from hawser._cdef import CDEF
from hawser._library import ffi, lib

# Functions that the binding does not use, with the reason.
UNUSED = {"hawser_connect_start": "its completion would need a place among the program's", "hawser_nic_stats": "channels() has it",
          "hawser_peer_set_user": "Peer.user", "hawser_peer_user": "Peer.user"}


def declarations(text):
    """Maps each function's name to its declaration, without comments and spaces, and with the types that the cdef
    uses."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"^\s*#.*$", " ", text, flags=re.M).replace("HAWSER_API", " ")
    text = re.sub(r"\benum hawser_mem_kind\b", "int", text)
    text = re.sub(r"uint8_t key\[HAWSER_KEY_SIZE\]", "uint8_t *key", text)
    return {m[1]: re.sub(r"\s+", "", m[0]) for m in re.finditer(r"[\w ]+[ *]+(hawser_\w+)\s*\([^;{]*\)\s*;", text)}


def test_functions_are_those_of_the_header():
    header = declarations((ROOT / "include/hawser.h").read_text(encoding="utf-8"))
    mine = declarations(CDEF)
    assert len(header) > 40
    assert set(header) - set(mine) == set(UNUSED) and set(mine) <= set(header)
    assert {n: d for n, d in mine.items() if header[n] != d} == {}
    for name in mine:
        assert getattr(lib, name)


def structures():
    return [m for m in re.findall(r"^(struct hawser_\w+) \{", CDEF, re.M)]


def test_structures_are_those_of_the_compiler(tmp_path):
    cc = os.environ.get("HAWSER_TEST_CC") or shutil.which("cc")
    if not cc:
        pytest.skip("no C compiler")
    assert len(structures()) == 9
    lines = []
    for name in structures():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, _ in ffi.typeof(name).fields:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
    values = ("HAWSER_CALLER_PROGRESS HAWSER_INSECURE HAWSER_EVENTS HAWSER_TRUSTED HAWSER_ENDED HAWSER_ARRIVED HAWSER_DIED "
              "HAWSER_NOTIFIED HAWSER_KEY_SIZE HAWSER_REMOTE_READ HAWSER_REMOTE_WRITE HAWSER_WRITE HAWSER_READ HAWSER_SEND "
              "HAWSER_RECV HAWSER_NOTIFY HAWSER_MEM_HOST HAWSER_MEM_CUDA HAWSER_PATH_USED HAWSER_PATH_AWAITED "
              "HAWSER_PATH_UNUSED HAWSER_PATH_SPARE HAWSER_ONLY_DIALLED").split()
    lines += [f'printf("%u ", (unsigned){v});' for v in values]
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("#include <hawser.h>\n#include <stdio.h>\nint main(void){" + "\n".join(lines) + "}")
    subprocess.run([cc, "-I", ROOT / "include", "-o", program, source], check=True, timeout=LIMIT)
    *seen, numbers = subprocess.run([program], check=True, capture_output=True, text=True, timeout=LIMIT).stdout.splitlines()
    expected = []
    for name in structures():
        expected.append(f"{name} {ffi.sizeof(name)}")
        expected += [f"{name}.{f} {d.offset} {ffi.sizeof(d.type)}" for f, d in ffi.typeof(name).fields]
    assert seen == expected
    from hawser import _buffers, _context, _memory, _peer
    flags = (_context.CALLER_PROGRESS, _context.INSECURE, _context.EVENTS, _context.TRUSTED, *_context.Event,
             _memory.KEY_SIZE, _memory.REMOTE_READ, _memory.REMOTE_WRITE,
             *(r.kind for r in (hawser.Write, hawser.Read, hawser.Send, hawser.Recv, hawser.Notify)), _buffers.HOST,
             _buffers.CUDA, *_peer.PATH_STATES, _context.ONLY_DIALLED)
    assert [int(x) for x in numbers.split()] == [int(x) for x in flags]


@pytest.mark.parametrize("packer, name", [(_operation.VEC, "struct hawser_vec"),
                                          (_operation.OPTIONS, "struct hawser_op_options")])
def test_packed_structures_match(packer, name):
    assert packer.size == ffi.sizeof(name)
    at, format_ = 0, packer.format.lstrip("@")
    for letter, (_, field) in zip(format_, ffi.typeof(name).fields, strict=True):
        size = struct.calcsize("@" + letter)
        at = (at + size - 1) // size * size
        assert (field.offset, ffi.sizeof(field.type)) == (at, size)
        at += size


def test_mypy_accepts_the_package():
    if subprocess.run([sys.executable, "-c", "import mypy"], stderr=subprocess.DEVNULL, timeout=LIMIT).returncode:
        pytest.skip("mypy is not installed")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, ROOT / "python/hawser"],
                          capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout
    assert (ROOT / "python/hawser/py.typed").exists()


def test_everything_public_has_a_docstring():
    bare = []
    for name in hawser.__all__:
        thing = getattr(hawser, name)
        bare += [] if thing.__doc__ else [name]
        if inspect.isclass(thing):
            bare += [f"{name}.{k}" for k, v in vars(thing).items() if not k.startswith("_") and not v.__doc__
                     and (inspect.isfunction(v) or (isinstance(v, property) and k not in ("readonly",)))]
    assert bare == []
