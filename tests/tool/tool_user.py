#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the output of the `hawser` command: one line for each event, results even after a signal, and reports (TAP).
Usage: tool_user.py HAWSER"""
import json
import os
import pathlib
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import HAWSER, Serve, run  # noqa: E402
from tap import done, ok  # noqa: E402


def start(*argv):
    return subprocess.Popen([HAWSER, *map(str, argv)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def interrupt(p, when, number=signal.SIGINT):
    """Sends a signal to the process when a line of its standard output matches. Returns the process's output."""
    text = ""
    while not re.search(when, text, re.M):
        line = p.stdout.readline()
        text += line
        if not line:
            break
    p.send_signal(number)
    out, err = p.communicate(timeout=30)
    return text + out, err


def errors_of(s):
    s.errors.seek(0)
    return s.errors.read()


def peer_dies(tmp):
    s, out = Serve(), tmp / "killed.jsonl"
    p = start("bench", s.host, "--size", "1MiB", "--duration", "60s", "--json", out, "-i", "100ms")
    while "0.00 to" not in p.stdout.readline():
        pass
    s.p.kill()
    said = p.communicate(timeout=60)
    lines = said[1].splitlines()
    ok(p.returncode == 1 and len(lines) == 1 and "lost" in lines[0], "a server that is killed: one line", said)
    row = json.loads(out.read_text())
    ok(row["iters"] > 0 and row["ended_early"] and re.search("^ +1MiB ", said[0], re.M), "and what was measured before", (row, said))


def strangers():
    s = Serve()
    host, port = s.host.split(":")
    for _ in range(30):
        socket.create_connection((host, int(port))).close()
    r = run("bench", s.host, "--iters", "2", "--size", "1KiB")
    ok(r.returncode == 0 and s.stop() == 0 and errors_of(s) == "",
       "connections that say nothing, as of doctor and health checks, are no warning", errors_of(s))


def interrupted(tmp):
    s = Serve()
    for op in "write", "read", "send", "pingpong":
        out = tmp / f"{op}.jsonl"
        p = start("bench", s.host, "--op", op, "--size", "64KiB", "--duration", "60s", "--json", out, "--report", tmp / "r.html",
                  "-i", "100ms")
        said = interrupt(p, "^# +0.00 to")
        row = json.loads(out.read_text())
        ok(p.returncode == 130 and re.search("^ +64KiB +[0-9]", said[0], re.M) and
           re.fullmatch("hawser bench: interrupted: .*\n", said[1]), f"{op}, interrupted: the row, one line, status 130", said)
        ok(0 < row["iters"] and row["verified_bytes"] == row["iters"] * row["size"] and row["bad_bytes"] == 0 and
           row["ended_early"] == "interrupted" and "<svg" in (tmp / "r.html").read_text(),
           "all of it checked, in the JSON line and the report", row)
    p = start("bench", s.host, "--size", "1MiB", "--duration", "60s", "--compare-raw", "-i", "100ms")
    said = interrupt(p, "^# +0.00 to", signal.SIGTERM)
    ok(p.returncode == 143 and re.search("^ +1MiB ", said[0], re.M), "SIGTERM beside plain sockets: the row, status 143", said)
    out = tmp / "sweep.jsonl"
    p = start("bench", s.host, "--size", "64KiB", "--duration", "1s", "--channels", ",".join("1234" * 4), "--json", out)
    said = interrupt(p, "^ +1 .* 64KiB")
    ok(p.returncode == 130 and "# 64KiB: best at" in said[0] and said[1].count("\n") == 1 and out.read_text(),
       "a sweep, interrupted: the combinations so far", said)
    p = start("validate", s.host, "--size", "256MiB", "--channels", "8", "--timeout", "300s")
    said = interrupt(p, "^# 8 channels")
    ok(p.returncode == 130 and re.search("^Success: [0-8] / 8$", said[0], re.M) and "FAILED" not in said[0] and
       re.fullmatch("hawser validate: interrupted: .*\n", said[1]), "validate, interrupted: what rounds proved", said)
    ok(s.stop() == 0 and "lost: " not in s.said, "no client was lost by that", s.said)


