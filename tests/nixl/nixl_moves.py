# SPDX-License-Identifier: Apache-2.0
"""Tests transfers of the NIXL backend (TAP), between processes and within one process. Run by nixl_run.py."""
import os
import socket
import sys
import time
import zlib

from nixl_agents import WAIT_S, Agent, Peer, error_of, np
from tap import done, ok

MIB = 1 << 20


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def check_plugin(a):
    params = a.agent.get_plugin_params("HAWSER")
    ok(sorted(params) == ["advertise", "connect_ms", "device", "nics", "rails", "timeout_ms", "trusted"],
       "the parameters are listed with their defaults", params)
    ok(set(a.agent.get_plugin_mem_types("HAWSER")) == {"DRAM_SEG", "VRAM_SEG"}, "DRAM and VRAM are offered",
       a.agent.get_plugin_mem_types("HAWSER"))


def check_lists(a, b):
    """Tests lists of descriptors in both directions, with different offsets on the two sides."""
    base = b.card[1]
    n = 1000
    local = [(i * 1024, 512) for i in range(n)]
    remote = [((n - 1 - i) * 1024, 512) for i in range(n)]
    a.buf[:] = 0
    for i in range(n):
        a.buf[i * 1024:i * 1024 + 512] = i % 251
    b.ask("fill", byte=7)
    state = a.move("WRITE", "b", base, local, remote, notif=b"list")
    ok(state == "DONE", "a list of 1000 descriptors is written", state)
    ok(b.ask("notes", of="a", n=1)["notes"] == [b"list".hex()], "its notification comes")
    want = a.buf.copy()
    want[:] = 7
    for (l, k), (r, _) in zip(local, remote):
        want[r:r + k] = a.buf[l:l + k]
    ok(b.ask("sum")["sum"] == zlib.crc32(want), "every byte is in its place, and no other byte has changed")
    a.buf[:] = 0
    state = a.move("READ", "b", base, [(0, a.buf.size)], [(0, a.buf.size)])
    ok(state == "DONE" and (a.buf == want).all(), "a read brings them back", state)


def check_long_list(a, b):
    n = 70000  # more than the maximum of one libhawser operation
    pairs = [(i * 12, 8) for i in range(n)]
    a.buf[:] = 5
    b.ask("fill", byte=1)
    state = a.move("WRITE", "b", b.card[1], pairs, pairs, notif=b"long")
    ok(state == "DONE", "a list of 70000 descriptors is written", state)
    ok(b.ask("notes", of="a", n=1)["notes"] == [b"long".hex()], "its notification comes behind all of them")
    want = a.buf.copy()
    want[:] = 1
    for at, k in pairs:
        want[at:at + k] = 5
    ok(b.ask("sum")["sum"] == zlib.crc32(want), "every byte is in its place")
    state = a.move("READ", "b", b.card[1], pairs, pairs, notif=b"read")
    ok(state == "DONE", "as long a list is read", state)
    ok(b.ask("notes", of="a", n=1)["notes"] == [b"read".hex()], "the notification of a read comes")


def check_notes(a, b):
    whole = [(0, 4096)]
    for size in (1, 262144, 5 * MIB):
        text = os.urandom(size)
        state = a.move("WRITE", "b", b.card[1], whole, whole, notif=text)
        a.agent.send_notif("b", text)
        got = b.ask("notes", of="a", n=2)["notes"]
        ok(state == "DONE" and got == [text.hex()] * 2, f"notifications of {size} bytes, with a write and alone",
           state, [len(g) for g in got])
    a.agent.send_notif("b", b"")
    got = b.ask("notes", of="a", n=1)["notes"]
    ok(got == [""], "an empty notification", got)
    sent = [b"%d" % i for i in range(200)]
    for text in sent:
        a.agent.send_notif("b", text)
    got = [bytes.fromhex(x) for x in b.ask("notes", of="a", n=200)["notes"]]
    ok(got == sent, "200 notifications come in order", got[:20])
    b.ask("add", metadata=a.agent.get_agent_metadata().hex())
    b.ask("notify", to="a", size=1000)
    ok(a.notes("b") == [bytes(1000)], "a notification from the other process")


def check_repost(a, b):
    whole = [(0, MIB)]
    handle = a.prepare("WRITE", "b", b.card[1], whole, whole)
    states = []
    for i in range(20):
        a.buf[:MIB] = i
        state = a.agent.transfer(handle)
        states.append(a.finish(handle) if state == "PROC" else state)
    a.agent.release_xfer_handle(handle)
    ok(states == ["DONE"] * 20, "a transfer is posted 20 times", states)
    ok(b.ask("sum")["sum"] == zlib.crc32(a.buf), "and the last one's bytes are there")


