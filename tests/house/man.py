#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the man pages (TAP). Every function of hawser.h must be in the NAME section of a page, and have a link to that
page. hawser.1 must describe every subcommand and option in the tool's help, and no option that does not exist."""
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from library import api  # noqa: E402
from tap import done, ok  # noqa: E402


def has_none(faults, what):
    ok(not faults, what, *sorted(faults))


def main(root, hawser=None):
    root = pathlib.Path(root)
    functions = api(root / "include/hawser.h")
    named = set()
    for page in sorted((root / "man").glob("*.3.scd")):
        text = page.read_text(encoding="utf-8")
        names = re.search(r"^# NAME\n\n(.+?) - ", text, re.M)[1].split(", ")
        named |= {x for x in names if x.startswith("hawser_")}
        has_none({x for x in names if x not in (page.name[:-6],) and f"{x}(" not in text}, f"{page.name} has a synopsis of each")
    has_none(functions ^ named, "every function of hawser.h is in one page's NAME, and nothing else is")
    links = set(re.findall(r"'(\w+)'(?!\s*:)", re.search(r"man_links = \{(.*?)\n\}",
                (root / "man/meson.build").read_text(encoding="utf-8"), re.S)[1]))
    has_none(functions ^ {"hawser_" + x for x in links}, "every function has a link to its page")

    # Readers of a page may not have the sources, so a page must refer to documents by their installed path, and only to
    # documents that exist.
    for page in sorted((root / "man").glob("*.scd")):
        text = page.read_text(encoding="utf-8")
        has_none(set(re.findall(r"(?<![/A-Za-z0-9@.])(?:docs|examples)/[\w/.-]+[a-z]", text)), f"{page.name} names documents by their whole path")
        has_none({x for x in re.findall(r"@DOCDIR@/([\w/.-]+?\.(?:md|c))\b", text) if not (root / x).exists()}, f"{page.name} names what is installed")

    if hawser:
        sys.path.insert(0, str(root / "man"))
        from options import ROW, read_help, said
        text = subprocess.run([root / "man/options.py", hawser, root / "man/hawser.1.scd"], check=True, capture_output=True, text=True,
                              timeout=60).stdout.replace("\\_", "_")
        commands = re.findall(r"^  ([a-z][a-z-]+) +\S", said(hawser, "help"), re.M)
        has_none(set() if len(commands) >= 6 else {f"only {commands}"}, "the tool lists its commands")
        has_none({x for t in ("help", "knobs") for x in said(hawser, "help", t).splitlines() if len(x) > 80}, "so do the lists of commands and knobs")
        known = {"--help", "--version"}
        for c in commands:
            has_none({c} if not re.search(rf"^## hawser {c}\b", text, re.M) else set(), f"hawser.1 has a part on {c}")
            if c == "help":
                continue
            part = re.split(rf"^## hawser {c}\b", text, maxsplit=1, flags=re.M)[-1]
            part = re.split(r"^##? ", part, maxsplit=1, flags=re.M)[0]
            actions, pages = read_help(hawser, c)
            has_none({a for a in actions if not re.search(rf"^\*{a}\*|^\*hawser {c} {a}\*|^### .*\b{a}\b", part, re.M)}, f"hawser.1 has every action of {c}")
            has_none({x for p in [*pages, said(hawser, "help", c)] for x in p.splitlines() if len(x) > 80}, f"the help of {c} fits into 80 columns")
            # A help text that is not generated from a table may mention options anywhere.
            options = {f"--{o}" for p in pages for o in ([r[1] for r in ROW.findall(p)] if "\nOptions:\n" in p
                                                         else re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", p))}
            common = re.split(r"^## Common options", text, maxsplit=1, flags=re.M)[-1]
            common = re.split(r"^##? ", common, maxsplit=1, flags=re.M)[0]
            has_none({o for o in options - known if f"*{o}*" not in part and f"*{o}*" not in common},
               f"hawser.1 has every option of {c}")
            has_none({o for o in set(re.findall(r"^(?:\*-\w\*, )?\*(--[a-z0-9-]+)\*", part, re.M)) if o not in options},
               f"hawser.1 has no option that {c} has not")
    return done()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
