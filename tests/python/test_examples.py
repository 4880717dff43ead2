# SPDX-License-Identifier: Apache-2.0
"""The examples of examples/python: two processes each, as their first lines say to start them."""
import re

import pytest

from conftest import LIMIT, ROOT, start_python

EXAMPLES = ROOT / "examples/python"


@pytest.mark.parametrize("name, lines, says", [("kv_push.py", 60, "1024 blocks of 65536 bytes, all of them right"),
                                               ("transfer.py", 30, "all of them right")])
def test_example(name, lines, says):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert text.count("\n") <= lines
    first = start_python(EXAMPLES / name)
    second = None
    try:
        said = re.fullmatch(r"port (\d+)\n", first.stdout.readline())
        second = start_python(EXAMPLES / name, "127.0.0.1", said[1])
        assert second.communicate(timeout=LIMIT)[0] == "" and second.returncode == 0
        assert says in first.communicate(timeout=LIMIT)[0] and first.returncode == 0
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()


def test_readme_shows_the_short_example():
    shown = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert shown[1] in (EXAMPLES / "transfer.py").read_text(encoding="utf-8")