def check_many(a, b):
    """Fills the buffer with simultaneous transfers, and polls each transfer in turn."""
    k = 2048
    n = a.buf.size // k
    for i in range(n):
        a.buf[i * k:(i + 1) * k] = i % 253
    pending = {i: a.prepare("WRITE", "b", b.card[1], [(i * k, k)], [(i * k, k)], b"%d" % i) for i in range(n)}
    states = [a.agent.transfer(h) for h in pending.values()]
    states = [a.finish(h) for h in pending.values()]
    ok(states == ["DONE"] * n, f"{n} transfers at once", set(states))
    ok(b.ask("sum")["sum"] == zlib.crc32(a.buf), "every byte is in its place")
    got = sorted(int(bytes.fromhex(x)) for x in b.ask("notes", of="a", n=n)["notes"])
    ok(got == list(range(n)), "and every notification comes once")
    for h in pending.values():
        a.agent.release_xfer_handle(h)


def check_prepped(a, b):
    """Prepares lists once and transfers some of the descriptors, like vLLM."""
    n, k = 64, 4096
    a.agent.make_connection("b")
    blocks = [(i * k, k) for i in range(n)]
    own = a.agent.prep_xfer_dlist("NIXL_INIT_AGENT", a.descs(a.buf.ctypes.data, blocks))
    far = a.agent.prep_xfer_dlist("b", a.descs(b.card[1], blocks))
    a.buf[:] = 0
    b.ask("fill", byte=3)
    take, give = list(range(0, n, 2)), list(range(1, n, 2))
    handle = a.agent.make_prepped_xfer("READ", own, take, far, give, b"blocks")
    state = a.agent.transfer(handle)
    state = a.finish(handle) if state == "PROC" else state
    rows = a.buf[:n * k].reshape(n, k)
    ok(state == "DONE" and (rows[::2] == 3).all() and (rows[1::2] == 0).all(), "a read of every other prepared block", state)
    ok(b.ask("notes", of="a", n=1)["notes"] == [b"blocks".hex()], "its notification comes")
    a.agent.release_xfer_handle(handle)
    a.agent.release_dlist_handle(own)
    a.agent.release_dlist_handle(far)


def check_partial_metadata():
    a, b = Agent("partial"), Agent("whole")
    name = a.agent.add_remote_agent(b.agent.get_partial_agent_metadata(b.reg, True, ["HAWSER"])).decode()
    a.buf[:64] = 6
    state = a.move("WRITE", name, b.buf.ctypes.data, [(0, 64)], [(128, 64)])
    ok(state == "DONE" and (b.buf[128:192] == 6).all(), "metadata of one registration is enough", state)


def check_strided(a, b):
    """Tests lists that are given as address, length, device, stride and count, as vLLM and SGLang pass them."""
    def prepare(agent, base):
        return a.agent.prep_xfer_dlist(agent, np.array([[base, 512, 0, 1024, 1000]], np.uint64), "DRAM")

    a.buf[:] = 0
    for i in range(1000):
        a.buf[i * 1024:i * 1024 + 512] = i % 251
    b.ask("fill", byte=0)
    mine, theirs = prepare("NIXL_INIT_AGENT", a.buf.ctypes.data), prepare("b", b.card[1])
    numbers = np.arange(1000, dtype=np.int32)
    handle = a.agent.make_prepped_xfer("WRITE", mine, numbers, theirs, numbers, b"strided")
    a.agent.transfer(handle)
    state = a.finish(handle)
    ok(state == "DONE" and b.ask("sum")["sum"] == zlib.crc32(a.buf), "1000 blocks that are one strided list are written", state)
    ok(b.ask("notes", of="a", n=1)["notes"] == [b"strided".hex()], "their notification comes")
    a.agent.release_xfer_handle(handle)


def check_one_process():
    agents = [Agent(f"p{i}") for i in range(4)]
    cards = [x.card() for x in agents]
    for i, x in enumerate(agents):
        for j, card in enumerate(cards):
            if i != j:
                x.add(card)
    for i, x in enumerate(agents):
        x.buf[:] = i + 1
    states = [agents[i].move("WRITE", f"p{j}", cards[j][1], [(0, 4096)], [((i + 1) * 8192, 4096)], notif=b"%d" % i)
              for i in range(4) for j in range(4) if i != j]
    ok(states == ["DONE"] * 12, "four agents of one process write to each other", states)
    right = all((agents[j].buf[(i + 1) * 8192:][:4096] == i + 1).all() for i in range(4) for j in range(4) if i != j)
    ok(right, "every byte is in its place")
    got = {}
    until = time.monotonic() + WAIT_S
    while len(got) < 3 and time.monotonic() < until:
        got.update(agents[0].agent.get_new_notifs())
    ok(got == {f"p{i}": [b"%d" % i] for i in (1, 2, 3)}, "notifications carry the names of their agents", got)


