# SPDX-License-Identifier: Apache-2.0
"""Tests the NIXL backend with metadata that NIXL stores in etcd (TAP). Run by nixl_run.py."""
import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib

from nixl_agents import WAIT_S, Agent, Peer, error_of
from tap import done, ok

MIB = 1 << 20
SIZE = 16 * MIB
WHOLE = [(0, SIZE)]
NAMESPACE = "/hawser-test"
START_S = 10
SOON_S = 2  # limit for an invalidation to arrive, generous for a busy machine


def encode(key):
    return base64.b64encode(key.encode()).decode()


class Etcd:
    """An etcd server with an empty store. The agents that are created from now on use the server."""

    def __init__(self, folder):
        with socket.socket() as one, socket.socket() as two:
            for s in (one, two):
                s.bind(("127.0.0.1", 0))
            self.url, peers = (f"http://127.0.0.1:{s.getsockname()[1]}" for s in (one, two))
        self.log = os.path.join(folder, "log")
        with open(self.log, "wb") as log:
            # setpriv ends the server with the test, even if the test is killed.
            self.server = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "etcd", "--data-dir", os.path.join(folder, "data"),
                 "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--listen-peer-urls", peers,
                 "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"],
                stdout=log, stderr=subprocess.STDOUT)
        os.environ.update(NIXL_ETCD_ENDPOINTS=self.url, NIXL_ETCD_NAMESPACE=NAMESPACE)

    def post(self, path, name):
        """Calls etcd's JSON interface for all keys of an agent."""
        first = f"{NAMESPACE}/{name}/"
        body = json.dumps({"key": encode(first), "range_end": encode(first[:-1] + "0")})
        with urllib.request.urlopen(f"{self.url}/v3/kv/{path}", body.encode(), timeout=WAIT_S) as answer:
            return json.load(answer)

    def wait(self):
        """Waits until the server answers. Returns whether it does."""
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.server.poll() is None:
            try:
                return "header" in self.post("range", "nobody")
            except OSError:
                time.sleep(0.05)
        return False

    def size(self, name):
        """Returns the number of bytes that are stored for an agent."""
        return sum(len(base64.b64decode(kv.get("value", ""))) for kv in self.post("range", name).get("kvs", []))

    def end(self):
        self.server.kill()
        self.server.wait()


def check_both_ways(a, b, what):
    """Moves data and notifications from a to b and from b to a, and compares every byte."""
    a.buf[:] = 11
    a.buf[::4099] = 200
    want = zlib.crc32(a.buf)
    state = a.move("WRITE", b.name, b.card[1], WHOLE, WHOLE, notif=b"\0there\xff")
    got = b.ask("notes", of=a.name, n=1)["notes"]
    ok(state == "DONE" and got == [b"\0there\xff".hex()] and b.ask("sum")["sum"] == want, f"{what}: written, with a "
       "notification", state, got)
    b.ask("fill", byte=12)
    state = b.ask("move", op="WRITE", to=a.name, base=a.buf.ctypes.data, notif="back")["state"]
    ok(state == "DONE" and a.notes(b.name) == [b"back"] and (a.buf == 12).all(), f"{what}: written back", state)
    b.ask("fill", byte=13)
    state = a.move("READ", b.name, b.card[1], WHOLE, WHOLE)
    ok(state == "DONE" and (a.buf == 13).all(), f"{what}: read", state)


def meet(a, b):
    """Makes both agents send and fetch. Returns whether each knows the other."""
    a.agent.send_local_metadata()
    b.ask("call", method="send_local_metadata", args=[])
    a.agent.fetch_remote_metadata(b.name)
    b.ask("call", method="fetch_remote_metadata", args=[a.name])
    return a.knows(b.name) and b.ask("knows", of=a.name)["knows"]


def check_labels(a):
    """Tests the parts of an agent's metadata under labels of their own."""
    c = Agent("parts", SIZE)
    c.agent.send_partial_agent_metadata(type(c.reg)(c.agent.nixl_mems["DRAM"]), True, ["HAWSER"], label="connection")
    c.agent.send_partial_agent_metadata(c.reg, False, ["HAWSER"], label="blocks")
    a.agent.fetch_remote_metadata("parts", label="connection")
    blocks = a.descs(c.buf.ctypes.data, WHOLE)
    ok(a.knows("parts") and not a.knows("parts", blocks, wait_s=0.2), "a label with the connection alone has no memory")
    a.agent.send_notif("parts", b"first")
    ok(c.notes(a.name) == [b"first"], "but is sufficient for a notification")
    a.agent.fetch_remote_metadata("parts", label="blocks")
    ok(a.knows("parts", blocks), "the second label adds the memory")
    a.buf[:] = 31
    state = a.move("WRITE", "parts", c.buf.ctypes.data, WHOLE, WHOLE)
    ok(state == "DONE" and (c.buf == 31).all(), "and a write to this memory succeeds", state)


