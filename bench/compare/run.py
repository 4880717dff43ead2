# SPDX-License-Identifier: Apache-2.0
"""The processes that a comparison starts, and its time limit."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time


class Failure(Exception):
    """The run of a contender has failed, for the reason in the text."""


class Run:
    """The processes to end and the actions to undo at the end of this run, and its time limit."""

    def __init__(self, limit):
        self.end = time.monotonic() + limit
        self.children = []
        self.undo = []
        self.skipped = []

    def left(self):
        return self.end - time.monotonic()

    def skip(self, what, why):
        self.skipped.append({"what": what, "why": why})
        if sys.stderr.isatty():  # all of them are listed at the end
            print(f"\r\033[K# skipped: {what}: {why}", file=sys.stderr, flush=True)

    def call(self, argv, timeout=30, env=None):
        """Runs a command and returns its stdout. Raises Failure if the command fails or exceeds the timeout."""
        timeout = max(1, min(timeout, self.left() + 15))
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, env=dict(os.environ, **(env or {})), start_new_session=True)
        self.children.append(child)
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill(child)
            child.communicate()
            raise Failure(f"{' '.join(argv)}: not done after {timeout:.0f} s") from None
        finally:
            self.children.remove(child)
        if child.returncode:
            lines = (err.strip() or out.strip() or "no output").splitlines()
            raise Failure(f"{lines[-1]} (exit {child.returncode} of {' '.join(argv)})")
        return out

    def spawn(self, argv, env=None, talk=False):
        """Starts a process, which stop() or close() ends, and writes its output to child.log. talk: stdin and stdout
        are pipes, only stderr goes to child.log, and env is the whole environment."""
        log = tempfile.TemporaryFile(mode="w+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": env} if talk else \
            {"stdin": subprocess.DEVNULL, "stdout": log, "env": dict(os.environ, **(env or {}))}
        child = subprocess.Popen(argv, stderr=log, bufsize=0, start_new_session=True,
                                 **pipes)
        child.log = log
        self.children.append(child)
        return child

    @staticmethod
    def kill(child):
        if child.poll() is None:
            try:
                os.killpg(child.pid, signal.SIGKILL)  # the process group has only this session's processes
            except ProcessLookupError:
                pass
        child.wait()

    def stop(self, child):
        self.kill(child)
        self.children.remove(child)
        for f in (child.log, child.stdin, child.stdout):
            if f:
                f.close()

    def close(self):
        for child in list(self.children):
            self.kill(child)
        self.children.clear()
        while self.undo:
            try:
                self.undo.pop()()
            except (Failure, OSError) as e:
                print(f"# cleaning up: {e}", file=sys.stderr)


def wait_listening(child, port, seconds=10):
    """Waits until child, or another process of its network namespace, listens on port."""
    end = time.monotonic() + seconds
    own = os.readlink("/proc/self/ns/net")
    want = re.compile(rf"^\s*\d+: [0-9A-F]+:{port:04X} [0-9A-F]+:0000 0A ", re.M)  # 0A: TCP_LISTEN
    while time.monotonic() < end:
        if child.poll() is not None:
            child.log.seek(0)
            raise Failure(f"server ended with {child.returncode}: {child.log.read().strip()[-300:]}")
        for table in ("tcp", "tcp6"):
            try:
                with open(f"/proc/{child.pid}/net/{table}", encoding="ascii") as f:
                    here = os.readlink(f"/proc/{child.pid}/ns/net") == own  # the child has not joined its node yet
                    if not here and want.search(f.read()):
                        return
            except OSError:
                pass
        time.sleep(0.02)
    raise Failure(f"nothing listens on port {port} after {seconds} s")
