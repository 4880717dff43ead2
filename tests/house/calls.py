#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks, with the build's symbol tables, that each folder calls only lower layers (TAP). Calls must follow the rules
of arrows.py. Folders must not call each other in a cycle, with exceptions in TOGETHER. A cycle of calls between files
must not cross folders.
Usage: calls.py ROOT BUILD NM ARCHIVE..."""
import collections
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import arrows  # in this folder

# Folders that may call each other, and the reason.
TOGETHER = {("tool/doctor", "tool/nccl", "tool/nccl/bench", "tool/nixl"): "the checks of NCCL and NIXL use what `hawser nccl` and `hawser nixl` find, whose "
            "action check is a group of checks; bench is an action of `hawser nccl`, and uses its plugin's folder"}
LINE = re.compile(r"^.*?:(?P<object>.*\.c\.o): *[0-9a-f]* +(?P<kind>\w) (?P<symbol>\S+)$")


def name_objects(root):
    """Returns a dict from (folder, object name) to source. meson names the object of file a/b.c in FOLDER "a_b.c.o"."""
    names = {}
    for f in (f for d in arrows.folders(root) for f in d.rglob("*.c")):
        parts = f.relative_to(root).parts
        for n in range(len(parts)):
            names["/".join(parts[:n]), "_".join(parts[n:])] = "/".join(parts)
    return names


def source_of(names, build, path):
    """Returns the source of BUILD/FOLDER/libX.a.p/OBJECT.o, or None if the source is not in the source tree."""
    place = arrows.pathlib.Path(path).resolve().relative_to(build)
    folder = place.parent.parent.as_posix()
    return names.get(("" if folder == "." else folder, place.name.removesuffix(".o")))


def read_symbols(nm, archives):
    """Returns two dicts: from each symbol to the object that defines the symbol, and from each object to the symbols
    that the object uses. The archives are thin, so nm prints each object's path."""
    defined, used = {}, collections.defaultdict(set)
    for line in subprocess.run([nm, "-A", "-g", *archives], capture_output=True, text=True, check=True).stdout.splitlines():
        m = LINE.match(line)
        if m and m["kind"] in "Uvw":
            used[m["object"]].add(m["symbol"])
        elif m:
            defined[m["symbol"]] = m["object"]
    return defined, used


def circles(edges):
    """Returns the sets of two or more nodes that can all reach each other (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in sorted(edges.get(v, ())):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for v in sorted(edges):
        if v not in index:
            visit(v)
    return found


def main(root, build, nm, archives):
    root, build = (arrows.pathlib.Path(d).resolve() for d in (root, build))
    names = name_objects(root)
    defined, used = read_symbols(nm, archives)
    source = {o: source_of(names, build, o) for o in set(defined.values()) | set(used)}
    files, folders, faults = collections.defaultdict(set), collections.defaultdict(set), []
    for o, symbols in used.items():
        for s in symbols:
            a, b = source.get(o), source.get(defined.get(s))
            if not a or not b or a == b:
                continue
            files[a].add(b)
            fa, fb = arrows.folder_of(a), arrows.folder_of(b)
            api = s.startswith("hawser_") and arrows.API in arrows.RULES[fa]
            if fa != fb and not api and not any(arrows.inside(b, p.replace(".h", ".c")) for p in arrows.RULES[fa]):
                faults.append(f"{a} calls {s}() of {b}; {fa} may only call {', '.join(arrows.RULES[fa])}")
            if a.rpartition("/")[0] != b.rpartition("/")[0]:
                folders[a.rpartition("/")[0]].add(b.rpartition("/")[0])
    n = sum(map(len, files.values()))
    lost = [o for o in source if not source[o] and "meson-generated" not in o]
    print(f"{'ok' if n > 500 and not lost else 'not ok'} 1 - calls between files were read: {n}")
    for o in sorted(lost):
        print(f"# {o}: not known which source this is")
    print(f"{'not ' if faults else ''}ok 2 - they point down")
    across = [c for c in circles(files) if len({f.rpartition('/')[0] for f in c}) > 1]
    print(f"{'not ' if across else ''}ok 3 - no circle of files crosses a folder")
    pairs = [c for c in circles(folders) if tuple(c) not in TOGETHER]
    print(f"{'not ' if pairs else ''}ok 4 - no folders call each other, but for those named here")
    for fault in sorted(set(faults)) + [" ".join(c) for c in across + pairs]:
        print(f"# {fault}")
    print("1..4")
    return 1 if faults or across or pairs or lost or n <= 500 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
