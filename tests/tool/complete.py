#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser complete` and the completion scripts for bash, zsh and fish (TAP): they must offer every command,
action and option in the tool's help, and nothing else. Usage: complete.py HAWSER FOLDER (FOLDER contains the completion
scripts)"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from tap import done, ok, skip  # noqa: E402

HAWSER, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
ENV = {**os.environ, "PATH": f"{HAWSER.parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}


def said(*argv):
    return subprocess.run([HAWSER, *argv], capture_output=True, text=True, timeout=20, check=False, env=ENV)


def candidates(*words):
    r = said("complete", "--", *words)
    return [line.split("\t")[0] for line in r.stdout.splitlines()] if r.returncode == 0 else None


def listed(*argv):
    """Returns the commands or actions that a help text lists."""
    return re.findall(r"^  ([a-z][a-z-]+)  +\S", said(*argv).stdout, re.M)


def options(*argv):
    return re.findall(r"^  (?:-\w,|   ) (--[a-z][a-z0-9-]*)", said(*argv, "--help").stdout, re.M)


def tables():
    commands = listed("help")
    ok(len(commands) > 10 and candidates("") == commands, "every command", candidates(""))
    leaves = []
    for c in commands:
        actions = listed(c, "--help") if "Actions:" in said(c, "--help").stdout else []
        if actions:
            ok(candidates(c, "") == actions, f"every action of {c}", candidates(c, ""))
        leaves += [(c, a) for a in actions] or [(c,)]
    for leaf in leaves:
        if leaf[0] not in ("help", "oci-hook"):  # these have no options
            want = [o for o in options(*leaf)] + (["--help"] if "--help" not in options(*leaf) else [])
            ok(len(want) > 1 and candidates(*leaf, "--") == want, f"every option of {' '.join(leaf)}", candidates(*leaf, "--"))


def words():
    ok(candidates("sand") == ["sandbox"] and candidates("sandbox", "re") == ["restore"], "what begins with the word")
    ok(candidates("bench", "--raw-s") == ["--raw-streams"], "an option that begins with the word")
    ok(candidates("verbs", "spec", "--runtime", "") == ["crun", "runc"], "the words that an option takes")
    ok(candidates("verbs", "spec", "--runtime", "r") == ["runc"], "those that begin with the word")
    ok(candidates("bench", "--report", "--") == [], "a value that may be anything is the shell's matter")
    ok(candidates("sandbox", "run", "--", "l") == [], "another program's command line too")
    ok(candidates("help", "kno") == ["knobs"] and "complete" not in candidates(""), "help's words; this command is not listed")
    ok(candidates("nothing", "") == [] and candidates("lab", "nothing", "--") in ([], None), "nothing of what there is not")
    ok(said("complete").returncode == 2 and said("complete", "x").returncode == 2, "a call that makes no sense is refused")


def shells():
    r = subprocess.run(["bash", "-c", f". {FOLDER}/hawser.bash; COMP_WORDS=(hawser sandbox re); COMP_CWORD=2; _hawser; echo ${{COMPREPLY[@]}}; "
                        "COMP_WORDS=(hawser bench --raw-); _hawser; echo ${COMPREPLY[@]}; complete -p hawser"],
                       capture_output=True, text=True, env=ENV, check=False, timeout=20)
    ok(r.stdout.splitlines() == ["restore", "--raw-streams", "complete -o default -F _hawser hawser"], "bash", r)
    if shutil.which("fish"):
        with tempfile.TemporaryDirectory() as home:  # fish creates its folders under HOME
            r = subprocess.run(["fish", "--no-config", "-c", f"source {FOLDER}/hawser.fish; complete -C 'hawser sandbox re'"],
                               capture_output=True, text=True, env={**ENV, "HOME": home}, check=False, timeout=60)
        ok(any(line.startswith("restore\t") for line in r.stdout.splitlines()), "fish", r)
    else:
        skip("fish", "it is not installed")
    if shutil.which("zsh"):
        # zsh completes nothing without a terminal, so the function runs with replacements for the functions that a
        # terminal session would provide.
        r = subprocess.run(["zsh", "-f", "-c", f"_describe() {{ print -l $found }}; _files() {{ print files }}; hawser_() {{ . {FOLDER}/_hawser }}; "
                            "words=(hawser sandbox re); CURRENT=3; hawser_; words=(hawser bench --report ''); CURRENT=4; hawser_"],
                           capture_output=True, text=True, env=ENV, check=False, timeout=20)
        ok([line.split(":")[0] for line in r.stdout.splitlines()] == ["restore", "files"], "zsh", r)
    else:
        skip("zsh", "it is not installed")


if __name__ == "__main__":
    tables()
    words()
    shells()
    sys.exit(done())
