# SPDX-License-Identifier: Apache-2.0
"""Tests the NIXL backend with calls that inference servers make (TAP): agents are removed and transfers are released while
data is in flight. Run by nixl_run.py."""
import random
import signal
import socket
import sys
import threading
import time
import zlib

from nixl_agents import WAIT_S, Agent, Peer, error_of, np
from tap import done, ok

MIB = 1 << 20
SIZE = 16 * MIB
WHOLE = [(0, SIZE)]
SOON_S = 0.2  # limit for calls that must not wait for an agent, generous for a busy machine


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def timed(f):
    begun = time.monotonic()
    result = f()
    return result, time.monotonic() - begun


def check_last_notification(b):
    """Sends a notification and at once removes the agent, before and after the connection was made."""
    a, texts = Agent("leaving"), [b"%d" % i for i in range(10)]
    for i, text in enumerate(texts):
        a.add(b.card)
        if i % 2:
            a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)])
        a.agent.send_notif("b", text)
        a.agent.remove_remote_agent("b")
    got = [bytes.fromhex(n) for n in b.ask("notes", of="leaving", n=len(texts))["notes"]]
    ok(got == texts, "a notification arrives although its sender then removes the receiver", got)
    a.add(b.card)
    a.agent.send_notif("b", bytes(3 * MIB))
    del a
    got = [len(n) // 2 for n in b.ask("notes", of="leaving", n=1)["notes"]]
    ok(got == [3 * MIB], "and although the sender's agent ends before the connection is made", got)


def check_removal(b):
    """Removes agents that do not answer, while a third agent is in use."""
    a, c, d = Agent("remover", SIZE), Peer("c", SIZE), Peer("d", SIZE)
    for peer in b, c, d:
        a.add(peer.card)
    for peer in b, c:
        a.move("WRITE", peer.name, peer.card[1], [(0, 8)], [(0, 8)])
    c.signal(signal.SIGSTOP)
    d.signal(signal.SIGSTOP)
    handles = [a.prepare(op, peer.name, peer.card[1], WHOLE, WHOLE, b"removed") for op in ("READ", "WRITE") for peer in (c, d)]
    states = [a.agent.transfer(h) for h in handles]
    _, took = timed(lambda: [a.agent.remove_remote_agent(peer.name) for peer in (c, d)])
    ok(states == ["PROC"] * 4 and took < SOON_S, "agents that do not answer are removed at once", states, took)
    state, took = timed(lambda: a.move("WRITE", "b", b.card[1], WHOLE, WHOLE))
    ok(state == "DONE" and took < WAIT_S / 2, "another agent is written to meanwhile", state, took)
    for peer in c, d:
        a.add(peer.card)
    new = [a.prepare("WRITE", peer.name, peer.card[1], WHOLE, WHOLE, b"added") for peer in (c, d)]
    a.buf[:] = 51
    states = [a.agent.transfer(h) for h in new]
    ok(states == ["PROC"] * 2, "transfers to agents that were added again wait", states)
    for peer in c, d:
        peer.signal(signal.SIGCONT)
    states = [a.finish(h) for h in new]
    got = [peer.ask("notes", of="remover", n=1)["notes"] for peer in (c, d)]
    sums = {peer.ask("sum")["sum"] for peer in (c, d)}
    ok(states == ["DONE"] * 2 and got == [[b"added".hex()]] * 2 and sums == {zlib.crc32(a.buf)},
       "and succeed when the agents answer, without old data or notifications", states, got)
    errors = {error_of(lambda h=h: a.agent.release_xfer_handle(h)) for h in handles + new}
    errors.add(error_of(lambda: a.agent.deregister_memory(a.reg)))
    ok(errors == {""}, "all transfers are released, and then the memory", errors)
    c.end()
    d.end()


def check_deregistration(b):
    """Deregisters memory after the release of a transfer, while notifications wait for an agent that does not answer."""
    a, c = Agent("tidy", SIZE), Peer("c")
    for peer in b, c:
        a.add(peer.card)
        a.move("WRITE", peer.name, peer.card[1], [(0, 8)], [(0, 8)])
    c.signal(signal.SIGSTOP)
    for _ in range(100):
        a.agent.send_notif("c", bytes(260000))
    slow = []
    for _ in range(5):
        handle = a.prepare("WRITE", "b", b.card[1], WHOLE, WHOLE)
        a.agent.transfer(handle)
        a.agent.release_xfer_handle(handle)
        error, took = timed(lambda: error_of(lambda: a.agent.deregister_memory(a.reg)))
        slow += [(error, took)] if error or took > 2 else []
        a.reg = a.agent.register_memory([(a.buf.ctypes.data, SIZE, 0, "")], "DRAM")
    ok(not slow, "memory is deregistered although another agent does not take its notifications", slow)
    c.signal(signal.SIGCONT)
    ok(len(c.ask("notes", of="tidy", n=100)["notes"]) == 100, "which arrive later")
    c.end()


def check_twice(b):
    """Registers memory twice, on both sides."""
    a, c = Agent("twice"), Agent("double")
    regs = [[x.reg, x.agent.register_memory([(x.buf.ctypes.data, MIB, 0, "")], "DRAM")] for x in (a, c)]
    error = error_of(lambda: a.add(c.card()))
    ok(error == "", "the metadata of an agent that registered its memory twice is loaded", error)
    a.add(b.card)
    states = []
    for byte in 1, 2:
        a.buf[:] = byte
        states.append(a.move("WRITE", "double", c.buf.ctypes.data, [(0, MIB)], [(0, MIB)]))
        states += [(c.buf == byte).all()]
        for x, (first, *_) in zip((a, c), regs):
            x.agent.deregister_memory(first)
        regs = [r[1:] for r in regs]
    ok(states == ["DONE", True] * 2, "a write succeeds with both registrations, and after the end of one on each side", states)
    error = error_of(lambda: a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)]))
    ok(error == "nixlNotFoundError", "and not after the end of both", error)
    a.reg = a.agent.register_memory([(a.buf.ctypes.data, MIB, 0, "")], "DRAM")
    state = a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)])
    ok(state == "DONE", "the memory is registered again", state)
    state = error_of(lambda: a.move("WRITE", "double", c.buf.ctypes.data, [(0, 8)], [(0, 8)]) == "DONE" or 1 / 0)
    ok(state != "", "a write to memory that the other agent no longer has registered fails", state)


