#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a text file to a C string: embed.py FILE NAME writes `const char NAME[]` to stdout, without empty lines and
// comment lines. Removes indentation except in a .py file."""
import sys

path, name = sys.argv[1:]
print("/* Generated; do not edit. */")
print(f"extern const char {name}[];\nconst char {name}[] =")
with open(path, encoding="ascii") as f:
    for line in f:
        line = line.rstrip() if path.endswith(".py") else line.strip()
        if line and not line.startswith("//"):
            print('    "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"')
print("    ;")
