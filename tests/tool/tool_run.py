#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the `hawser` command from a user's perspective, on loopback (TAP). Usage: tool_run.py HAWSER"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from serving import HAWSER, Serve, run  # noqa: E402
from tap import done, ok  # noqa: E402

KEYS = ("schema op mem size iters channels nics GBps p50_us p99_us p999_us cpu_s_per_GB peer_cpu_s_per_GB "
        "verified_bytes bad_bytes raw_GBps ratio_raw per_nic paths per_channel lost_channels").split()


def usage():
    for argv in ["help"], ["--help"], ["help", "bench"], ["serve", "--help"], ["help", "validate"], ["help", "knobs"], \
            ["demo", "-h"], ["doctor", "--list"], ["--version"]:
        r = run(*argv)
        ok(r.returncode == 0 and r.stdout and not r.stderr, f"`{' '.join(argv)}` prints to stdout, exit 0", r)
    wrong = {"bensh": "did you mean 'bench'", "bench --chnnels 1 x": "did you mean '--channels'",
             "lab upp": "did you mean 'up'", "sandbox move i --rdma yas": "did you mean 'yes'",
             "bench": "HOST is missing", "bench a b": "unexpected argument",
             "bench --op fly x": "fly", "bench --size 12Q x": "12Q", "bench --frobnicate x": "--frobnicate",
             "bench --depth": "needs a value", "bench x:70000": "70000", "bench --nics a,,b x": "a,,b",
             "bench --iters -1 x": "-1", "bench --knob windoo=1 x": "window", "bench --window 1 x": "window", "bench --knob chunk=1MiB x": "was removed",
             "bench --peer-nics a x": "--nics", "bench --iters 1 --duration 1 x": "cannot be combined", "serve --port 65536": "65536",
             "serve --bind here": "here", "validate --channels 17 x": "--channels: '17' is not a whole number from 1 to 16", "validate --size 1 x": "'1'", "demo x": "x",
             "doctor a b": "unexpected argument", "doctor --only nic,cats": "'cats'", "doctor --only pair": "HOST",
             "doctor x:0": "x:0", "doctor --reverse-port 22 x": "22"}
    for argv, said in wrong.items():
        r = run(*argv.split())
        ok(r.returncode == 2 and said in r.stderr and not r.stdout, f"`{argv}`: exit 2, says {said}", r)
    r = run()
    ok(r.returncode == 2 and "serve" in r.stderr, "no command: the list on stderr, exit 2", r)
    r = run("bench", "127.0.0.1:1")
    ok(r.returncode == 1 and "127.0.0.1" in r.stderr and "refused" in r.stderr, "nobody listens: exit 1 and why", r)


