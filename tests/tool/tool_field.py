#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hawser fieldtest` (TAP). whole: in a lab with two NICs, fieldtest must name the slow NIC; checks the contents
of both files, and that neither contains secrets; runs NIXL over UCX if its wheel is available. ends: on loopback,
a peer that dies, a signal, and no peer; nothing may be left behind. docs: the keys on the documentation page are
exactly those of the results, and the page's table is generated from the results there.
Usage: tool_field.py PART HAWSER SOURCE_ROOT NIXL_WHEELS"""
import fnmatch
import html.parser
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "nixl"))
from nixl_wheels import NEWEST, Missing, Wheels  # noqa: E402
from tap import done, ok, skip  # noqa: E402

PART, HAWSER, ROOT, CACHE = sys.argv[1], os.path.abspath(sys.argv[2]), pathlib.Path(sys.argv[3]), os.path.abspath(sys.argv[4])
INSTALL_S = 60
LAB = f"field{os.getpid()}"
MAC_NIC = "enx0242ac1100fe"


def lab(what, *argv):
    return subprocess.run([HAWSER, "lab", what, "--name", LAB, *argv], check=True, timeout=60, capture_output=True, text=True)


def node(name, *argv):
    return [HAWSER, "lab", "exec", f"{LAB}/{name}", "--", *map(str, argv)]


def start(argv, cwd, **env):
    return subprocess.Popen([str(a) for a in argv], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **env})


def finish(p):
    out, err = p.communicate(timeout=200)
    return out, err, p.returncode


def is_left(word):
    """Returns the processes whose command line contains the word. Each test's folder has a unique name."""
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if p.parent.name != str(os.getpid()) and word.encode() in p.read_bytes():
                found.append(p.read_bytes().replace(b"\0", b" "))
        except OSError:
            pass
    return found


def nothing_left(folder, files, what):
    end = time.monotonic() + 20
    while is_left(str(folder)) and time.monotonic() < end:
        time.sleep(0.1)
    ok(not is_left(str(folder)), f"{what}: no process is left", is_left(str(folder)))
    ok({p.name for p in folder.iterdir()} == files, f"{what}: no file is left but the two", sorted(folder.iterdir()))


def list_keys(v, at=""):
    """Returns the keys of all nested values, in the form a.b[].c."""
    if isinstance(v, dict):
        return {k for name, x in v.items() for k in list_keys(x, f"{at}.{name}" if at else name)}
    if isinstance(v, list):
        return {k for x in v for k in list_keys(x, at + "[]")}
    return {at}


def documented_keys():
    text = (ROOT / "docs/field/README.md").read_text(encoding="utf-8")
    table = text.split("| key | what |")[1].split("\n\n")[0]
    return {k for line in table.splitlines() for k in re.findall(r"`([^`]+)`", (line + "||").split("|")[1])}


def is_documented(key, known):
    return any(fnmatch.fnmatchcase(key.replace("[]", "()"), k.replace("[]", "()")) for k in known)


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.faults, self.open, self.headings, self.in_heading = [], [], [], False

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "link", "img", "iframe", "object", "embed") or any(k in ("src", "href") or k.startswith("on") for k, _ in attrs):
            self.faults.append((tag, attrs))
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)
        self.in_heading = tag == "h2"

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(("end", tag))
        self.in_heading = False

    def handle_data(self, data):
        if self.in_heading:
            self.headings.append(data)


