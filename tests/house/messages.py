#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that messages.txt lists the product's messages, so that every change to a message appears in a diff (TAP). The
list has every text for users in the sources (errors, warnings, log lines, help, reports, pages), one message per line,
sorted by file. Adjacent literals are joined. Usage: messages.py ROOT [--write | --print]

A literal is a message if it has at least two words, or if it is an argument of a function that prints or formats
messages (MAKERS, and each function declared with HW_PRINTF). A macro between two literals is shown as <NAME>, and a
value in a Python f-string as {...}."""
import ast
import difflib
import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tap import done, ok  # noqa: E402

FOLDERS = ("helper", "include", "lab", "lib", "nccl", "nixl", "node", "oci", "python", "sandbox", "sys", "tool", "verbs")
MAKERS = {"fprintf", "fputs", "puts", "pr_err", "pr_warn", "pr_info", "runtime_error"}
WORDS = re.compile(r"[A-Za-z%}>)'\",:;][ ]+(?:[(\"'<]?[A-Za-z]{2}|%)|[A-Za-z]{2} [a-zA-Z]")
TOKEN = re.compile(r"""
    (?P<gap>\s+|/\*.*?\*/|//[^\n]*|\\\n)
  | (?P<raw>R"(?P<mark>[^()\s\\]*)\((?P<body>.*?)\)(?P=mark)")
  | (?P<text>(?:u8|[uUL])?"(?P<inner>(?:[^"\\\n]|\\.)*)")
  | (?P<char>'(?:[^'\\\n]|\\.)+')
  | (?P<name>[A-Za-z_]\w*)
  | (?P<other>\d[\w.']*|.)""", re.S | re.X)
MACRO = re.compile(r"[A-Z_][A-Z_0-9]*[A-Z0-9_xudioX]*$")
PATH = re.compile(r"\S+/\S+")
QUIET = {"_Static_assert", "static_assert", "asm", "__asm__", "__asm", "include", "__section", "section", "json_pack", "json_pack_ex", "json_unpack", "json_unpack_ex", "sscanf"}


def tokens(source):
    """Returns (kind, text) for each token except gaps. The token ("end", "") marks the end of a preprocessor line."""
    directive, out, fresh = False, [], True
    for m in TOKEN.finditer(source):
        kind, text = m.lastgroup, m[0]
        kind = "raw" if m["raw"] is not None else "text" if m["text"] is not None else kind
        if kind == "gap":
            if "\n" in text and not text.startswith(("/*", "\\")):
                if directive:
                    out.append(("end", ""))
                directive, fresh = False, True
            continue
        directive, fresh = directive or (fresh and text == "#"), False
        out.append((kind, m["body"].replace("\n", "\\n") if kind == "raw" else m["inner"] if kind == "text" else text))
    return out


def texts_of_c(source, makers):
    """Returns the messages in a C or C++ source, with adjacent literals joined."""
    out, calls, run, previous = [], [], None, ""
    for kind, text in [*tokens(source), ("end", "")]:
        if kind in ("text", "raw"):
            run = (run or "") + text
            continue
        if run is not None and kind == "name" and MACRO.match(text):
            run += f"<{text}>"
            continue
        if run is not None:
            one = calls and calls[-1] in makers and re.search("[A-Za-z]{2}", run) and not PATH.fullmatch(run)
            if not set(calls) & QUIET and (WORDS.search(run) or one):
                out.append(run)
            run = None
        if text == "(":
            calls.append(previous)
        elif text == ")" and calls:
            calls.pop()
        elif text in "{};" and kind == "other":
            calls = calls if text != ";" else []
        previous = text if kind == "name" else ""
    return out


def texts_of_python(source):
    """Returns the messages in a Python source. Docstrings are not messages."""
    tree, skipped, out = ast.parse(source), set(), []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                skipped.add(first.value)
        if isinstance(node, ast.JoinedStr):
            skipped.update(x for x in node.values)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            out.append((node.lineno, node.col_offset, node.value))
        elif isinstance(node, ast.JoinedStr):
            text = "".join(v.value if isinstance(v, ast.Constant) else "{" + ast.unparse(v.value) + "}" for v in node.values)
            out.append((node.lineno, node.col_offset, text))
    return [text.replace("\n", "\\n") for _, _, text in sorted(out) if WORDS.search(text)]


def messages(root):
    """Returns 'FILE: text' for every message in the sources."""
    files = sorted(p for f in FOLDERS for p in (root / f).rglob("*") if p.suffix in (".c", ".h", ".cc", ".py")
                   and p.name != "_cdef.py" and "build" not in p.relative_to(root).parts)
    sources = {p: p.read_text(encoding="utf-8") for p in files}
    makers = MAKERS | {name for s in sources.values() for name in re.findall(r"(\w+)\s*\([^()]*\.\.\.\)\s*HW_PRINTF", s)}
    return [f"{p.relative_to(root)}: {text}" for p, s in sources.items()
            for text in (texts_of_python(s) if p.suffix == ".py" else texts_of_c(s, makers))]


def main(root, mode=""):
    root = pathlib.Path(root)
    kept, now = pathlib.Path(__file__).with_name("messages.txt"), messages(root)
    if mode == "--print":
        print("\n".join(now))
        return 0
    if mode == "--write":
        kept.write_text("\n".join(now) + "\n", encoding="utf-8")
        return 0
    ok(len(now) > 2500, f"messages were found: {len(now)}")
    changes = [x for x in difflib.unified_diff(kept.read_text(encoding="utf-8").splitlines() if kept.exists() else [], now, "messages.txt", "the sources",
                                               lineterm="", n=0) if not x.startswith("@@")]
    ok(not changes, "messages.txt has the messages of the sources", "messages have changed; read them in the diff, then write the list anew:",
       "  tests/house/messages.py . --write", "\n".join(x.replace("\\n", "⏎") for x in changes))
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