def measurements(tmp):
    s = Serve("--max-memory", "300MiB")
    out, html = tmp / "out.jsonl", tmp / "out.html"
    r = run("bench", s.host, "--size", "0,1,65537,1MiB", "--iters", "40", "--json", out, "--report", html)
    rows = [json.loads(x) for x in out.read_text().splitlines()]
    ok(r.returncode == 0 and [x["size"] for x in rows] == [0, 1, 65537, 1 << 20], "bench of sizes 0, 1, 65537 and 1 MiB", r)
    ok(all(list(x)[:len(KEYS)] == KEYS for x in rows), "the keys of each JSON line", [list(x) for x in rows])
    ok(all(x["bad_bytes"] == 0 and x["verified_bytes"] == 40 * x["size"] and x["iters"] == 40 for x in rows),
       "every byte of every iteration is checked (the warm-up's are not counted)", rows)
    last = rows[-1]
    nic = last["per_nic"][0]
    ok(last["schema"] == "hawser-bench-1" and last["mem"] == "host" and last["nics"] == "lo" and last["channels"] == 4,
       "what was measured stands in the line", last)
    ok(nic["tx_bytes"] >= 40 << 20 and nic["kernel_tx_bytes"] >= nic["tx_bytes"], "our bytes and the kernel's", nic)
    ok(0 < last["p50_us"] <= last["p99_us"] <= last["p999_us"] and last["GBps"] > 0 and last["cpu_s_per_GB"] > 0 and
       last["raw_GBps"] is None and rows[0]["cpu_s_per_GB"] is None, "numbers where there are some, else null", last)
    ok("<svg" in html.read_text(), "a report")
    for op in "read", "send", "pingpong":
        r = run("bench", s.host, "--op", op, "--size", "0,1,70000", "--iters", "60", "--json", "-")
        rows = [json.loads(x) for x in r.stdout.splitlines()]
        ok(r.returncode == 0 and len(rows) == 3 and all(x["op"] == op and x["bad_bytes"] == 0 and
           x["verified_bytes"] == 60 * x["size"] for x in rows), f"{op}, checked; JSON alone on stdout", r)
    r = run("bench", s.host, "--size", "1MiB", "--iters", "64", "--compare-raw", "--json", "-")
    row = json.loads(r.stdout) if r.returncode == 0 else {}
    ok(row.get("raw_GBps", 0) > 0 and row["ratio_raw"] > 0 and row["iters"] == 3 * 64, "beside plain sockets", r)
    ok(row.get("raw_congestion") not in (None, "bbr"), "which have hawser's congestion control", row.get("raw_congestion"))
    r = run("bench", s.host, "--size", "1MiB", "--iters", "8", "--compare-raw", "-K", "congestion=reno")
    ok("plain sockets: reno" in r.stdout, "the one that knob congestion names", r)
    r = run("bench", s.host, "--op", "pingpong", "--iters", "300", "--compare-raw", "--json", "-")
    row = json.loads(r.stdout) if r.returncode == 0 else {}
    ok(row.get("raw_pingpong_spin_us", 0) > 0 and row["raw_pingpong_block_us"] > 0, "ping-pong beside plain sockets", r)
    r = run("bench", s.host, "--size", "64KiB", "--iters", "16", "--rounds", "1", "--compare-raw", "-c", "1,2", "--window", "1MiB")
    ok(r.returncode == 0 and re.search("GB/s raw GB/s +ratio ", r.stdout) and
       len(re.findall(r"^ +[12] +1MiB +64KiB +[0-9.]+ +[0-9.]+ +[0-9.]+ ", r.stdout, re.M)) == 2,
       "plain sockets in the table of a sweep, for each number of channels", r)
    r = run("bench", s.host, "--op", "pingpong", "--iters", "16", "--rounds", "1", "--compare-raw", "-c", "1,2")
    ok(r.returncode == 0 and re.search("p50 us +raw us ", r.stdout) and
       len(re.findall(r"^ +[12] +\S+ +8B? +[0-9.]+ +[0-9.]+ +[0-9.]+ +0 +0$", r.stdout, re.M)) == 2,
       "also of a sweep of ping-pong", r)
    note = "# channels 20: each pair of NICs has 16 channels, with 2 connections each,\n#   because a peer has at most 16 channels\n"
    for more in ["-c", "20"], ["-c", "1,20"], ["-K", "channels=20"], ["-c", "20", "--bidir"]:
        r = run("bench", s.host, "--size", "64KiB", "--iters", "8", *more)
        ok(r.returncode == 0 and r.stdout.count("# channels") == 1 and note in r.stdout, f"more channels than a peer has: {' '.join(more)}", r)
    r = run("bench", s.host, "--size", "64KiB", "--iters", "8", "-c", "16")
    ok(r.returncode == 0 and "# channels" not in r.stdout, "as many as a peer has: no such line", r)
    for op in "write", "send":
        r = run("bench", s.host, "--op", op, "--size", "256KiB", "--duration", "300ms", "--json", "-")
        row = json.loads(r.stdout) if r.returncode == 0 else {}
        ok(0.25 < row.get("seconds", 0) < 5 and row["bad_bytes"] == 0, f"{op} for a duration", r)
    r = run("bench", s.host, "--size", "1GiB")
    ok(r.returncode == 1 and "but --max-memory there leaves" in r.stderr, "more memory than serve gives: exit 1 and why", r)
    r = run("bench", s.host, "--nics", "nosuch0")
    ok(r.returncode == 1 and "nosuch0" in r.stderr, "an unknown NIC: exit 1 and its name", r)
    r = run("validate", s.host, "--size", "1MiB")
    ok(r.returncode == 0 and r.stdout.endswith("Success: 4 / 4\n") and len(re.findall(r"^channel .* OK$", r.stdout, re.M)) == 4,
       "validate: a line per channel and `Success: 4 / 4`", (r, s.alive()))
    r = run("validate", s.host, "--size", "64KiB", "--channels", "16")
    ok(r.returncode == 0 and r.stdout.endswith("Success: 16 / 16\n"), "validate: as many channels as it accepts", (r, s.alive()))
    two = [subprocess.Popen([HAWSER, "bench", s.host, "--op", op, "--size", "256KiB", "--iters", "500"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for op in ("write", "send")]
    said = [p.communicate(timeout=60)[1] for p in two]
    ok([p.returncode for p in two] == [0, 0], "two clients at once", (said, s.alive()))
    ok(s.stop() == 0 and re.search(r"^\d+ clients .* 0 bad bytes", s.said, re.M), "SIGINT ends serve with a summary", s.said)


def devmem():
    r = run("devmem", "status", "--json")
    nics = json.loads(r.stdout)["nics"]
    ok(r.returncode == 0 and all(n["header_split"] != "auto" for n in nics if n["receive"] == "no"),
       "devmem status: header split is automatic only if the driver can have it", nics)


def unknown_nic():
    for name, guess in ("l0", " (did you mean lo?)"), ("nosuch0", ""):
        s = Serve("-K", f"nics=lo,{name}")
        s.stop()
        s.errors.seek(0)
        said = s.errors.read()
        ok(said == f'hawser: warning: knob nics: no NIC of this machine is named "{name}"{guess}; peers cannot use it yet\n',
           f"serve with the unknown NIC {name}: a warning at the start", said)


def doctor():
    r = run("doctor", "--json")
    said = json.loads(r.stdout)
    ok(r.returncode == (1 if said["failed"] else 0) and said["schema"] == "hawser-doctor-1" and
       len({c["group"] for c in said["checks"]}) == 6 and
       all(c["mend"] and c["why"] for c in said["checks"] if c["outcome"] in ("WARN", "FAIL")),
       "doctor of this machine, whatever it finds", r)
    r = run("doctor", "--only", "limits,kernel")
    ok(set(re.findall(r"^[A-Z]{4}  (\w+)\.", r.stdout, re.M)) == {"kernel", "limits"} and "\033" not in r.stdout,
       "two groups alone, no colours in a pipe", r)
    s = Serve()
    r = run("doctor", s.host, "--json")
    said = {c["id"]: c for c in json.loads(r.stdout)["checks"]}
    ok(said["pair.machine"]["outcome"] in ("WARN", "FAIL") and said["pair.session"]["outcome"] == "PASS" and
       said["pair.version"]["outcome"] == "PASS" and said["pair.clock"]["outcome"] == "PASS",
       "doctor of a pair that is one machine says so", r)
    s.stop()
    r = run("doctor", s.host)
    ok(r.returncode == 1 and re.search(r"^FAIL  pair.session .*refused", r.stdout, re.M) and "hawser serve" in r.stdout,
       "nobody there: exit 1, and what to start", r)


def clients_die():
    s = Serve()
    run("bench", s.host, "--size", "1MiB", "--iters", "4")
    time.sleep(1)
    before = s.fds()
    for i, op in enumerate(["write", "read", "send", "pingpong"] * 2):
        p = subprocess.Popen([HAWSER, "bench", s.host, "--op", op, "--size", "256KiB", "--duration", "20s"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.1 + 0.07 * i)
        p.kill()
        p.wait()
    r = run("bench", s.host, "--size", "1MiB", "--iters", "4")
    ok(r.returncode == 0, "after eight clients killed at any point the next is served", (r, s.alive()))
    deadline = time.monotonic() + 25  # the default peer_timeout_ms of the library is 10 s
    while s.fds() > before and time.monotonic() < deadline:
        time.sleep(0.2)
    ok(s.fds() <= before, "and no descriptor is left of them", f"{s.fds()} now, {before} before")
    ok(s.stop() == 0, "serve ends well", s.said)


def keys(tmp):
    key, other = tmp / "key", tmp / "other"
    for f, text in (key, "0123456789abcdef0123456789abcdef\n"), (other, "fedcba9876543210fedcba9876543210\n"):
        f.write_text(text)
        f.chmod(0o600)
    s = Serve("--key-file", key)
    ok(s.rest == ["--key-file", str(key)], "the command to type names the key file", s.said)
    ok(run("bench", s.host, "--key-file", key, "--iters", "2", "--size", "1KiB").returncode == 0, "the right key")
    for what, argv in ("another key", ["--key-file", other]), ("no key", []):
        r = run("bench", s.host, *argv)
        ok(r.returncode == 1 and r.stderr, f"{what}: exit 1 and why", r)
    other.chmod(0o644)
    r = run("bench", s.host, "--key-file", other)
    ok(r.returncode == 1 and "0644" in r.stderr, "a key file that everyone can read is refused", r)
    s.stop()
    said = subprocess.run(["timeout", "-s", "INT", "2", HAWSER, "serve", "--port", "0", "--key-file", key], stdout=subprocess.PIPE, text=True).stdout
    hosts = re.findall(r"^  hawser bench (\S+)", said, re.M)
    own = [h for h in hosts if re.match(r"127\.|\[::1\]", h)]
    ok(hosts and (own == hosts and "On this node run one of\n" in said or not own and "On the other node run one of\n" in said),
       "serve prints loopback addresses only if there are no others", said)
    s = Serve("--once")
    run("bench", s.host, "--iters", "2", "--size", "1KiB")
    ok(s.wait() == 0 and "1 client " in s.said, "--once ends after one client", s.said)


with tempfile.TemporaryDirectory() as d:
    usage()
    measurements(pathlib.Path(d))
    devmem()
    unknown_nic()
    doctor()
    clients_die()
    keys(pathlib.Path(d))
sys.exit(done())