def read(folder, name="r"):
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def look_at_page(folder, want):
    text = (folder / "r.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    ok(not page.faults and not page.open and "url(" not in text and "@import" not in text, "the page needs no other file", page.faults, page.open)
    ok(set(want) <= set(page.headings), "and has its sections", page.headings)


def look_for_secrets(folder, key):
    macs = re.findall(r"link/ether (\S+)", subprocess.run(node("a", "ip", "link"), check=True, capture_output=True, text=True).stdout +
                      subprocess.run(node("b", "ip", "link"), check=True, capture_output=True, text=True).stdout)
    for name in ("r.json", "r.html"):
        text = (folder / name).read_text(encoding="utf-8")
        there = [w for w in (key, "198.18.", MAC_NIC, MAC_NIC[3:], "not to be told", str(folder), *macs) if w in text]
        if re.search(rf"(?<![\w-]){re.escape(os.uname().nodename)}(?![\w-])", text):
            there.append(os.uname().nodename)
        ok(len(macs) >= 5 and not there, f"{name} has no key, name or address", there)


def make_python(folder):
    """Returns (a Python with NIXL, "") or (a Python without NIXL, the reason)."""
    python, path, why = folder / "python", "", ""
    try:
        wheels, until = Wheels(CACHE), time.monotonic() + INSTALL_S
        path = f"{wheels.prepare(until)}:{wheels.get(NEWEST, until)}"
    except Missing as e:
        why = str(e)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n', encoding="ascii")
    python.chmod(0o755)
    return python, why


def look_at_nixl(d, python, why):
    r = next(r for r in d["rivals"] if r["rival"] == "NIXL over UCX")
    if why:
        ok(r["state"] == "not installed" and "on this node" in r["why"], "no NIXL, which is told", r)
        skip("NIXL over UCX beside it", why)
        return
    sizes = {b["size"] for b in d["bench"] if b["nic"] == "all" and b["test"] in ("small", "write")}
    ok(r["state"] == "measured" and {x["size"] for x in r["rows"]} == sizes and
       all(0.001 < x["GBps"] < 0.07 and x["hawser_ratio"] > 0 and x["version"] == NEWEST for x in r["rows"]), "NIXL over UCX beside it", r, sizes)
    end = time.monotonic() + 20
    while is_left(str(python)) and time.monotonic() < end:
        time.sleep(0.1)
    ok(not is_left(str(python)), "and no process of it is left", is_left(str(python)))


def whole(folder, python, why):
    """Tests two NICs, the second with a tenth of the first one's rate."""
    key = secrets.token_hex(24)
    (folder / "job.key").write_text(key, encoding="ascii")
    (folder / "job.key").chmod(0o600)
    lab("up", "--nics", "2", "--rate", "500mbit,50mbit")
    subprocess.run(node("b", "ip", "link", "add", MAC_NIC, "type", "veth", "peer", "name", "other"), check=True)
    serve = start(node("a", HAWSER, "serve", "--key-file", folder / "job.key"), folder)
    while "hawser bench" not in serve.stdout.readline():
        pass
    out, err, code = finish(start(node("b", HAWSER, "fieldtest", "198.18.0.1", "--key-file", folder / "job.key", "-t", "150s", "--each", "100ms",
                                       "--ssh", f"{HAWSER} lab exec {LAB}/a --", "--python", python, "-o", "r"), folder, NCCL_DEBUG_FILE="not to be told"))
    serve.send_signal(signal.SIGINT)
    said = finish(serve)
    ok(code == 1 and (folder / "r.json").exists(), "a slow NIC is something wrong", out, err)
    d = read(folder)
    named = [f for f in d["findings"] if re.search(r"bench: eth1 (sends|receives) at \d+ % of the median", f)]
    ok(named and named[0] in out, "which it names", out, d["findings"])
    ok([p["part"] for p in d["parts"]] == ["inventory", "doctor", "validate", "bench", "rivals", "drill"] and
       all(f"{i}/6 {p['part']}" in out for i, p in enumerate(d["parts"], 1)), "each part has its line", out)
    ok(d["schema"] == "hawser-field-1" and d["asked"]["seconds"] == 150 and not d["asked"]["names"], "what was asked for", d["asked"])
    for side, nics in (("here", {"eth0", "eth1", "other", "<address-"}), ("there", {"eth0", "eth1"})):
        n = d["nodes"][side]
        ok({x["nic"][:9] for x in n["nics"]} == nics and n["kernel"] == os.uname().release and n["sysctls"]["net/ipv4/tcp_rmem"] and
           {x["driver"] for x in n["nics"]} >= {"veth"}, f"the inventory of {side}", n)
        ok(d["doctor"][side]["passed"] > 5, f"doctor of {side}", d["doctor"].get(side))
    ok(d["doctor"]["pair"]["passed"] > 5, "doctor between them", d["doctor"].get("pair"))
    ok([(v["nic"], v["channels"]) for v in d["validate"]] == [("eth0", 4), ("eth1", 4)], "validate of each NIC", d["validate"])
    tests = {(b["nic"], b["test"]) for b in d["bench"]}
    ok(("all", "small") in tests and {("all", t) for t in ("write", "latency")} <= tests and {(n, "write") for n in ("eth0", "eth1")} <= tests,
       "bench of all and of each", tests, d["problems"])
    ok(all(b["bad_bytes"] == 0 for b in d["bench"]) and any(b["raw_GBps"] and b["raw_congestion"] for b in d["bench"]), "every byte is right; plain sockets too")
    others = {r["rival"]: r for r in d["rivals"]}
    ok(set(others) == {"iperf3", "NCCL", "NIXL over UCX"} and others["NCCL"]["state"] in ("skipped", "not installed"),
       "what others could not be measured, and why", others)
    look_at_nixl(d, python, why)
    if shutil.which("iperf3"):
        ok(others["iperf3"]["state"] == "measured" and others["iperf3"]["rows"][0]["nic"] == "eth0", "iperf3 beside it", others["iperf3"])
    else:
        ok(others["iperf3"]["state"] == "not installed", "no iperf3, which is told", others["iperf3"])
    unknown = {k for k in list_keys(d) if not is_documented(k, documented_keys())}
    ok(not unknown, "every key is documented", unknown)
    look_at_page(folder, ["Findings", "Parts", "Bench", "Validate", "Other programs", "This node", "The other node"])
    look_for_secrets(folder, key)
    nothing_left(folder, {"job.key", "r.json", "r.html"}, "the end")
    ok(said[2] == 0 and "0 bad bytes" in said[0], "serve is well", said)
    lab("down")


class Serve:
    def __init__(self, folder):
        (folder / "job.key").write_text(secrets.token_hex(24), encoding="ascii")
        (folder / "job.key").chmod(0o600)
        self.argv = ["--key-file", folder / "job.key"]
        self.p = start([HAWSER, "serve", "--port", "0", "--bind", "127.0.0.1", *self.argv], folder)
        while not (m := re.match(r"  hawser bench (127\.0\.0\.1:\d+)", self.p.stdout.readline())):
            pass
        self.host = m[1]


def begin(s, folder, part):
    """Starts a fieldtest, and returns 3 s after the given part of the fieldtest has ended."""
    p = start([HAWSER, "fieldtest", s.host, *s.argv, "-t", "120s", "--each", "20s", "-o", "r"], folder)
    said = ""
    while f"{part}\n" not in said and (line := p.stdout.readline()):
        said += line if part not in line else f"{part}\n"
    time.sleep(3)
    return p


def ends():
    with tempfile.TemporaryDirectory() as at:
        folder = pathlib.Path(at)
        s = Serve(folder)
        p = begin(s, folder, "validate")
        s.p.kill()
        s.p.communicate()
        out, err, code = finish(p)
        d = read(folder)
        ok(code == 1 and not d["complete"] and "incomplete" in out, "a peer that dies: the result is incomplete", out, err)
        ok(any("no longer answers" in x for x in d["problems"]) and len(d["problems"]) == 2, "which says why, once", d["problems"])
        ok(d["validate"] and len(d["parts"]) == 6 and d["seconds"] < 110, "and has what was measured", d["parts"])
        nothing_left(folder, {"job.key", "r.json", "r.html"}, "a peer that dies")
    for number in (signal.SIGINT, signal.SIGTERM):
        with tempfile.TemporaryDirectory() as at:
            folder = pathlib.Path(at)
            s = Serve(folder)
            p = begin(s, folder, "validate")
            p.send_signal(number)
            out, err, code = finish(p)
            d = read(folder)
            ok(code == 128 + number and "interrupted" in err and not d["complete"], f"{number.name}: incomplete", out, err)
            ok(all(b["ended_early"] for b in d["bench"]) and not d["problems"], "with what there was of the measurement", d["bench"], d["problems"])
            s.p.send_signal(signal.SIGINT)
            ok("0 lost" in finish(s.p)[0], "the peer has seen all leave")
            nothing_left(folder, {"job.key", "r.json", "r.html"}, number.name)
    with tempfile.TemporaryDirectory() as at:
        folder = pathlib.Path(at)
        for argv, want, why in ((["127.0.0.1:1"], 1, "hawser serve"), (["127.0.0.1:1", "-o", "no/such/folder/x"], 1, "no/such/folder/x.json"), ([], 2, "HOST is missing"),
                                (["a", "b"], 2, "unexpected argument"), (["127.0.0.1", "-t", "1s"], 2, "duration")):
            out, err, code = finish(start([HAWSER, "fieldtest", *argv], folder))
            ok(code == want and why in err, f"refused: {' '.join(argv)}", out, err)
        nothing_left(folder, set(), "refused")


def docs():
    keys = set().union(*(list_keys(json.loads(p.read_text(encoding="utf-8"))) for p in (ROOT / "docs/field").glob("*.json")))
    known = documented_keys()
    ok(keys and not {k for k in keys if not is_documented(k, known)}, "every key of the results is documented", {k for k in keys if not is_documented(k, known)})
    rest = {k for k in known if not any(is_documented(x, {k}) for x in keys)}
    # the lab has no GPUs, and an empty list has no keys
    may = {"findings[]", "problems[]", *(k for k in known if "gpus" in k or "checks" in k or ("rivals[].rows" in k))}
    ok(not rest - may, "and every documented key is there", rest - may)
    table = subprocess.run([ROOT / "scripts/field_table.py", "--check"], check=False, timeout=30)
    ok(table.returncode == 0, "the table is what scripts/field_table.py makes")


def main():
    if PART == "whole":
        with tempfile.TemporaryDirectory() as at, tempfile.TemporaryDirectory() as tools:
            try:
                whole(pathlib.Path(at), *make_python(pathlib.Path(tools)))
            finally:
                subprocess.run([HAWSER, "lab", "down", "--name", LAB], check=False, capture_output=True)
    elif PART == "ends":
        ends()
    else:
        docs()
    return done()


if __name__ == "__main__":
    sys.exit(main())
