# SPDX-License-Identifier: Apache-2.0
"""Runs `hawser serve` on loopback, and commands that connect to the server, for tests of the tool. argv[1] is the
hawser program."""
import os
import re
import signal
import subprocess
import sys
import tempfile

HAWSER = sys.argv[1]


def run(*argv, timeout=60, env=None):
    return subprocess.run([HAWSER, *map(str, argv)], capture_output=True, text=True, timeout=timeout, env=env)


class Serve:
    """Runs `hawser serve` on a free port; .host is its address for clients on this node, and .rest are the options that
    serve prints for clients."""

    def __init__(self, *argv):
        self.errors = tempfile.TemporaryFile("w+")  # read by alive(); may contain a sanitizer's report
        self.p = subprocess.Popen([HAWSER, "serve", "--port", "0", *map(str, argv)], stdout=subprocess.PIPE, text=True,
                                  stderr=self.errors)
        self.said = ""
        self.host = None
        while self.host is None:
            line = self.p.stdout.readline()
            self.said += line
            if not line:
                raise SystemExit(f"Bail out! serve ended: {self.said}")
            m = re.match(r"  hawser bench \S+:(\d+)(.*)", line)
            if m:
                self.host, self.rest = f"127.0.0.1:{m[1]}", m[2].split()

    def stop(self):
        self.p.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self):
        try:
            self.said += self.p.communicate(timeout=20)[0]
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.said += self.p.communicate()[0] + "\n(killed by the test)"
        return self.p.returncode

    def alive(self):
        """Returns details for a failure message: whether serve is still running, and its last output if it is not."""
        if self.p.poll() is None:
            return "serve: runs"
        self.errors.seek(0)
        return f"serve: ended, {self.p.returncode}: {self.errors.read()[-4000:]}"

    def fds(self):
        return len(os.listdir(f"/proc/{self.p.pid}/fd"))