def check_late(a):
    a.agent.fetch_remote_metadata("late")
    time.sleep(0.2)
    c = Agent("late", SIZE)
    c.agent.send_local_metadata()
    ok(a.knows("late"), "an agent that starts after its reader is found")
    c.buf[:] = 41
    state = a.move("READ", "late", c.buf.ctypes.data, WHOLE, WHOLE)
    ok(state == "DONE" and (a.buf == 41).all(), "and a read from the agent succeeds", state)


def check_invalidation(a, b, etcd):
    b.ask("call", method="invalidate_local_metadata", args=[])
    ok(not a.knows("b", want=False, wait_s=SOON_S) and etcd.size("b") == 0, "an invalidation removes the metadata from etcd and from the reader")
    error = error_of(lambda: a.move("WRITE", "b", b.card[1], WHOLE, WHOLE))
    ok(error == "nixlNotFoundError", "and the reader refuses a transfer to the agent", error)
    ok(meet(a, b), "the agent sends its metadata again")
    check_both_ways(a, b, "after an invalidation")


def check_invalidation_under_way(a, b, etcd):
    """Deletes the metadata of a stopped agent while a transfer waits for the agent."""
    b.signal(signal.SIGSTOP)
    handles = [a.prepare("WRITE", "b", b.card[1], WHOLE, WHOLE, b"never") for _ in range(4)]
    states = [a.agent.transfer(h) for h in handles]
    etcd.post("deleterange", "b")
    ok(states == ["PROC"] * 4 and not a.knows("b", want=False, wait_s=SOON_S), "metadata is deleted under a transfer",
       states)
    states = [a.finish(h) for h in handles]
    ok(states == ["nixlNotFoundError"] * 4, "and the transfer ends", states)
    errors = [error_of(lambda h=h: a.agent.release_xfer_handle(h)) for h in handles]
    begun = time.monotonic()
    errors.append(error_of(lambda: a.agent.deregister_memory(a.reg)))
    took = time.monotonic() - begun
    ok(errors == [""] * 5 and took < SOON_S, "its memory is deregistered without waiting for the stopped agent", errors, took)
    a.reg = a.agent.register_memory([(a.buf.ctypes.data, SIZE, 0, "")], "DRAM")
    b.signal(signal.SIGCONT)
    b.ask("call", method="remove_remote_agent", args=[a.name])  # a's metadata has changed
    ok(meet(a, b), "the agents meet again")
    check_both_ways(a, b, "after a deletion under way")


def check_return(a, b):
    """Kills an agent. A new process takes the name, and its metadata replaces the old one."""
    b.end()
    b = Peer("b", SIZE)
    b.ask("call", method="send_local_metadata", args=[])
    b.ask("call", method="fetch_remote_metadata", args=[a.name])
    ok(b.ask("knows", of=a.name)["knows"], "a new process with the name of a killed agent fetches metadata")
    state = b.ask("move", op="WRITE", to=a.name, base=a.buf.ctypes.data, notif="new")["state"]
    ok(state == "DONE" and a.notes("b") == [b"new"] and (a.buf == 0).all(), "and writes to the agent that still has the old metadata",
       state)
    state = error_of(lambda: a.move("WRITE", "b", b.card[1], WHOLE, WHOLE) == "DONE" or 1 / 0)
    ok(state != "", "a transfer with the old metadata fails", state)
    error_of(lambda: a.agent.remove_remote_agent("b"))
    a.agent.fetch_remote_metadata("b")
    ok(a.knows("b"), "the new metadata is fetched once the old one is removed")
    check_both_ways(a, b, "after a return")
    return b


def main():
    if not shutil.which("etcd"):
        print("1..0 # SKIP no etcd: install the package etcd-server")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        etcd = Etcd(folder)
        try:
            if not etcd.wait():
                with open(etcd.log, encoding="utf-8", errors="replace") as log:
                    print(f"1..0 # SKIP etcd does not answer: {log.read()[-300:]!r}")
                return 77
            a, b = Agent("a", SIZE), Peer("b", SIZE)
            ok(meet(a, b) and etcd.size("a") > 0, "two processes find one another by their names")
            check_both_ways(a, b, "with complete metadata")
            check_labels(a)
            check_late(a)
            check_invalidation(a, b, etcd)
            check_invalidation_under_way(a, b, etcd)
            b = check_return(a, b)
            b.end()
        finally:
            etcd.end()
    return done()


if __name__ == "__main__":
    sys.exit(main())
