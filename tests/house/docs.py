#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks README.md, docs/ and other pages (TAP). The targets of links, the named files, and the named options of
`hawser` must exist. Every command in a code block of README.md and docs/*.md must be run by this test or by another
test, or must be listed with a reason (docs_commands.py)."""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER), str(FOLDER.parents[1] / "man")]
from docs_commands import BY, HERE, NOT  # noqa: E402
from docs_text import (LANGUAGES, list_anchors, list_blocks, list_command_pages, list_commands, list_links, list_pages,  # noqa: E402
                       list_spans)
from options import read_help, said  # noqa: E402
from tap import done, ok, skip  # noqa: E402

ROOT, HAWSER = pathlib.Path(sys.argv[1]).resolve(), os.path.abspath(sys.argv[2])
LAB = f"docs{os.getpid()}"
PATIENCE = 120
# Only paths in these folders are checked. Other paths may belong to other projects.
TREES = "bench docs fuzz helper include lab lib man nccl node oci python sandbox sys tests tool verbs".split()


def none(faults, what):
    ok(not faults, what, *sorted(faults))


def read(page):
    return page.read_text(encoding="utf-8")


# ---- links and files

def check_links():
    anchors = {p: list_anchors(read(p)) for p in list_pages(ROOT)}
    lost, reached, todo = set(), set(), [ROOT / "README.md"]
    for page in anchors:
        for link, path, anchor in list_links(page, read(page)):
            if not path.exists() or anchor and anchor not in anchors.get(path, ()):
                lost.add(f"{page.relative_to(ROOT)}: {link}")
    none(lost, "every link of a page leads to a file, and to a heading there")
    while todo:
        page = todo.pop()
        if page in anchors and page not in reached:
            reached.add(page)
            todo += [path for _, path, _ in list_links(page, read(page))]
    none({str(p.relative_to(ROOT)) for p in anchors if p.is_relative_to(ROOT / "docs") and p not in reached}, "README.md leads to every page")
    index = {path for _, path, _ in list_links(ROOT / "docs/README.md", read(ROOT / "docs/README.md"))}
    none({p.name for p in (ROOT / "docs").glob("*.md")} - {p.name for p in index} - {"README.md"}, "docs/README.md lists every page of docs/")


def check_files():
    gone = set()
    for page in list_command_pages(ROOT):
        for span in list_spans(read(page)):
            name = re.match(rf"(?:{'|'.join(TREES)})/[\w./-]*\w", span)
            if name and "NAME" not in span and not (ROOT / name[0]).exists() and not list(ROOT.glob(name[0] + "*")):
                gone.add(f"{page.name}: {span}")
    none(gone, "every file that a page names is there")


# ---- options

def list_known():
    """Returns the options of all commands and actions, as a dict: command -> {action or "": options}."""
    known = {}
    for command in re.findall(r"^  ([a-z-]+) ", said(HAWSER, "help"), re.M):
        actions, texts = read_help(HAWSER, command) if command != "help" else ([], [""])
        known[command] = {a: set(re.findall(r"--([a-z][a-z0-9-]+)", t)) for a, t in zip(actions or [""], texts)}
    return known


def find_unknown(known, text):
    """Yields the commands and options in a command line that `hawser` does not support. A nested command (in lab exec
    or trace) has its own options."""
    for part in re.split(r"&&|;|\||\s--\s", re.sub(r"'[^']*'", "X", text)):
        words = part.split()
        at = [i + 1 for i, w in enumerate(words[:-1]) if w == "hawser" and re.fullmatch(r"[a-z][a-z-]+", words[i + 1])]
        if not at or words[at[0] - 2:at[0] - 1] == ["-m"]:
            continue
        command, rest = words[at[0]], words[at[0] + 1:]
        if command not in known:
            yield f"no command {command}: {text}"
            continue
        action = rest[0] if rest and rest[0] in known[command] else ""
        takes = known[command].get(action) or set().union(*known[command].values())
        if command == "trace":
            takes = takes.union(*(o for w in rest for o in known.get(w, {}).values()))
        for option in re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", " ".join(rest)):
            if option not in takes | {"help", "version"}:
                yield f"{command} {action} has no --{option}: {text}"


def check_options(commands):
    known, wrong, n = list_known(), set(), 0
    for page in list_command_pages(ROOT):
        spans = list_spans(read(page)) if page.name != "wire.md" else []  # where spans are labels
        for text in [s for s in spans if re.match(r"(\w+=\S+ )*hawser [a-z]", s)] + [c for p, _, c in commands if p == page]:
            n += 1
            wrong |= {f"{page.name}: {w}" for w in find_unknown(known, text)}
    ok(n > 200 and len(known) > 15, "the pages have many command lines", n, known.keys())
    none(wrong, "hawser has every command and option that a page shows")


# ---- commands

def find_commands():
    """Returns (page, prompt, command) for each command in all blocks, in order."""
    found, strange = [], set()
    for page in list_command_pages(ROOT):
        for number, language, lines in list_blocks(read(page)):
            if language not in LANGUAGES:
                strange.add(f"{page.name}:{number}: '{language}' is none of {sorted(LANGUAGES)}")
            elif language in ("sh", "console"):
                found += [(page, prompt, command) for prompt, command in list_commands(language, lines)]
    none(strange, "every block says what it is")
    return found


def check_tables(commands):
    shown = {c for _, _, c in commands}
    none({f"{p.name}: {c}" for p, _, c in commands if c not in HERE and c not in BY and c not in NOT}, "every command of a page is in docs_commands.py")
    none({c for t in (HERE, BY, NOT) for c in t if c not in shown}, "and no other is")
    none({c for c in shown if (c in HERE) + (c in BY) + (c in NOT) > 1}, "each once")
    sources, lost = {}, set()
    for command, by in BY.items():
        path = ROOT / by.test
        text = sources.setdefault(by.test, read(path) if path.exists() else "")
        lost |= {f"{by.test} has no {w}: {command}" for w in by.words if w not in text}
    none(lost, "every test that is named runs such a command")
    targets = set(re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.M))
    none({c for c in shown if c.startswith("make ") and c.split()[1] not in targets}, "the Makefile has each target")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Runner:
    """Runs the commands of one page in order, in a separate folder, as a reader would."""

    def __init__(self, page, folder):
        self.page, self.folder, self.servers, self.n = page.name, folder, [], 0
        self.env = {**os.environ, "PATH": f"{os.path.dirname(HAWSER)}:{os.environ['PATH']}", "HOME": str(folder), "HAWSER_METRICS_DIR": str(folder)}

    def start(self, command, where):
        argv = ["bash", "-c", command]
        if where in ("a", "b"):
            argv = [HAWSER, "lab", "exec", f"{LAB}/{where}", "--", *argv]
        self.n += 1
        with open(self.file(), "wb") as out:  # a file, because background processes would keep a pipe open
            return subprocess.Popen(argv, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)

    def file(self):
        return self.folder / f"output.{self.n}"

    def output(self):
        return self.file().read_text(encoding="utf-8", errors="replace")

    def stop(self, p):
        """Interrupts the command, and kills the command if it does not exit in time. Returns its status, or None."""
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(p.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return p.wait(timeout=PATIENCE)
        return None

    def goes_on(self, p, good):
        """Waits until good() returns true, the command exits, or PATIENCE seconds have passed. Returns whether good()
        returns true while the command is running."""
        end = time.monotonic() + PATIENCE
        while not good() and p.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        return good() and p.poll() is None

    def run(self, command, prompt):
        row, text = HERE[command], re.sub(r"\bnode1\b", "198.18.0.1", command)
        for old, new in row.swap:
            text = text.replace(old, new.replace("PORT", str(free_port())))
        # Rename the page's own lab, so that tests that run at the same time do not conflict.
        text = re.sub(r"hawser lab (up|down|link)", rf"hawser lab \1 --name {LAB}x", text)
        text = re.sub(r"lab exec (\w)\b", rf"lab exec {LAB}x/\1", text)
        where = {"node1": "a", "node2": "b"}.get(prompt[:-1], row.where)
        if re.match(r"hawser (lab exec \S+ -- hawser )?serve", text):
            p = self.start("exec " + text.removesuffix("&"), where)
            self.servers.append(p)
            good = self.goes_on(p, lambda: "On the other node" in self.output())
        elif row.ends:
            p = self.start("exec " + text, where)
            end = time.monotonic() + 1.5
            good = self.goes_on(p, lambda: time.monotonic() > end) and self.stop(p) in (0, 130, -signal.SIGINT)
        else:
            p = self.start(text, where)
            try:
                good = p.wait(timeout=PATIENCE) in row.status
            except subprocess.TimeoutExpired:
                good = False
                self.stop(p)
        
        ok(good, f"{self.page}: {command}", f"{text}: status {p.poll()}", self.output()[-3000:])

    def close(self):
        for p in self.servers:
            self.stop(p)
        subprocess.run([HAWSER, "lab", "down", "--name", f"{LAB}x"], check=False, timeout=PATIENCE, stderr=subprocess.DEVNULL)


def run_commands(commands):
    """Runs the commands in HERE. A command that several pages show is run for each page, because the command may depend
    on the commands before it."""
    up = subprocess.run([HAWSER, "lab", "up", "--name", LAB, "--nics", "2"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    try:
        for page in list_command_pages(ROOT):
            with tempfile.TemporaryDirectory() as folder:
                runner = Runner(page, pathlib.Path(folder))
                try:
                    for _, prompt, command in [c for c in commands if c[0] == page and c[2] in HERE]:
                        if up.returncode and (prompt.startswith("node") or "hawser lab" in command):
                            skip(f"{page.name}: {command}", f"no lab here: {up.stderr.strip()}")
                        else:
                            runner.run(command, prompt)
                finally:
                    runner.close()
    finally:
        subprocess.run([HAWSER, "lab", "down", "--name", LAB], check=False, timeout=PATIENCE)


def main():
    check_links()
    check_files()
    commands = find_commands()
    check_options(commands)
    check_tables(commands)
    run_commands(commands)
    return done()


if __name__ == "__main__":
    sys.exit(main())
