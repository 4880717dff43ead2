#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the signals of `hawser verbs agent`: SIGHUP reloads the policy, SIGUSR1 ends only the agent, and SIGTERM ends
the agent and all brokers. Prints TAP. test_verbs_agent_life tests the effect on brokers.
Usage: verbs_signals.py HAWSER"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from oci_help import skip_all  # noqa: E402
from sandbox_help import done, ok  # noqa: E402

HAWSER = os.path.abspath(sys.argv[1])
SECONDS = 60
POLICY = "[default]\ndevices = *\n[container tenants]\n"


class Agent:
    def __init__(self, tmp, stack, *more):
        self.log = tmp / "agent.log"
        self.policy = tmp / "policy"
        with open(self.log, "w") as log:
            self.p = subprocess.Popen([HAWSER, "verbs", "agent", "--policy", self.policy, "--socket", tmp / "agent.sock", "--state-dir",
                                       tmp / "state", *more], stderr=log, stdout=log)
        stack.callback(self.p.wait)
        stack.callback(self.p.kill)

    def said(self, what, n=1):
        """Waits until the log contains the text at least n times. Returns True if the final count is exactly n."""
        end = time.monotonic() + SECONDS
        while self.log.read_text().count(what) < n and time.monotonic() < end:
            time.sleep(0.01)
        return self.log.read_text().count(what) == n

    def ends(self, sig):
        self.p.send_signal(sig)
        return self.p.wait(SECONDS)


def work(tmp, stack):
    policy, sock = tmp / "policy", tmp / "agent.sock"
    policy.write_text(POLICY)
    a = Agent(tmp, stack)
    ok(a.said("listening on"), "an agent", a.log.read_text())
    policy.write_text(POLICY + "nosuch = 1\n")
    a.p.send_signal(signal.SIGHUP)
    ok(a.said("the old policy stays in use: ") and "line 4: unknown key 'nosuch'" in a.log.read_text(),
       "SIGHUP, and a policy with an error: a line says where", a.log.read_text())
    policy.write_text(POLICY)
    for n in 1, 2:
        a.p.send_signal(signal.SIGHUP)
        ok(a.said("for containers that start from now on", n), "SIGHUP, and one that is right", a.log.read_text())
    ok(a.ends(signal.SIGUSR1) == 0 and a.said("brokers that continue") and not sock.exists(), "SIGUSR1 ends it alone", a.log.read_text())
    a = Agent(tmp, stack, "--container", "tenants")
    ok(a.said("listening on"), "one for a section", a.log.read_text())
    policy.write_text("[default]\n")
    a.p.send_signal(signal.SIGHUP)
    ok(a.said("has no section [container tenants]"), "which a new policy must have", a.log.read_text())
    ok(a.ends(signal.SIGTERM) == 0 and a.said("brokers that continue", 0) and not sock.exists(), "SIGTERM ends all", a.log.read_text())
    a = Agent(tmp, stack, "--container", "tenants")
    ok(a.p.wait(SECONDS) == 1 and a.said("no section for a container 'tenants'"), "and it does not begin without it", a.log.read_text())


def main():
    if os.geteuid() != 0:
        skip_all("it takes root")
    with tempfile.TemporaryDirectory(prefix="hawser-signals-") as d, contextlib.ExitStack() as stack:
        work(pathlib.Path(d), stack)
    return done()


if __name__ == "__main__":
    sys.exit(main())
