# SPDX-License-Identifier: Apache-2.0
"""The contenders of bench/rivals, as one end of a transfer uses them (endpoint.py). Each mover opens an agent,
registers one buffer, and writes from it to the other end's buffer.

A case is a list of slots; a slot is one request, a list of (local offset, remote offset, bytes). start() posts a slot.
finish() returns True when the request has ended, or False if the time limit expires first. Both raise the contender's
error. attend() does the work of a program to whose memory other programs write. poll_s: seconds to sleep between two
polls of a request, or 0 to poll continuously. If a process has several agents, `agent` is the one in use."""
import ctypes
import errno
import mmap
import os
import secrets
import time

from compare.memory import write_memory


class Buffer:
    def __init__(self, size):
        self.map = mmap.mmap(-1, size)
        self.size = size
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))


class Mover:
    def __init__(self, config):
        self.poll_s = config.get("poll_s", 0)
        self.host, self.peer_host = config["host"], config["peer_host"]
        self.config = config
        self.buffer, self.slots = Buffer(config["size"]), []
        self.agents, self.agent, self.attending = [], None, False

    def open(self, name):
        self.agent = self.open_agent(name)
        self.agents.append(self.agent)

    def pause(self):
        if self.poll_s:
            time.sleep(self.poll_s)

    def attend(self):
        """Returns whether attend() must be called again without waiting for a request."""
        return False

    def forget(self):
        """Releases the resources for the other end, after a failure."""

    def wait(self, is_over, until):
        """Polls is_over() with pauses until it returns true. Returns False if the time `until` is reached first."""
        while not is_over():
            if time.monotonic() > until:
                return False
            self.pause()
        return True


class Nixl(Mover):
    """NIXL's Python API with the backend that config names."""

    def __init__(self, config):
        super().__init__(config)
        from nixl_cu12._api import nixl_agent, nixl_agent_config
        self.make_agent = lambda name: nixl_agent(name, nixl_agent_config(backends=[]))
        self.remote, self.remote_base = None, 0

    def open_agent(self, name):
        agent = self.make_agent(name)
        agent.create_backend(self.config["backend"], self.config.get("params", {}))
        agent.register_memory([(self.buffer.base, self.buffer.size, 0, "")], "DRAM")
        return agent

    def card(self):
        return {"metadata": self.agent.get_agent_metadata().hex(), "base": self.buffer.base}

    def add(self, card):
        self.remote = self.agent.add_remote_agent(bytes.fromhex(card["metadata"])).decode()
        self.remote_base = card["base"]

    def prepare(self, slots):
        agent, local = self.agent, self.buffer.base
        self.release()
        self.slots = [agent.initialize_xfer(
            "WRITE", agent.get_xfer_descs([(local + at, n, 0) for at, _, n in slot], "DRAM"),
            agent.get_xfer_descs([(self.remote_base + to, n, 0) for _, to, n in slot], "DRAM"), self.remote)
            for slot in slots]

    def start(self, k):
        return self.agent.transfer(self.slots[k])

    def finish(self, k, until):
        return self.wait(lambda: self.is_done(self.agent.check_xfer_state(self.slots[k])), until)

    @staticmethod
    def is_done(state):
        if state not in ("DONE", "PROC"):
            raise RuntimeError(f"NIXL says {state}")
        return state == "DONE"

    def attend(self):
        self.agent.get_new_notifs()
        self.pause()
        return True

    def release(self):
        for handle in self.slots:
            try:
                self.agent.release_xfer_handle(handle)
            except Exception:  # the agent no longer exists
                pass
        self.slots = []

    def forget(self):
        self.release()
        try:
            self.agent.remove_remote_agent(self.remote)
        except Exception:  # NIXL has already removed it
            pass