def check_abort(b):
    """Releases every other transfer in flight. A released transfer may have ended: then its notification arrives too."""
    a, n, k = Agent("hasty", SIZE), 256, SIZE // 256
    a.add(b.card)
    a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)])
    wrong = []
    for turn in range(4):
        for i in range(n):
            a.buf[i * k:(i + 1) * k] = (i + turn) % 251
        b.ask("fill", byte=255)
        handles = [a.prepare("WRITE", "b", b.card[1], [(i * k, k)], [(i * k, k)], b"%d/%d" % (turn, i)) for i in range(n)]
        if turn % 2:
            b.signal(signal.SIGSTOP)
        for h in handles:
            a.agent.transfer(h)
        for h in handles[::2]:
            a.agent.release_xfer_handle(h)
        if turn % 2:
            b.signal(signal.SIGCONT)
        wrong += [s for s in map(a.finish, handles[1::2]) if s != "DONE"]
        a.agent.send_notif("b", b"%d/end" % turn)
        want, sent, got = {b"%d/%d" % (turn, i) for i in range(1, n, 2)}, a.buf.copy(), []
        while b"%d/end" % turn not in got:
            notes = b.ask("notes", of="hasty", n=1)["notes"]
            if not notes:
                break
            got += map(bytes.fromhex, notes)
        got = [g for g in got if not g.endswith(b"end")]
        a.move("READ", "b", b.card[1], WHOLE, WHOLE)
        whole = {b"%d/%d" % (turn, i) for i in range(n) if (a.buf[i * k:(i + 1) * k] == sent[i * k]).all()}
        wrong += [g for g in got if g not in whole] + list(want - set(got)) + [len(got) - len(set(got))] * (len(got) > len(set(got)))
        wrong += [i for i in range(n) if not np.isin(a.buf[i * k:(i + 1) * k], (255, sent[i * k])).all()]
        for h in handles[1::2]:
            a.agent.release_xfer_handle(h)
    ok(not wrong, "half of the transfers are released in flight, and the others and their notifications arrive", wrong[:9])


