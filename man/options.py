#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints hawser.1 as scdoc. Replaces each @--NAME in the source with the option's letter, name and value from the tool's help,
so that the page always matches the tool. @--NAME=VALUE selects the option with this value if actions have different options of
this name. @DOCDIR@ stands for the folder where documents are installed. Usage: options.py HAWSER SOURCE [DOCDIR]"""
import re
import subprocess
import sys

ROW = re.compile(r"^  (?:-(\w),|   ) --([a-z][a-z0-9-]*)(?: (\S+))?", re.M)


def said(hawser, *argv):
    return subprocess.run([hawser, *argv], check=True, capture_output=True, text=True, timeout=20).stdout


def read_help(hawser, command):
    """Returns a command's actions, and the help texts that list options: the command's own, or those of its actions."""
    text = said(hawser, "help", command)
    actions = re.findall(r"^  ([a-z]+) +\S", text.partition("\nActions:\n")[2], re.M)
    return actions, [said(hawser, command, a, "--help") for a in actions] or [text]


def rows_of(hawser, command):
    """Returns the options of a command and its actions: name -> {(letter, value)}."""
    rows = {}
    for page in read_help(hawser, command)[1]:
        for letter, name, value in ROW.findall(page):
            rows.setdefault(name, set()).add((letter, value))
    return rows


def write_option(rows, where, name, value):
    fits = {r for r in rows.get(name, ()) if value is None or r[1] == value}
    if len(fits) != 1:
        sys.exit(f"options.py: {where}: --{name} is {'none of its options' if not fits else f'one of {sorted(fits)}: say which, @--{name}=VALUE'}")
    letter, text = fits.pop()
    text = re.sub(r"[A-Z][A-Z0-9]*", r"_\g<0>_", text)
    return (f"*-{letter}*, " if letter else "") + f"*--{name}*" + (f" {text}" if text else "")


def list_commands(hawser, text):
    """Returns the synopsis, a line for each command of the tool. Exits if a command has no section in text."""
    lines = []
    for command in re.findall(r"^  ([a-z-]+) ", said(hawser, "help"), re.M):
        if not re.search(rf"^## hawser {command}\b", text, re.M):
            sys.exit(f"options.py: {command} has no section")
        if command == "help":
            lines.append("*hawser help* [_COMMAND_ [_ACTION_]]")
            continue
        usage = re.match(r"Usage: hawser (.*)", said(hawser, "help", command))[1]
        lines.append("*hawser " + command + "*" + re.sub(r"\b[A-Z][A-Z_]*\b", r"_\g<0>_", usage[len(command):]))
    return "++\n".join(lines) + "\n"


def main(hawser, source, docdir="/usr/share/doc/hawser"):
    where, rows = "", {}
    with open(source, encoding="utf-8") as f:
        text = f.read().replace("@DOCDIR@", docdir)
        for line in text.splitlines(keepends=True):
            if line == "@commands\n":
                print(list_commands(hawser, text), end="")
                continue
            head = re.match(r"## (?:hawser ([a-z-]+)|Common options)", line)
            if head:
                where = line[3:].strip()
                rows = rows_of(hawser, head[1] or "bench") if head[1] != "help" else {}
            print(re.sub(r"@--([a-z][a-z0-9-]*)(?:=((?:\S*[^\s,])?))?(?=,?\s)", lambda m: write_option(rows, where, m[1], m[2]), line), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
