# SPDX-License-Identifier: Apache-2.0
"""One-sided writes by NIXL's UCX backend over TCP. `hawser fieldtest` embeds this file and runs it on both nodes:

    python3 -c TEXT write TEXT SECONDS SIZES NICS PEER_NICS COMMAND...

COMMAND starts a Python on the other node, which gets this text on its standard input. Prints a JSON line for each size. The
exit status is 3 if a node has no NIXL."""
import ctypes
import glob
import importlib.util
import json
import mmap
import os
import select
import subprocess
import sys
import time
import types

NOT_THERE = 3
WAIT_S = 30  # seconds to wait for the other node's first line, and for a transfer
PAUSE_S = 50e-6
MOST_RAILS = 4


def load_nixl(nics):
    """Returns NIXL's Python module and its version, or None for both. Restricts UCX to TCP over these NICs."""
    os.environ.update({"UCX_TLS": "tcp,cuda_copy" if glob.glob("/dev/nvidia[0-9]*") else "tcp", "UCX_NET_DEVICES": nics,
                       "UCX_MAX_RMA_RAILS": str(min(nics.count(",") + 1, MOST_RAILS)), "UCX_LOG_LEVEL": "fatal", "NIXL_LOG_LEVEL": "FATAL"})
    if not importlib.util.find_spec("torch"):  # NIXL before 1.4.0 imports torch, but works without it
        sys.modules["torch"] = types.ModuleType("torch")
        setattr(sys.modules["torch"], "Tensor", type("Tensor", (), {}))
    for name in ("nixl_cu12", "nixl_cu13"):
        if importlib.util.find_spec(name):
            return importlib.import_module(name + "._api"), importlib.import_module("importlib.metadata").version(name)
    return None, None


class End:
    """An agent with one registered buffer."""

    def __init__(self, name, size, nics):
        self.nixl, self.version = load_nixl(nics)
        if not self.nixl:
            sys.stderr.write(f"no nixl-cu12 or nixl-cu13 wheel on {'this' if name == 'initiator' else 'the other'} node\n")
            sys.exit(NOT_THERE)
        self.map = mmap.mmap(-1, size)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.agent = self.nixl.nixl_agent(name, self.nixl.nixl_agent_config(backends=[]))
        self.agent.create_backend("UCX", {})
        self.agent.register_memory([(self.base, size, 0, "")], "DRAM")

    def prepare(self, op, remote, local, there, size):
        return self.agent.initialize_xfer(op, self.agent.get_xfer_descs([(self.base + local, size, 0)], "DRAM"),
                                          self.agent.get_xfer_descs([(there, size, 0)], "DRAM"), remote)

    def wait(self, handle):
        until = time.monotonic() + WAIT_S
        while (state := self.agent.check_xfer_state(handle)) == "PROC" and time.monotonic() < until:
            time.sleep(PAUSE_S)
        if state != "DONE":
            sys.exit(f"a transfer's state is {state}")


def serve(total, nics):
    """Receives writes until the reader of standard output is gone."""
    end = End("target", int(total), nics)
    print(json.dumps({"metadata": end.agent.get_agent_metadata().hex(), "base": end.base}), flush=True)
    gone = select.poll()
    gone.register(1, 0)
    while not gone.poll(0):
        end.agent.get_new_notifs()
        time.sleep(PAUSE_S)


def start_peer(text, argv, command):
    """Starts the other node's process. Returns the process, and the agent's metadata and the buffer's address that
    the process prints."""
    peer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        peer.stdin.write(f"import sys\nsys.argv = {json.dumps(['-', *argv])}\n{text}".encode())
        peer.stdin.close()
    except BrokenPipeError:
        pass
    ready = select.select([peer.stdout], [], [], WAIT_S)[0]
    line = peer.stdout.readline() if ready else b""
    if not line:
        code = peer.wait(5) if ready else None
        sys.exit(NOT_THERE if code in (NOT_THERE, 127) else "the other node did not start NIXL" if code is None else code)
    return peer, json.loads(line)


def write_for(end, remote, base, size, depth, seconds):
    """Writes `depth` slots cyclically for some seconds, then checks every slot. Returns bytes and seconds."""
    slots = [end.prepare("WRITE", remote, k * size, base + k * size, size) for k in range(depth)]
    for handle in slots:
        end.agent.transfer(handle)
        end.wait(handle)
    begin, k = time.monotonic(), 0
    while time.monotonic() - begin < seconds or k < depth:
        if k >= depth:
            end.wait(slots[k % depth])
        end.agent.transfer(slots[k % depth])
        k += 1
    for handle in slots:
        end.wait(handle)
    took = time.monotonic() - begin
    for slot in range(depth):
        back = end.prepare("READ", remote, depth * size, base + slot * size, size)
        end.agent.transfer(back)
        end.wait(back)
        end.agent.release_xfer_handle(back)
        if end.map[slot * size:(slot + 1) * size] != end.map[depth * size:(depth + 1) * size]:
            sys.exit("bytes arrived with wrong contents")
    for handle in slots:
        end.agent.release_xfer_handle(handle)
    return k * size, took


def write(text, seconds, sizes, nics, peer_nics, *command):
    plan = [(s, min(max((16 << 20) // s, 2), 32)) for s in map(int, sizes.split(","))]  # as `hawser bench` does
    total = max(size * (depth + 1) for size, depth in plan)
    end = End("initiator", total, nics)
    for at in range(0, total, 1 << 20):
        end.map[at:min(at + (1 << 20), total)] = os.urandom(min(1 << 20, total - at))
    peer, card = start_peer(text, ["serve", str(total), peer_nics], command)
    try:
        remote = end.agent.add_remote_agent(bytes.fromhex(card["metadata"])).decode()
        for size, depth in plan:
            moved, took = write_for(end, remote, card["base"], size, depth, float(seconds))
            print(json.dumps({"size": size, "GBps": moved / took / 1e9, "seconds": took, "version": end.version}), flush=True)
    finally:
        peer.stdout.close()
        peer.terminate()
        peer.wait(5)


def main(role, *argv):
    """Returns the exit status, and writes the message of an exception to standard error."""
    try:
        {"write": write, "serve": serve}[role](*argv)
    except SystemExit as e:
        if isinstance(e.code, int):
            return e.code
        sys.stderr.write(f"{e.code}\n")
        return 1
    except BaseException as e:
        sys.stderr.write(f"{type(e).__name__}: {e}\n")
        return 1
    return 0


os._exit(main(*sys.argv[1:]))  # a normal exit crashes in UCX while buffers are registered
