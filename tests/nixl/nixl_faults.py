# SPDX-License-Identifier: Apache-2.0
"""Tests the NIXL backend with faults (TAP). Run by nixl_run.py."""
import signal
import sys
import time

from nixl_agents import Agent, Peer, error_of, nixl_agent, nixl_agent_config
from tap import done, ok

MIB = 1 << 20
WHOLE = [(0, 16 * MIB)]
SOON_S = 0.1  # limit for calls that must not block, generous for a busy machine


def timed(f):
    t = time.monotonic()
    result = f()
    return result, time.monotonic() - t


def pair(name, **params):
    a, b = Agent(name, 16 * MIB, params), Peer("b", 16 * MIB)
    a.add(b.card)
    return a, b


def check_death(a, b):
    """Kills the peer during a transfer. The peer's kernel closes the connections immediately."""
    a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)])
    b.signal(signal.SIGSTOP)
    handle = a.prepare("WRITE", "b", b.card[1], WHOLE, WHOLE)
    state, took = timed(lambda: a.agent.transfer(handle))
    ok(state == "PROC" and took < SOON_S, "a post to a peer that stands still returns at once", state, took)
    n = 2000
    _, took = timed(lambda: [a.agent.check_xfer_state(handle) for _ in range(n)])
    ok(took / n < 20e-6, "a check where nothing happens takes microseconds at most", f"{took / n * 1e9:.0f} ns")
    b.end()
    state, took = timed(lambda: a.finish(handle))
    ok(state == "nixlRemoteDisconnectError", "a transfer to a peer that died says so", state)
    ok(took < 0.1 + SOON_S, "within 100 ms", took)
    # NIXL may already have removed the agent. The next transfer fails in either case.
    state = error_of(lambda: a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)]) == "DONE" or 1 / 0)
    ok(state != "", "and so does the next one", state)
    a.agent.release_xfer_handle(handle)
    error_of(lambda: a.agent.remove_remote_agent("b"))
    b = Peer("b", 16 * MIB)
    a.add(b.card)
    state = a.move("WRITE", "b", b.card[1], WHOLE, WHOLE, notif=b"back")
    ok(state == "DONE", "an agent of the same name that comes again is written to", state)
    ok(b.ask("notes", of="a", n=1)["notes"] == [b"back".hex()], "and gets notifications")
    b.end()


def check_idle_death():
    a, b = pair("idle")
    a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)])
    b.end()
    time.sleep(0.2)
    state, took = timed(lambda: a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)]))
    ok(state == "nixlRemoteDisconnectError" and took < 0.1 + SOON_S, "a peer that died while nothing ran is found by "
       "the next transfer, within 100 ms", state, took)


def check_never_there():
    a, b = pair("late")
    b.end()
    handle = a.prepare("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)])
    state = error_of(lambda: a.agent.transfer(handle)) or a.finish(handle)
    ok(state == "nixlRemoteDisconnectError", "a peer that died before the first transfer", state)


def check_deadline():
    a, b = pair("patient", timeout_ms="500")
    a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)])
    b.signal(signal.SIGSTOP)
    handle = a.prepare("READ", "b", b.card[1], WHOLE, WHOLE)
    a.agent.transfer(handle)
    state, took = timed(lambda: a.finish(handle))
    ok(state == "nixlBackendError" and 0.3 < took < 5, "a transfer ends at its deadline", state, took)
    b.end()


def check_unanswered():
    """Tests a stopped peer, whose kernel accepts the connection but which does not answer."""
    a, b = pair("unanswered", connect_ms="500")
    b.signal(signal.SIGSTOP)
    handle = a.prepare("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)])
    state, took = timed(lambda: a.agent.transfer(handle))
    ok(state == "PROC" and took < SOON_S, "a post while the connection is made returns at once", state, took)
    state, took = timed(lambda: a.finish(handle))
    ok(state == "nixlRemoteDisconnectError" and took < 5, "and ends once connect_ms is over", state, took)
    b.end()


def release_at_once(a, b):
    """Posts a long transfer and releases the transfer. Returns the error and the duration of the release."""
    handle = a.prepare("WRITE", "b", b.card[1], WHOLE, WHOLE)
    a.agent.transfer(handle)
    return timed(lambda: error_of(lambda: a.agent.release_xfer_handle(handle)))


def check_cancel():
    a, b = pair("hasty")
    a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)])
    b.signal(signal.SIGSTOP)
    error, took = release_at_once(a, b)
    ok(error == "" and took < SOON_S, "a transfer under way is released at once", error, took)
    b.signal(signal.SIGCONT)
    a.buf[:] = 4
    state = a.move("WRITE", "b", b.card[1], WHOLE, WHOLE)
    ok(state == "DONE", "the connection goes on", state)
    error = error_of(lambda: a.agent.deregister_memory(a.reg))
    ok(error == "", "and the memory is deregistered", error)
    b.end()