def check_within_agent():
    a = Agent("self")
    a.buf[:4096] = 3
    state = a.move("WRITE", "self", a.buf.ctypes.data, [(0, 4096)], [(8192, 4096)], notif=b"own")
    ok(state == "DONE" and (a.buf[8192:12288] == 3).all(), "a transfer within an agent", state)
    ok(a.notes("self") == [b"own"], "its notification comes")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def check_coming_and_going(b):
    def visit(i):
        a = Agent(f"guest{i}")
        a.add(b.card)
        return a.move("WRITE", "b", b.card[1], [(0, 4096)], [(0, 4096)], notif=b"hi")

    states = [visit(0)]
    before = descriptors()
    states += [visit(i) for i in range(1, 8)]
    ok(states == ["DONE"] * 8, "eight agents come and go", states)
    ok(descriptors() <= before, "and leave no descriptor open", before, descriptors())
    got = [b.ask("notes", of=f"guest{i}", n=1)["notes"] for i in range(8)]
    ok(got == [[b"hi".hex()]] * 8, "their notifications outlive them", got)


def check_remove_and_add(a, b):
    a.agent.remove_remote_agent("b")
    ok(error_of(lambda: a.agent.send_notif("b", b"x")) == "nixlNotFoundError", "an agent that was removed is unknown")
    a.add(b.card)
    state = a.move("WRITE", "b", b.card[1], [(0, 4096)], [(0, 4096)], notif=b"again")
    ok(state == "DONE", "it is written to once it was added again", state)
    ok(b.ask("notes", of="a", n=1)["notes"] == [b"again".hex()], "and gets notifications")


def check_store():
    """Tests metadata that NIXL itself exchanges between agents."""
    port = free_port()
    a, b = Agent("fetcher", enable_listen_thread=True, listen_port=free_port()), Peer("kept", enable_listen_thread=True, listen_port=port)
    a.agent.fetch_remote_metadata("kept", "127.0.0.1", port)
    ok(a.knows("kept"), "metadata is fetched from an agent that listens")
    a.buf[:4096] = 8
    state = a.move("WRITE", "kept", b.card[1], [(0, 4096)], [(0, 4096)])
    ok(state == "DONE", "and a write by that metadata ends well", state)
    b.end()


def check_telemetry():
    a, b = Agent("measured", capture_telemetry=True), Agent("other")
    a.add(b.card())
    handle = a.prepare("WRITE", "other", b.card()[1], [(0, MIB)], [(0, MIB)])
    a.agent.transfer(handle)
    state = a.finish(handle)
    t = a.agent.get_xfer_telemetry(handle)
    ok(state == "DONE" and t.totalBytes == MIB and t.xferDuration > 0, "NIXL's telemetry has the bytes and the time",
       state, t)
    a.agent.release_xfer_handle(handle)


def check_parameters(b):
    a = Agent("chosen", params={"nics": "lo", "trusted": "yes", "timeout_ms": "5000", "advertise": "127.0.0.1",
                                "device": "0", "connect_ms": "3000", "rails": "127.0.0.0/8"})
    a.add(b.card)
    a.buf[:] = 77
    state = a.move("WRITE", "b", b.card[1], [(0, MIB)], [(0, MIB)])
    ok(state == "DONE" and b.ask("sum")["sum"] == zlib.crc32(a.buf), "an agent with every parameter writes", state)


def main():
    a, b = Agent("a"), Peer("b")
    ok(a.add(b.card) == "b", "metadata of another process is loaded")
    check_plugin(a)
    check_lists(a, b)
    check_long_list(a, b)
    check_notes(a, b)
    check_repost(a, b)
    check_many(a, b)
    check_prepped(a, b)
    check_strided(a, b)
    check_one_process()
    check_partial_metadata()
    check_within_agent()
    check_coming_and_going(b)
    check_remove_and_add(a, b)
    check_parameters(b)
    check_telemetry()
    b.end()
    check_store()
    return done()


if __name__ == "__main__":
    sys.exit(main())
