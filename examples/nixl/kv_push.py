#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A prefill process pushes the KV cache of two requests, 1,024 and 8,192 blocks of 64 KiB, into the cache of a decode process
with NIXL's Python API and backend HAWSER. Each request is one transfer, and its notification informs the decode process that
all blocks are in place. The agents connect when they first send something. Needs NIXL, numpy, and the backend in NIXL's
plugin folder (`python -m hawser nixl-install`). Without the wheel, set NIXL_PLUGIN_DIR to the folder of
libplugin_HAWSER.so, which hides NIXL's own backends.
    kv_push.py                       both processes on this machine
    kv_push.py decode PORT           on one machine; its agent listens on PORT for NIXL's metadata
    kv_push.py prefill HOST PORT     on the other machine
BACKEND=UCX in the environment selects another backend, if NIXL finds its plugin."""
import importlib
import os
import socket
import subprocess
import sys
import time

import numpy as np

REQUESTS, BLOCK, WAIT = (1024, 8192), 64 << 10, 30  # blocks of each request; bytes per block; timeout in s for waiting


def import_nixl():
    """Imports NIXL's Python API. The package nixl selects the wheel for the machine's CUDA. Without this package, there is
    only the wheel for one version of CUDA."""
    reasons = []
    for package in ("nixl", "nixl_cu12", "nixl_cu13"):
        try:
            return importlib.import_module(f"{package}._api")
        except ImportError as e:
            reasons.append(str(e))
    sys.exit(f"cannot import NIXL ({'; '.join(reasons)}); install it with: pip install nixl-cu12")


nixl = import_nixl()


def wait_for(poll, what):
    """Polls until poll() returns a true value, and returns that value."""
    end = time.monotonic() + WAIT
    while not (found := poll()):
        if time.monotonic() > end:
            sys.exit(f"timed out after {WAIT} s: {what}")
        time.sleep(0.0001)  # NIXL's own thread also needs to use the agent
    return found


class Agent:
    """A NIXL agent with a registered cache."""

    def __init__(self, name, port):
        self.agent = nixl.nixl_agent(name, nixl.nixl_agent_config(enable_listen_thread=True, listen_port=port, backends=[]))
        self.agent.create_backend(os.environ.get("BACKEND", "HAWSER"))
        # Filled so that the kernel allocates all pages now and not during the first transfer.
        self.cache = np.full((max(REQUESTS), BLOCK // 8, 2), 0xffffffff, np.uint32)
        self.kept_notifications = []  # notifications that arrived before they were requested
        self.registered = self.agent.register_memory([(self.cache.ctypes.data, self.cache.nbytes, 0, "")], "DRAM")

    def describe_blocks(self):
        """Returns the address, length and device of each block in the form that NIXL expects."""
        return [(self.cache.ctypes.data + k * BLOCK, BLOCK, 0) for k in range(len(self.cache))]

    def fetch_metadata(self, other, host, port, blocks=None):
        """Requests the metadata of another agent. Returns whether the metadata has arrived and contains the blocks. NIXL sends a
        request only once, although the other agent may not listen yet, or may answer before its memory is registered."""
        if not self.agent.check_remote_metadata(other, blocks):
            self.agent.fetch_remote_metadata(other, host, port)
            time.sleep(0.2)
        return self.agent.check_remote_metadata(other, blocks)

    def take_notification(self, other):
        got = self.agent.get_new_notifs().get(other, [])
        self.kept_notifications.extend(got)
        return self.kept_notifications.pop(0) if self.kept_notifications else None


def run_decode(port):
    me = Agent("decode", int(port))
    wait_for(lambda: me.agent.check_remote_metadata("prefill"), "the metadata of the prefill process")
    blocks = me.agent.get_xfer_descs(me.describe_blocks(), "DRAM")
    me.agent.send_notif("prefill", me.agent.get_serialized_descs(blocks))
    for request, count in enumerate(REQUESTS):
        free = np.random.permutation(len(me.cache))[:count].astype(np.int32)  # the blocks for this request
        me.agent.send_notif("prefill", free.tobytes())
        done = wait_for(lambda: me.take_notification("prefill"), "a request")  # all blocks have arrived
        assert (me.cache[free, :, 0] == request).all(), "blocks of another request"
        assert (me.cache[free, :, 1] == np.arange(count)[:, None]).all(), "wrong blocks"
        print(f"{done.decode()}: {count} blocks of {BLOCK} bytes, all of them verified", flush=True)
    me.agent.send_notif("prefill", b"verified")
    time.sleep(0.2)  # allows NIXL to send the notification before the agent exits


def run_prefill(host, port):
    me = Agent("prefill", 0)
    wait_for(lambda: me.fetch_metadata("decode", host, int(port)), "the metadata of the decode process")
    me.agent.send_local_metadata(host, int(port))
    theirs = me.agent.deserialize_descs(wait_for(lambda: me.take_notification("decode"), "the cache of the decode process"))
    wait_for(lambda: me.fetch_metadata("decode", host, int(port), theirs), "the registration of the cache")
    from_here = me.agent.prep_xfer_dlist("NIXL_INIT_AGENT", me.describe_blocks(), "DRAM")
    to_there = me.agent.prep_xfer_dlist("decode", theirs)
    for request, count in enumerate(REQUESTS):
        me.cache[:count] = np.stack([np.full(count, request), np.arange(count)], axis=1)[:, None, :]  # fake output
        slots = np.frombuffer(wait_for(lambda: me.take_notification("decode"), "the blocks for the request"), np.int32)
        begun = time.perf_counter()
        transfer = me.agent.make_prepped_xfer("WRITE", from_here, np.arange(count, dtype=np.int32), to_there, slots,
                                              f"request {request}".encode())
        state = me.agent.transfer(transfer)
        while state == "PROC":
            time.sleep(0.0001)
            state = me.agent.check_xfer_state(transfer)  # raises an exception if the transfer has failed
        took = time.perf_counter() - begun
        me.agent.release_xfer_handle(transfer)
        speed = count * BLOCK / took / 1e9
        print(f"request {request}: {count} blocks pushed in {took * 1e3:.1f} ms, {speed:.2f} GB/s", flush=True)
    wait_for(lambda: me.take_notification("decode") == b"verified", "the confirmation of the decode process")


def run_both():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    with subprocess.Popen([sys.executable, __file__, "decode", port]) as other:
        try:
            run_prefill("127.0.0.1", port)
            other.wait(WAIT)
        finally:
            other.kill()
    sys.exit(other.returncode)


if __name__ == "__main__":
    if sys.argv[1:2] == ["prefill"]:
        run_prefill(*sys.argv[2:4])
    elif sys.argv[1:2] == ["decode"]:
        run_decode(sys.argv[2])
    else:
        run_both()
