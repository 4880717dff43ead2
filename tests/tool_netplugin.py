#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hawser bench` and `validate --transport netplugin:PLUGIN` on loopback, over the plugins of tests/plugins and our own (TAP).
Usage: tool_netplugin.py HAWSER PLAIN TCPXLIKE RUDE OURS"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

HAWSER, PLAIN, TCPX, RUDE, OURS = [str(pathlib.Path(x).resolve()) for x in sys.argv[1:]]
count = failed = 0


def ok(good, what, more=()):
    global count, failed
    count += 1
    failed += not good
    print(f"{'' if good else 'not '}ok {count} - {what}")
    if not good:
        print("".join(f"# {line}\n" for line in str(more).replace("\\n", "\n").splitlines()), end="")
    sys.stdout.flush()


def by(plugin):
    return ["--transport", f"netplugin:{plugin}"]


class Serve:
    def __init__(self, *argv, **env):
        self.p = subprocess.Popen([HAWSER, "serve", "--port", "0", *argv], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.DEVNULL, env={**os.environ, **env})
        self.host = None
        while self.host is None:
            line = self.p.stdout.readline()
            if not line:
                raise SystemExit("Bail out! serve ended")
            m = re.match(r"  hawser bench (127\.0\.0\.1:\d+)", line)
            self.host = m and m[1]

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        try:
            return self.p.communicate(timeout=20)[0], self.p.returncode
        except subprocess.TimeoutExpired:
            self.p.kill()
            return self.p.communicate()[0] + "(killed by the test)", self.p.returncode


def run(what, s, *argv, timeout=80, **env):
    t = time.monotonic()
    r = subprocess.run([HAWSER, what, s.host, *map(str, argv)], capture_output=True, text=True, timeout=timeout,
                       env={**os.environ, **env})
    r.seconds = time.monotonic() - t
    return r


def verified(r, sizes, iters):
    rows = [json.loads(x) for x in r.stdout.splitlines()] if r.stdout.startswith("{") else []
    return r.returncode == 0 and [x["size"] for x in rows] == sizes and all(
        x["bad_bytes"] == 0 and x["lost_channels"] == 0 and x["verified_bytes"] == iters * x["size"] for x in rows)


def works(plugin, name, **env):
    s = Serve(*by(plugin), **env)
    r = run("validate", s, *by(plugin), **env)
    ok(r.returncode == 0 and r.stdout.endswith("Success: 4 / 4\n"), f"{name}: validate", r)
    sizes = [0, 1, 8193, 100003, 1 << 20, (8 << 20) + 5]
    for op in "write", "read", "send":
        r = run("bench", s, *by(plugin), "--op", op, "--size", ",".join(map(str, sizes)), "--iters", 12, "--json", "-", **env)
        ok(verified(r, sizes, 12), f"{name}: {op}, every byte verified", r)
    out, rc = s.stop()
    ok(rc == 0 and " 0 bad bytes" in out, f"{name}: serve ends well", out)


def manager(folder):
    """What GPUDirect-TCPX looks for: the sockets of its manager."""
    held = []
    for n in "rx_rule_manager", "rx_rule_uninstall":
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].bind(f"{folder}/{n}")
        held[-1].listen(5)
    return held


def main():
    tmp = pathlib.Path(tempfile.mkdtemp())
    held = manager(tmp)
    tcpx = {"TCPXLIKE_LOOPBACK": "1", "NCCL_DYNAMIC_CHUNK_SIZE": "524288",
            "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": str(tmp)}
    works(PLAIN, "plain")
    works(TCPX, "like TCPX", **tcpx)
    works(OURS, "our own")

    s = Serve(*by(PLAIN))
    r = run("validate", s, "--channels", 2)
    ok(r.returncode == 1 and "both sides must have the same knob transport" in r.stderr, "one side alone: the reason is told", r)
    r = run("validate", s, *by(tmp / "nosuch.so"))
    ok(r.returncode == 1 and "nosuch.so" in r.stderr and "No such file" in r.stderr, "no such plugin", r)
    r = run("validate", s, "--transport", "rdma")
    ok(r.returncode != 0 and '"rdma" is neither tcp nor netplugin:PLUGIN' in r.stderr, "no such transport", r)
    env = {k: v for k, v in tcpx.items() if k != "NCCL_DYNAMIC_CHUNK_SIZE"}
    r = run("validate", s, *by(TCPX), **env)
    ok(r.returncode == 1 and "NCCL_DYNAMIC_CHUNK_SIZE is not set" in r.stderr and "=524288" in r.stderr,
       "what TCPX needs is checked before it is loaded, and explained", r)
    for way, words in ("init-crash", "SIGSEGV"), ("init-exit", "exited"), ("init-fail", "init"), ("devices=0", "device"):
        r = run("validate", s, *by(RUDE), RUDE=way)
        ok(r.returncode == 1 and words in r.stderr and r.seconds < 60, f"a plugin with {way}: an error that says {words}", r)
    ok(s.stop()[1] == 0, "serve outlives them")

    s = Serve(*by(TCPX), **tcpx)
    for fault, words in ("exit@40", "exited with status 1"), ("die@40", "killed by"), ("error@40", "the plugin gave"):
        r = run("validate", s, *by(TCPX), "--channels", 2, "--timeout", "10s", **tcpx, TCPXLIKE_FAULT=fault)
        ok(r.returncode == 1 and words in r.stderr and r.seconds < 60, f"{fault} in the middle: {words}", r)
    # The last of the eight chunks of a round fails when all are the plugin's: nothing more is to be sent that would tell.
    r = run("validate", s, *by(TCPX), "--channels", 1, "--timeout", "10s", **tcpx, TCPXLIKE_FAULT="error@8:send")
    ok(r.returncode == 1 and "the plugin gave" in r.stderr and "channel 0 is up again" in r.stderr,
       "a send that fails as the last one: the channel is made anew", r)
    r = run("validate", s, *by(TCPX), "--channels", 2, **tcpx)
    ok(r.returncode == 0 and r.stdout.endswith("Success: 2 / 2\n"), "and the other side goes on with others", r)
    ok(s.stop()[1] == 0, "to its end")
    del held
    print(f"1..{count}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