def check_repeated(b):
    """Makes transfers from lists of block numbers, like vLLM, and releases some of them in flight."""
    a, n, k, rng = Agent("steps", SIZE), 4096, 4096, random.Random(1)
    a.add(b.card)
    blocks = [(i * k, k) for i in range(n)]
    own = a.agent.prep_xfer_dlist("NIXL_INIT_AGENT", a.descs(a.buf.ctypes.data, blocks))
    far = a.agent.prep_xfer_dlist("b", a.descs(b.card[1], blocks))
    rows = a.buf.reshape(n, k)
    rows[:n // 2] = np.arange(n // 2, dtype=np.uint16)[:, None] % 251
    wrong = []
    for i in range(100):
        sources, targets, back = (rng.sample(range(low, low + n // 2), 100) for low in (0, 0, n // 2))
        for op, mine in ("WRITE", sources), ("READ", back):
            handle = a.agent.make_prepped_xfer(op, own, mine, far, targets, b"%d" % i if op == "WRITE" else b"")
            a.agent.transfer(handle)
            wrong += [s for s in [a.finish(handle)] if s != "DONE"]
            a.agent.release_xfer_handle(handle)
        wrong += [i] if (rows[sources] != rows[back]).any() else []
        extra = a.agent.make_prepped_xfer("READ", own, list(range(n // 2, n)), far, list(range(n // 2)))
        a.agent.transfer(extra)
        a.agent.release_xfer_handle(extra)
    ok(not wrong, "100 writes and reads of 100 random blocks, and each time a read of 2048 blocks that is released",
       wrong[:9])
    ok(len(b.ask("notes", of="steps", n=100)["notes"]) == 100, "every write's notification arrives")


def check_handshakes(b):
    """Runs agents in threads. Each agent adds and removes the others while transfers are in flight."""
    n, wrong, end = 8, [], time.monotonic() + 1
    agents = [Agent(f"h{i}", 1 << 16) for i in range(n)]
    cards = [a.card() for a in agents]

    def run(i):
        a, rng = agents[i], random.Random(i)
        a.add(b.card)
        while time.monotonic() < end:
            j = rng.choice([j for j in range(n) if j != i])
            a.add(cards[j])
            handles = [a.prepare("WRITE", f"h{j}", cards[j][1], [(0, 4096)], [(4096 * i, 4096)], bytes(rng.randrange(99)))
                       for _ in range(8)]
            for h in handles:
                a.agent.transfer(h)
            if rng.random() < 0.5:
                a.agent.remove_remote_agent(f"h{j}")
            else:
                wrong.extend(s for s in map(a.finish, handles) if s != "DONE")
            for h in handles:
                a.agent.release_xfer_handle(h)
            state = a.move("READ", "b", b.card[1], [(0, 4096)], [(0, 4096)])
            wrong.extend([state] if state != "DONE" else [])
            a.agent.get_new_notifs()

    def catch(i):
        try:
            run(i)
        except Exception as e:
            wrong.append(repr(e))

    threads = [threading.Thread(target=catch, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    ok(not wrong, "eight agents in threads add and remove each other while transfers are in flight", wrong[:9])


def check_side_channels():
    """Exchanges metadata through the side channels of agents in other processes, which invalidate it in flight."""
    port, *ports = (free_port() for _ in range(5))
    a = Agent("center", SIZE, enable_listen_thread=True, listen_port=port)
    peers = [Peer(f"edge{i}", SIZE, enable_listen_thread=True, listen_port=p) for i, p in enumerate(ports)]
    wrong = []
    for turn in range(3):
        for peer, p in zip(peers, ports):
            a.agent.fetch_remote_metadata(peer.name, "127.0.0.1", p)
            a.agent.send_local_metadata("127.0.0.1", p)
        wrong += [peer.name for peer in peers if not a.knows(peer.name) or not peer.ask("knows", of="center")["knows"]]
        a.buf[:] = turn + 1
        handles = [a.prepare("WRITE", peer.name, peer.card[1], WHOLE, WHOLE, b"%d" % turn) for peer in peers]
        for h in handles:
            a.agent.transfer(h)
        for peer in peers[::2]:
            peer.ask("call", method="invalidate_local_metadata", args=["127.0.0.1", port])
        states = [a.finish(h) for h in handles]
        wrong += [s for s in states[::2] if s not in ("DONE", "nixlNotFoundError")] + [s for s in states[1::2] if s != "DONE"]
        for h in handles:
            a.agent.release_xfer_handle(h)
        wrong += [peer.name for peer in peers[1::2] if peer.ask("sum")["sum"] != zlib.crc32(a.buf)]
        for peer in peers:
            state = peer.ask("move", op="WRITE", to="center", base=a.buf.ctypes.data, notif="back")["state"]
            wrong += [state] if state != "DONE" or a.notes(peer.name) != [b"back"] else []
        wrong += [peer.name for peer in peers[::2] if a.knows(peer.name, want=False)]
    ok(not wrong, "four agents exchange metadata through their side channels, and two invalidate it in flight", wrong[:9])
    for peer in peers:
        peer.end()


def main():
    b = Peer("b", SIZE)
    check_last_notification(b)
    check_removal(b)
    check_deregistration(b)
    check_twice(b)
    check_abort(b)
    check_repeated(b)
    check_handshakes(b)
    b.end()
    check_side_channels()
    return done()


if __name__ == "__main__":
    sys.exit(main())
