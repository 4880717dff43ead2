#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each folder includes headers only from lower layers: every #include "..." and <hawser.h> must follow
RULES (TAP)."""
import pathlib
import re
import sys

# Maps each folder to the other folders and files that it may include. A file follows the rule of the longest matching
# folder. CONTRIBUTING.md describes these rules.
API = "include/hawser.h"
LOW = [API, "lib/base"]
MID = LOW + ["lib/net", "lib/mem", "lib/wire"]
RULES = {
    "include": [],
    "lib/base": [API],
    "lib/net": LOW,
    "lib/mem": LOW,
    "lib/wire": LOW,
    "lib/transport": MID + ["lib/core"],  # transports implement functions that rails call
    "lib/transport/netplugin": MID + ["lib/transport", "lib/core"],
    "lib/transport/netplugin/table": LOW,
    "lib/transport/netplugin/child": LOW + ["lib/net", "lib/mem", "lib/transport/netplugin/table"],  # ring.h: memory shared with the host
    "lib/transport/netplugin/host": LOW + ["lib/mem", "lib/transport/netplugin/table", "lib/transport/netplugin/child"],
    "lib/core": MID,
    "lib/message": MID + ["lib/core"],
    "lib/context": MID + ["lib/core", "lib/message", "lib/transport"],
    "nixl": LOW + ["lib/net", "lib/wire"],  # uses hawser.h; blob.c packs bytes like lib/wire
    "nccl": LOW + ["lib/net", "lib/wire", "lib/transport/netplugin/table/abi.h"],  # uses hawser.h; shares NCCL's ABI header with the plugin loader
    "sys": LOW,
    "lab": LOW + ["sys"],
    "node": LOW + ["lib/net"],
    "sandbox": LOW + ["sys", "node", "lib/net"],
    "oci": LOW + ["sys", "sandbox", "node", "lib/net"],
    "verbs": LOW + ["sys"],
    "tool": LOW + ["sys", "lab", "helper", "sandbox", "oci", "verbs", "node", "lib/net", "lib/mem", "nccl/params.h", "nixl/tried.h", "lib/transport/netplugin/table/abi.h", "lib/transport/devmem/helper.h", "lib/wire"],
    "helper": LOW + ["sys", "lib/net", "lib/wire", "helper"],
    "helper/kernel": LOW + ["sys", "lib/net"],
    "helper/child": LOW + ["sys", "lib/wire", "helper/kernel"],
    "helper/state": LOW + ["sys", "lib/net", "lib/wire", "helper/kernel", "helper/child"],
    "bench": [""],
    "examples": [API],
    "man": [API],
    "scripts": LOW,
    "tests": [""],  # tests may include anything, because they test internals
    "fuzz": [""],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(hawser\.h)>)', re.M)


def inside(path, prefix):
    return prefix == "" or path == prefix or path.startswith(prefix + "/")


def folder_of(path):
    return max((f for f in RULES if inside(path, f)), key=len, default=None)


def resolve(root, file, name):
    for base in (file.parent, root / "include", root / "lib", root):
        if (base / name).is_file():
            return (base / name).resolve().relative_to(root).as_posix()
    return None


def check(root, file):
    """Yields a message for each fault in one file."""
    me = file.relative_to(root).as_posix()
    folder = folder_of(me)
    if folder is None:
        yield f"{me}: no rule for this folder: give it one in tests/house/arrows.py"
        return
    for m in INCLUDE.finditer(file.read_text(encoding="utf-8", errors="replace")):
        name = m[1] or m[2]
        target = resolve(root, file, name)
        if target is None:
            yield f'{me}: "{name}" is no file of the house (system headers go in <>)'
        elif folder_of(target) != folder and not any(inside(target, p) for p in RULES[folder]):
            yield f"{me}: includes {target}; {folder} may only include {', '.join(RULES[folder]) or 'nothing'}"


def folders(root):
    """Returns the folders in the root, except hidden ones and build folders of any name."""
    return [d for d in root.iterdir() if d.is_dir() and not d.name.startswith((".", "build")) and not (d / "meson-private").exists()]


def main(root):
    root = pathlib.Path(root).resolve()
    files = sorted(f for d in folders(root) for f in d.rglob("*") if f.suffix in (".c", ".cc", ".h"))
    seen = {}
    for f in files:
        seen.setdefault(folder_of(f.relative_to(root).as_posix()) or f.parent.name, []).extend(check(root, f))
    # The compiler also searches the root for <...>, so a header in sys/ must not have the name of a system header.
    for f in sorted(root.glob("sys/*.h")):
        if any(pathlib.Path("/usr/include").glob(f"**/sys/{f.name}")):
            seen["sys"].append(f"{f.name}: <sys/{f.name}> is the system's")
    for n, (folder, faults) in enumerate(sorted(seen.items()), 1):
        print(f"{'not ' if faults else ''}ok {n} - {folder} includes only what lies below it")
        for fault in faults:
            print(f"# {fault}")
    print(f"1..{len(seen)}")
    return 1 if any(seen.values()) or not seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