class Mooncake(Mover):
    """Mooncake's transfer engine with protocol tcp. A list is one call, which returns when all of the list is written."""

    def __init__(self, config):
        super().__init__(config)
        from mooncake.engine import TransferEngine
        self.make_engine = TransferEngine
        self.remote, self.remote_base, self.batches = "", 0, {}

    def open_agent(self, name):
        engine = self.make_engine()
        if engine.initialize(self.host, "P2PHANDSHAKE", "tcp", ""):
            raise RuntimeError("initialize() failed")
        if engine.register_memory(self.buffer.base, self.buffer.size):
            raise RuntimeError("register_memory() failed")
        return engine

    def card(self):
        return {"at": f"{self.host}:{self.agent.get_rpc_port()}", "base": self.buffer.base}

    def add(self, card):
        self.remote, self.remote_base = card["at"], card["base"]

    def prepare(self, slots):
        self.batches = {}
        self.slots = [([self.buffer.base + at for at, _, _ in slot], [self.remote_base + to for _, to, _ in slot],
                       [n for _, _, n in slot]) for slot in slots]

    def start(self, k):
        local, remote, sizes = self.slots[k]
        if len(sizes) == 1:
            self.batches[k] = self.agent.transfer_submit_write(self.remote, local[0], remote[0], sizes[0])
            if not self.batches[k]:
                raise RuntimeError("transfer_submit_write() failed")

    def finish(self, k, until):
        local, remote, sizes = self.slots[k]
        if len(sizes) == 1:
            return self.wait(lambda: self.is_done(self.agent.transfer_check_status(self.batches[k])), until)
        rc = self.agent.batch_transfer_sync_write(self.remote, local, remote, sizes)
        if rc:
            raise RuntimeError(f"batch_transfer_sync_write() = {rc}")
        return True

    @staticmethod
    def is_done(rc):
        if rc < 0:
            raise RuntimeError(f"transfer_check_status() = {rc}")
        return rc > 0


class CApi(Mover):
    """hawser.h, called through cffi with arguments that were made before; cffi costs two microseconds per request."""

    def __init__(self, config):
        super().__init__(config)
        import hawser
        from hawser._library import check, ffi, lib
        self.hawser, self.check, self.ffi, self.lib = hawser, check, ffi, lib
        self.key, self.ops = secrets.token_bytes(32), {}
        self.peer = self.region = None

    def open_agent(self, name):
        context = self.hawser.Context(key=self.key)
        return context, context.register(self.buffer.map), context.listen()

    def card(self):
        _, memory, port = self.agent
        return {"port": port, "key": self.key.hex(), "region": memory.export(write=True).hex()}

    def add(self, card):
        self.peer = self.agent[0].connect(self.peer_host, card["port"], key=bytes.fromhex(card["key"]))
        self.region = self.hawser.Region(bytes.fromhex(card["region"]))

    def prepare(self, slots):
        memory = self.agent[1]
        self.slots = [self.ffi.new("struct hawser_vec[]", [
            {"mem": memory._handle, "offset": at, "length": n, "region": self.region._data, "remote_offset": to}
            for at, to, n in slot]) for slot in slots]
        self.ops = {k: self.ffi.new("hawser_op **") for k in range(len(slots))}

    def start(self, k):
        vecs = self.slots[k]
        self.check(self.lib.hawser_write(self.peer._handle, vecs, len(vecs), self.ffi.NULL, self.ops[k]))

    def finish(self, k, until):
        rc = self.lib.hawser_wait(self.ops[k][0], max(1, int(1e3 * (until - time.monotonic()))))
        if rc == -errno.EAGAIN:
            return False
        try:
            self.check(rc)  # before another call, which could replace the error line
        finally:
            self.lib.hawser_op_free(self.ops[k][0])
        return True

    def forget(self):
        self.peer.close()


class Copy(Mover):
    """No contender: writes the other process's memory directly, to test the harness. damage: a mask for one byte of
    each piece, which then arrives wrong. hang: requests do not end."""

    def open_agent(self, name):
        return None

    def card(self):
        return {"pid": os.getpid(), "base": self.buffer.base}

    def add(self, card):
        self.remote = card

    def prepare(self, slots):
        self.slots = slots

    def start(self, k):
        for at, to, n in self.slots[k]:
            data = bytearray(self.buffer.map[at:at + n])
            data[n // 2] ^= self.config.get("damage", 0)
            write_memory(self.remote["pid"], self.remote["base"] + to, data)

    def finish(self, k, until):
        return not self.config.get("hang")


MOVERS = {"nixl": Nixl, "mooncake": Mooncake, "c-api": CApi, "copy": Copy}