def errors(tmp):
    for command in "bench", "validate", "drill":
        r = run(command, "127.0.0.1:1")
        ok(r.returncode == 1 and "Connection refused: no server, such as `hawser serve`, listens on this address and port" in r.stderr and
           r.stderr.count("connecting") == 1, f"{command}: nobody listens, and what to do", r)
    for argv, said in {"bench x --iters 5x": "--iters: '5x'", "bench x --duration 5y": "--duration: '5y'", "bench x -c 4,99": "--channels: '99'",
                       "bench x --pe": "option '--pe' is ambiguous", "bench x --size 12Q": "--size: '12Q'", "bench x --knob windwo=1": "did you mean 'window'",
                       "bench x --knob frobnicate=1": "`hawser help knobs`", "lab lst": "did you mean 'list'",
                       "sevre": "did you mean 'serve'", "help knob": "did you mean 'knobs'", "bench x --itres 5": "did you mean '--iters'"}.items():
        r = run(*argv.split())
        ok(r.returncode == 2 and said in r.stderr, f"`{argv}`: {said}", r)
    s = Serve()
    port = s.host.split(":")[1]
    for argv, said in {f"serve --bind 127.0.0.1 --port {port}": "choose a different one with --port", "trace -o /dev/null /no/such/program": "No such file",
                       "lab link a eth0 down --name nosuchlab": "no lab 'nosuchlab'"}.items():
        r = run(*argv.split())
        ok(r.returncode == 1 and said in r.stderr and r.stderr.count("\n") == 1, f"`{argv}`: {said}", r)
    s.stop()
    for argv in "lab ls", "frobnicate", "bench x --frobnicate", "bench x --knob frobnicate=1":
        r = run(*argv.split())
        ok(r.returncode == 2 and "did you mean" not in r.stderr, f"`{argv}`: nothing is near, so nothing is guessed", r)
    r = run("bench", "127.0.0.1:1", env={**os.environ, "HAWSER_CHANELS": "4", "HAWSER_NCCL_TUNE": "1", "HAWSER_CHANNELS": "4"})
    ok("HAWSER_CHANELS is set, but is not a knob; did you mean HAWSER_CHANNELS?" in r.stderr and r.stderr.count("did you mean") == 1,
       "a variable that is nearly a knob's", r)
    r = run("help", "nccl", "bench")
    ok(r.returncode == 0 and r.stdout.startswith("Usage: hawser nccl bench"), "help of an action", r)
    reader, writer = os.pipe()
    os.close(reader)
    r = subprocess.run([HAWSER, "help", "knobs"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=30)
    os.close(writer)
    ok(r.returncode in (141, -13) and "writing" not in r.stderr, "a reader that has gone is no error of the output", r)
    r = subprocess.run([HAWSER, "help"], stdout=open("/dev/full", "w"), stderr=subprocess.PIPE, text=True)
    ok(r.returncode == 1 and "No space left on device" in r.stderr, "a full disk is", r)
    for what in "bench", "drill":
        r = run(what, "127.0.0.1:1", "--report", tmp / "none" / "x.html")
        ok(r.returncode == 1 and r.stderr == f"hawser {what}: writing {tmp}/none/x.html: No such file or directory\n",
           f"{what} --report: the file that cannot be written, before anything is measured", r)
        r = run(what, "127.0.0.1:1", "--report", tmp / "x.html")
        ok(r.returncode == 1 and not list(tmp.glob("x.html*")), "no report of nothing", (r, list(tmp.glob("x.html*"))))
    s = Serve()
    r = run("bench", s.host, "--iters", "4", "--size", "64KiB", "--report", tmp / "x.html")
    ok(r.returncode == 0 and r.stdout.endswith(f"\nReport: {tmp}/x.html\n") and [x.name for x in tmp.glob("x.*")] == ["x.html"],
       "--report names the one file that it wrote", (r, list(tmp.glob("x.*"))))
    s.stop()
    for argv in ["topo", "--from"], ["trace", "--show"], ["sandbox", "plan", "--from"], ["verbs", "run", "--policy"]:
        more = ["--", "true"] if argv[0] == "verbs" else []
        r = run(*argv, tmp / "none", *more)
        ok("No such file or directory" in r.stderr and "ENOENT" not in r.stderr, f"{' '.join(argv)}: errno in words", r)


def explains_itself(page, title, argv):
    """Returns the elements missing from a report. A report names the run, explains its columns, needs no other files,
    and has styles for dark mode, narrow screens and print."""
    text = page.read_text()
    heads = {h for h in re.findall(r"<th(?: [^>]*)?>(.*?)</th>", text) if h}
    cells = {h.replace("-<br>", "").replace("<br>", " ") for h in heads}
    plain = {"Here", "There", "Measurement", "Found", "Why it matters", "Size", "NICs", "Peer&#39;s NIC"}
    told = set(re.findall("<dt>(.*?)</dt>", text))
    return [why for good, why in (
        (f"<h1>{title}</h1>" in text, "title"), (re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}<br>hawser " + re.escape(argv), text), "date and command"),
        (os.uname().release in text and os.uname().nodename in text, "host and kernel"), ("Terminal output" in text, "terminal"),
        (cells - plain <= told, f"columns {cells - plain - told}"), ("prefers-color-scheme:dark" in text and "@media print" in text and
         "max-width:640px" in text and "width=device-width" in text, "media"),
        (not re.search("http|<script|@import|url\\(", text.replace("http request", "")), "self-contained")) if not good]


def reports(tmp):
    s, page = Serve(), tmp / "page.html"
    for argv in ["bench", s.host, "--size", "64KiB,1MiB", "--compare-raw", "--report", page], ["bench", s.host, "--bidir", "--report", page], \
            ["bench", s.host, "--op", "pingpong", "--report", page], ["validate", s.host, "--report", page], \
            ["doctor", s.host, "--report", page], ["drill", s.host, "--duration", "4s", "--report", page], \
            ["doctor", "--only", "kernel,limits", "--report", page]:
        page.unlink(missing_ok=True)
        r = run(*argv)
        lacks = explains_itself(page, f"hawser {argv[0]}", " ".join(map(str, argv))) if page.exists() else "all"
        ok(r.stdout.endswith(f"\nReport: {page}\n") and not lacks, f"{argv[0]}: a report with all that belongs to it", (lacks, r))
        ok("1.0.0" in page.read_text().partition("The run</h2>")[2].partition("There")[2] or "--only" in argv or "--bidir" in argv,
           "and the peer's side", page.read_text()[-1500:])
    s.stop()


def bugreport(tmp):
    secret = "s3cr3t-0123456789abcdef"
    for name in "job.key", ".ssh/id_ed25519", "hawser.key":
        (tmp / name).parent.mkdir(exist_ok=True)
        (tmp / name).write_text(secret + "\n")
    env = {**os.environ, "HOME": str(tmp), "HAWSER_CHANNELS": "7", "HAWSER_KEY": secret, "HAWSER_SECRET_FILE": secret, "NCCL_TOKEN": secret,
           "AWS_SECRET_ACCESS_KEY": secret, "NCCL_SOCKET_IFNAME": secret, "NCCL_NET_PLUGIN": secret, "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": secret}
    texts = []
    for more in [], ["--mask-addresses"], ["--out", tmp / "bug.txt"]:
        r = subprocess.run([os.path.abspath(HAWSER), "bugreport", *more], capture_output=True, text=True, timeout=60, env=env, cwd=tmp)
        text = (tmp / "bug.txt").read_text() if "--out" in more else r.stdout
        texts.append(text)
        ok(r.returncode == 0 and secret not in text + r.stdout + r.stderr and "AWS_SECRET" not in text and "\nNCCL_TOKEN\n" in text and
           "HAWSER_CHANNELS=7" in text, f"bugreport {' '.join(map(str, more))}: no secret of environment or files", r)
    ok(os.uname().release in texts[0] and "hawser doctor" in texts[0] and "passed" in texts[0] and "by gcc" in texts[0] + "by clang",
       "kernel, build and doctor's result", texts[0])
    addresses = set(re.findall(r"inet6? ([0-9a-f.:]+)", subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True).stdout)) - {"127.0.0.1", "::1"}
    ok(not [a for a in addresses if a in texts[1]] and f"host: {os.uname().nodename}" not in texts[1], "--mask-addresses has none of this host's", texts[1])
    r = run("--version")
    ok(re.match(r"hawser \d+\.\d+\.\d+\ncommit: ", r.stdout) and "glibc: built with" in r.stdout, "--version tells how it was built", r)