def check_deregister_in_flight():
    """Tests memory that is deregistered while a transfer uses the memory. NIXL ignores the backend's status, so that the
    application believes that it may reuse the memory."""
    a, b = pair("rash")
    a.move("WRITE", "b", b.card[1], [(0, 8)], [(0, 8)])
    b.signal(signal.SIGSTOP)
    handle = a.prepare("READ", "b", b.card[1], WHOLE, WHOLE)
    a.agent.transfer(handle)
    error, took = timed(lambda: error_of(lambda: a.agent.deregister_memory(a.reg)))
    ok(error == "" and took < 5, "memory of a transfer in flight is deregistered", error, took)
    a.buf[:] = 9
    state = a.finish(handle)
    ok(state == "nixlNotFoundError", "which ends the transfer", state)
    b.signal(signal.SIGCONT)
    time.sleep(0.5)
    ok(bool((a.buf == 9).all()), "no byte arrives afterwards")
    b.end()


def check_cancel_waiting():
    a, b = pair("early")
    b.signal(signal.SIGSTOP)
    error, took = release_at_once(a, b)
    ok(error == "" and took < SOON_S, "a transfer that waits for the connection is released at once", error, took)
    b.signal(signal.SIGCONT)
    state = a.move("WRITE", "b", b.card[1], WHOLE, WHOLE)
    ok(state == "DONE", "and the connection is made all the same", state)
    b.end()


def check_outside():
    a, b = pair("outside")
    size = 16 * MIB
    for what, local, remote in (("the remote", (0, 16), (size - 8, 16)), ("the local", (size - 8, 16), (0, 16))):
        error = error_of(lambda l=local, r=remote: a.move("WRITE", "b", b.card[1], [l], [r]))
        ok(error in ("nixlNotFoundError", "nixlInvalidParamError"), f"beyond {what} registration is refused", error)
    error = error_of(lambda: a.move("WRITE", "nobody", b.card[1], [(0, 8)], [(0, 8)]))
    ok(error == "nixlNotFoundError", "an agent whose metadata was never loaded is refused", error)
    b.end()


def check_metadata():
    a, b = Agent("careful"), Agent("odd")
    card = b.agent.get_agent_metadata()
    at = card.index(b"HWNX")
    for what, bad in (("another magic", card[:at] + b"HWNY" + card[at + 4:]),
                      ("another version", card[:at + 4] + b"\x09" + card[at + 5:]),
                      ("no port", card[:at + 6] + b"\0\0" + card[at + 8:])):
        error = error_of(lambda m=bad: a.agent.add_remote_agent(m))
        ok(error != "", f"metadata with {what} is refused", error)
    wrong_key = card[:at + 24] + bytes(32) + card[at + 56:]
    a.agent.add_remote_agent(wrong_key)
    state = a.move("WRITE", "odd", b.card()[1], [(0, 8)], [(0, 8)])
    ok(state == "nixlNotAllowedError", "a wrong key opens nothing", state)


def check_parameters():
    agent = nixl_agent("params", nixl_agent_config(backends=[]))
    for params, part in (({"nisc": "eth0"}, "parameter nisc is unknown"),
                         ({"timeout_ms": "soon"}, "timeout_ms=soon: must be a number"),
                         ({"trusted": "maybe"}, "trusted=maybe: must be yes or no"),
                         ({"advertise": "here"}, "'here' is not [NIC=]ADDRESS[:PORT]"),
                         ({"rails": "eth0;;/"}, "")):
        error = error_of(lambda p=params: agent.create_backend("HAWSER", p))
        options, _ = agent.agent.getPluginParams("HAWSER")
        ok(error == "nixlBackendError" and part in options.get("error", ""), f"{params} is refused with the reason",
           error, options)


def main():
    a, b = pair("a")
    check_death(a, b)
    check_idle_death()
    check_never_there()
    check_deadline()
    check_unanswered()
    check_cancel()
    check_deregister_in_flight()
    check_cancel_waiting()
    check_outside()
    check_metadata()
    check_parameters()
    return done()


if __name__ == "__main__":
    sys.exit(main())
