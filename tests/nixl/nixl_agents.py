# SPDX-License-Identifier: Apache-2.0
"""Provides NIXL agents with backend HAWSER for the tests, which nixl_run.py runs with a wheel."""
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

# Versions before 1.4.0 import torch, which these tests do not need.
if importlib.util.find_spec("torch") is None:
    sys.modules["torch"] = types.ModuleType("torch")
    sys.modules["torch"].Tensor = type("Tensor", (), {})
import numpy as np  # noqa: E402

try:
    from nixl_cu12._api import nixl_agent, nixl_agent_config
except ImportError:  # tests/gpu/gather copies this module to a machine with CUDA 13
    from nixl_cu13._api import nixl_agent, nixl_agent_config

WAIT_S = 10


class Agent:
    """An agent with one registered buffer of bytes."""

    def __init__(self, name, size=1 << 20, params=None, **config):
        self.name = name
        self.agent = nixl_agent(name, nixl_agent_config(backends=[], **config))
        self.agent.create_backend("HAWSER", params or {})
        self.kept = {}  # notifications of each agent that notes() has not returned yet
        self.buf = np.zeros(size, np.uint8)
        self.reg = self.agent.register_memory([(self.buf.ctypes.data, size, 0, "")], "DRAM")

    def card(self):
        """Returns the metadata and the buffer's address, which another agent needs."""
        return self.agent.get_agent_metadata(), self.buf.ctypes.data

    def add(self, card):
        return self.agent.add_remote_agent(card[0]).decode()

    def knows(self, remote, descs=None, want=True, wait_s=WAIT_S):
        """Waits until the metadata of a remote agent is there (or, with want False, is gone). Returns whether it is."""
        until = time.monotonic() + wait_s
        while self.agent.check_remote_metadata(remote, descs) != want and time.monotonic() < until:
            time.sleep(0.01)
        return self.agent.check_remote_metadata(remote, descs)

    def descs(self, base, pairs):
        return self.agent.get_xfer_descs([(base + at, n, 0) for at, n in pairs], "DRAM")

    def prepare(self, op, remote, remote_base, local_pairs, remote_pairs, notif=b""):
        return self.agent.initialize_xfer(op, self.descs(self.buf.ctypes.data, local_pairs),
                                          self.descs(remote_base, remote_pairs), remote, notif)

    def finish(self, handle, wait_s=WAIT_S):
        """Polls the transfer until it ends, for at most wait_s seconds. Returns its state or an exception's name."""
        until, state = time.monotonic() + wait_s, "PROC"
        while state == "PROC" and time.monotonic() < until:
            try:
                state = self.agent.check_xfer_state(handle)
            except Exception as e:
                return type(e).__name__
        return state

    def move(self, *args, **kw):
        handle = self.prepare(*args, **kw)
        try:
            state = self.agent.transfer(handle)
        except Exception as e:
            return type(e).__name__
        state = self.finish(handle) if state == "PROC" else state
        self.agent.release_xfer_handle(handle)
        return state

    def notes(self, remote, n=1, wait_s=WAIT_S):
        """Returns the next n notifications from a remote agent, or fewer if no more arrive within wait_s seconds."""
        until = time.monotonic() + wait_s
        while len(self.kept.get(remote, [])) < n and time.monotonic() < until:
            for name, texts in self.agent.get_new_notifs().items():
                self.kept.setdefault(name, []).extend(texts)
        got = self.kept.get(remote, [])
        self.kept[remote] = got[n:]
        return got[:n]


class Peer:
    """An agent in another process (nixl_peer.py), which executes the commands that ask() sends."""

    def __init__(self, name, size=1 << 20, **config):
        script = pathlib.Path(__file__).with_name("nixl_peer.py")
        self.name = name
        self.proc = subprocess.Popen([os.environ["PYTHON"], script, name, str(size), json.dumps(config)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answer = self.read()
        self.card = bytes.fromhex(answer["metadata"]), answer["base"]

    def read(self):
        line = self.proc.stdout.readline()
        return json.loads(line) if line else {}

    def ask(self, what, **kw):
        print(json.dumps({"do": what} | kw), file=self.proc.stdin, flush=True)
        return self.read()

    def signal(self, number):
        self.proc.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitpid(self.proc.pid, os.WUNTRACED)

    def end(self):
        self.proc.kill()
        self.proc.wait()
        self.proc.stdin.close()
        self.proc.stdout.close()


def error_of(f):
    """Returns the name of the exception that f raises, or ""."""
    try:
        f()
    except Exception as e:
        return type(e).__name__
    return ""
