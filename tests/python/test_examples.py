# SPDX-License-Identifier: Apache-2.0
"""Runs the examples of examples/python as described in their first lines."""
import re

import pytest

from conftest import LIMIT, ROOT, start_python

EXAMPLES = ROOT / "examples/python"


# Limits on the number of lines, to keep the examples short.
LINES = {"kv_push.py": 90, "torch_gpu.py": 110, "transfer.py": 30, "weights.py": 110}
BOTH = [r"request 0: 1024 blocks pushed", r"request 1: 8192 blocks pushed",
        r"request 0: 1024 blocks of 65536 bytes, all of them verified",
        r"request 1: 8192 blocks of 65536 bytes, all of them verified"]


@pytest.mark.parametrize("name", LINES)
def test_example_is_short(name):
    assert (EXAMPLES / name).read_text(encoding="utf-8").count("\n") <= LINES[name]


def test_every_example_is_tried():
    assert sorted(p.name for p in EXAMPLES.glob("*.py")) == sorted(LINES)


@pytest.mark.parametrize("name, first_arguments, second_arguments, says",
                         [("kv_push.py", ["decode"], ["prefill"], BOTH), ("transfer.py", [], [], ["all of them right"])])
def test_two_processes(name, first_arguments, second_arguments, says):
    first = start_python(EXAMPLES / name, *first_arguments)
    second = None
    try:
        port = re.fullmatch(r"port (\d+)\n", first.stdout.readline())[1]
        second = start_python(EXAMPLES / name, *second_arguments, "127.0.0.1", port)
        said = second.communicate(timeout=LIMIT)[0] + first.communicate(timeout=LIMIT)[0]
        assert first.returncode == second.returncode == 0, said
        assert all(words in said for words in says), said
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()


def run_example(*arguments):
    process = start_python(*arguments)
    try:
        return process.communicate(timeout=LIMIT)[0], process.returncode
    finally:
        process.kill()
        process.wait()


def test_kv_push_starts_both():
    said, status = run_example(EXAMPLES / "kv_push.py")
    assert status == 0 and all(words in said for words in BOTH), said


@pytest.mark.parametrize("fault, verified", [("", 3), ("slow", 3), ("dies", 2)])
def test_weights(fault, verified):
    said, status = run_example(EXAMPLES / "weights.py", *[fault] * bool(fault))
    lines = re.findall(r"64 tensors, 134217728 bytes, (\w+).* after ([0-9.]+) s$", said, re.M)
    assert status == 0 and len(lines) == 3 and [word for word, _ in lines].count("verified") == verified, said
    if fault == "dies":
        assert "PeerDiedError" in said
    if fault == "slow":  # nine pauses of 0.3 s, which must not delay the other processes
        times = sorted(float(seconds) for _, seconds in lines)
        assert times[2] > 2.7 and times[2] > times[1], said


def test_torch_without_a_gpu():
    pytest.importorskip("torch", reason="PyTorch is not installed; tests/gpu/run python runs the example on GPUs")
    said, status = run_example(EXAMPLES / "torch_gpu.py", "cpu")
    assert status == 0 and said.count(", verified") == 3, said


def test_readme_shows_the_short_example():
    shown = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert shown[1] in (EXAMPLES / "transfer.py").read_text(encoding="utf-8")