def progress():
    """Tests the output on a terminal during a measurement."""
    s = Serve()
    for argv in ["bench", s.host, "--size", "1MiB", "--duration", "1s"], ["drill", s.host, "--duration", "4s"]:
        ours, theirs = pty.openpty()
        p = subprocess.Popen([HAWSER, *argv], stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        text = ""
        while True:
            try:
                piece = os.read(ours, 4096).decode()
            except OSError:  # the other end of the terminal is closed
                break
            text += piece
        os.close(ours)
        ok(p.wait(timeout=60) == 0 and re.search(r"\r.*[0-9.]+ of [0-9.]+ s, .*[1-9.]+ GB/s", text), f"{argv[0]}: progress with a rate", text[-500:])
    s.stop()


def list_tables():
    """Yields each command, or command and action, and its --help text."""
    for command in re.findall(r"^  ([a-z-]+) ", run("help").stdout, re.M):
        if command == "help":
            continue
        text = run("help", command).stdout
        actions = re.findall(r"^  ([a-z]+) +\S", text.partition("\nActions:\n")[2], re.M)
        for a in actions:
            yield f"{command} {a}", run(command, a, "--help").stdout
        if not actions:
            yield command, text


def letters():
    meanings = {}
    for where, text in list_tables():
        for letter, name, value in re.findall(r"^  -(\w), --([a-z-]+)( \S+)?  ", text, re.M):
            meanings.setdefault(letter, {}).setdefault((name, bool(value)), []).append(where)
    ok(len(meanings) > 20, "the tables' short options are found", meanings)
    wrong = {k: v for k, v in meanings.items() if len(v) > 1}
    ok(not wrong, "a short option is one and the same option in every command", wrong)


def measures(tmp):
    s, out = Serve(), tmp / "m.jsonl"

    def bench(*argv):
        r = run("bench", s.host, *argv, "--json", out)
        ok(r.returncode == 0 and r.stdout and all(len(x) <= 80 for x in r.stdout.splitlines() if not x.startswith("# not used")),
           f"{' '.join(map(str, argv))}: within 80 columns", r)
        return r.stdout, [json.loads(x) for x in out.read_text().splitlines()]

    text, lines = bench("--size", "8,1MiB", "--iters", 50, "--compare-raw")
    ok(re.search(r"^ +size +ops +GB/s +Gbit/s +ops/s +raw GB/s +ratio", text, re.M) and "waits for the others" in text and
       all(abs(x["Gbps"] - 8 * x["GBps"]) < 1e-9 and x["ops_per_s"] > 0 and 0 < x["mean_us"] <= x["p999_us"] for x in lines),
       "Gbit/s, messages a second, the mean; and what times in flight are", (text, lines))
    text, lines = bench("--size", "64KiB", "--depth", 1)
    ok("waits for the others" not in text and lines[0]["depth"] == 1, "one operation at a time waits for no other", text)
    text, lines = bench("--op", "pingpong", "--iters", 100)
    ok("CPU" not in text and lines[0]["cpu_s_per_GB"] is None and lines[0]["peer_cpu_s_per_GB"] is None and
       re.search(r"^ +size +echoes +echo/s +mean us", text, re.M), "no CPU time per GB of a ping-pong", text)
    for op in "write", "read", "send":
        text, lines = bench("--op", op, "--blocks", "256x4KiB,7x1001", "--iters", 20)
        ok([(x["blocks"], x["size"], x["bad_bytes"], x["verified_bytes"]) for x in lines] ==
           [(256, 1 << 20, 0, 20 << 20), (7, 7007, 0, 140140)] and " 256x4KiB " in text, f"{op} of lists, every byte checked", lines)
    text, lines = bench("--size", "64KiB", "--duration", "1500ms", "--interval", "500ms")
    ticks = re.findall(r"^# +([0-9.]+) to +([0-9.]+) s +\S+ GB/s +\S+ Gbit/s +\S+ ops/s$", text, re.M)
    ok(len(ticks) in (2, 3) and ticks[0][0] == "0.00" and ticks[1][0] == ticks[0][1], "a line each half second", text)
    text, lines = bench("--size", "64KiB", "--duration", "1s", "--interval", "500ms", "--bidir")
    ok([x["op"] for x in lines] == ["write", "read", "bidir"] and lines[2]["sum"] is True and
       all(x["bad_bytes"] == 0 and x["verified_bytes"] == x["iters"] * x["size"] for x in lines) and
       re.search("^both +64KiB ", text, re.M) and "# write" in text, "both directions at once", (text, lines))
    for argv, said in (["--bidir", "--op", "read"], "--op"), (["--blocks", "4"], "1024x64KiB"), (["--blocks", "2x1", "--size", "1"], "--size"), \
            (["--blocks", "2x8", "--op", "pingpong"], "--blocks"):
        r = run("bench", s.host, *argv)
        ok(r.returncode == 2 and said in r.stderr, f"{' '.join(argv)}: wrong usage", r)
    s.stop()


with tempfile.TemporaryDirectory() as d:
    peer_dies(pathlib.Path(d))
    strangers()
    interrupted(pathlib.Path(d))
    errors(pathlib.Path(d))
    letters()
    progress()
    bugreport(pathlib.Path(d))
    reports(pathlib.Path(d))
    measures(pathlib.Path(d))
sys.exit(done())
