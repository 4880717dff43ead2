# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the binding: a deadline, pairs of contexts, other processes, and TAP output for
scripts/summary.py."""
import faulthandler
import os
import pathlib
import subprocess
import sys
import time

import pytest

import hawser

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT = 50  # seconds for a wait in a test; generous, because the machine may be busy
TEST_LIMIT = 100  # seconds for a test; then the stacks of all threads are printed and the process exits

reports = []


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        reports.append(report)


def pytest_collectreport(report):
    if report.outcome != "passed":
        reports.append(report)


def pytest_unconfigure(config):
    if not os.environ.get("HAWSER_TAP"):
        return
    print()
    for n, r in enumerate(reports, 1):
        reason = r.longrepr[2] if r.skipped and isinstance(r.longrepr, tuple) else ""
        name = r.nodeid.replace("#", " ").replace("\n", " ")
        print(f"{'not ' if r.failed else ''}ok {n} - {name}{f' # SKIP {reason}' if r.skipped else ''}")
    print(f"1..{len(reports)}", flush=True)


@pytest.fixture(autouse=True)
def deadline():
    faulthandler.dump_traceback_later(TEST_LIMIT, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


def connect(listener, other):
    """Returns the two peers of a new connection: first the listener's, then the connecting side's."""
    port = getattr(listener, "test_port", None)
    if port is None:
        port = listener.test_port = listener.listen("127.0.0.1")
    to_listener = other.connect("127.0.0.1", port, timeout=LIMIT)
    return listener.accept(LIMIT), to_listener


class Pair:
    """Two contexts in this process. b has connected to a."""

    def __init__(self, **options):
        self.a, self.b = hawser.Context(**options), hawser.Context(**options)
        self.to_b, self.to_a = connect(self.a, self.b)

    def memory(self, size):
        """Allocates memory in both contexts. Returns b's memory, a region for b to access a's memory, and a's
        memory."""
        mine, theirs = self.b.alloc(size), self.a.alloc(size)
        return mine, hawser.Region(theirs.export(read=True, write=True)), theirs

    def close(self):
        self.b.close()
        self.a.close()


@pytest.fixture
def pair():
    p = Pair()
    yield p
    p.close()


def wait_until(condition, what):
    """Polls a condition, for events without a file descriptor or handle to wait for."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {LIMIT} s"
        time.sleep(0.001)


def take_notification(peer):
    got = []
    wait_until(lambda: got.append(peer.notification()) or got[-1] is not None, "a notification")
    return got[-1]


def start_python(*arguments, **options):
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
                            cwd=HERE, **options)


class Server:
    """A process that runs server.py, and a peer that is connected to the process."""

    def __init__(self, context, size):
        self.process = start_python("server.py", str(size))
        self.port = int(self.process.stdout.readline())
        self.peer = context.connect("127.0.0.1", self.port, timeout=LIMIT)
        self.region = hawser.Region(take_notification(self.peer))

    def ask(self, words):
        """Sends a command and returns the server's answer."""
        self.peer.notify(words.encode()).wait(LIMIT)
        return take_notification(self.peer)

    def stop(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def context():
    with hawser.Context() as c:
        yield c


@pytest.fixture
def server(context):
    s = Server(context, 1 << 20)
    yield s
    s.stop()
