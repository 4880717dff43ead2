# SPDX-License-Identifier: Apache-2.0
"""One end of a transfer of bench/rivals: a process that executes requests, which are lines of JSON on stdin, and
answers with lines of JSON on stdout. Usage: endpoint.py CONFIG. CONFIG is JSON with the mover's name and the values
that movers.py reads."""
import ctypes
import json
import os
import select
import signal
import sys
import time

from compare.cases import lay_out
from compare.movers import MOVERS

CONNECT_S = 60  # for an agent's first write
WRITE_S = 60    # scenario `killed` kills the peer earlier


def answer(**words):
    os.write(1, (json.dumps(words) + "\n").encode())


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def read_lines(mover):
    """Yields the requests on stdin. In between, calls the mover's attend() if the mover is attending, until attend()
    returns False."""
    data, again = b"", True
    while True:
        ready, _, _ = select.select([0], [], [], 0 if again else None)
        if ready:
            more = os.read(0, 1 << 16)
            if not more:
                return
            data += more
            while b"\n" in data:
                line, data = data.split(b"\n", 1)
                yield json.loads(line)
        again = mover.attending and mover.attend()


def open_agents(mover, count=1):
    begun = time.perf_counter()
    for k in range(count):
        mover.open(f"agent{os.getpid()}-{k}")
    return {"seconds": time.perf_counter() - begun}


def connect_agents(mover, card):
    """Connects each agent of this process to the other end, and writes 8 bytes through it. Returns the elapsed
    seconds."""
    begun = time.perf_counter()
    for agent in mover.agents:
        mover.agent, mover.slots = agent, []
        mover.add(card)
        mover.prepare([[(0, 0, 8)]])
        state = move(mover, 0, CONNECT_S)["state"]
        if state != "done":
            raise RuntimeError(state)
    return {"seconds": time.perf_counter() - begun}


def move(mover, seconds, stall_s, least=1, depth=1):
    """Writes the slots cyclically, with `depth` requests in flight, for the given seconds and at least `least` times.
    Ends early if a request fails or has not ended after stall_s. Returns the end time and the duration of each
    request."""
    slots, begun, took, ends, state = len(mover.slots), time.monotonic(), [], [], "done"
    started, posted = {}, 0
    try:
        while True:
            now = time.monotonic()
            if len(started) < depth and (posted < least or now - begun < seconds):
                started[posted] = now
                mover.start(posted % slots)
                posted += 1
                continue
            if not started:
                break
            first = min(started)
            if not mover.finish(first % slots, started[first] + stall_s):
                state = "stalled"
                break
            ends.append(time.monotonic())
            took.append(ends[-1] - started.pop(first))
    except Exception as e:  # reported as the contender's answer
        state = f"{type(e).__name__}: {e}"
    return {"state": state, "begun": begun, "over": time.monotonic(), "ends": ends, "took": took}


def fork_target(mover):
    """Forks a process that opens an agent, answers with its PID and card, and attends until it is killed."""
    if os.fork():
        return
    die_with_parent()
    try:
        mover.open("target")
        answer(pid=os.getpid(), card=mover.card())
        while mover.attend():
            pass
        signal.pause()
    finally:
        os._exit(1)


def write_until_error(mover, card, case, stall_s):
    """Connects, answers with the result of the first write, and writes until a write fails, or for WRITE_S. Returns the
    error, and when it was raised."""
    try:
        mover.add(card)
        mover.prepare(lay_out(**case))
        first = move(mover, 0, stall_s)
        answer(**first)
        got = move(mover, WRITE_S, stall_s) if first["state"] == "done" else first
    except Exception as e:
        got = {"state": f"{type(e).__name__}: {e}", "over": time.monotonic(), "ends": []}
    mover.forget()
    return got


def obey(mover, do, words):
    if do == "open":
        return open_agents(mover, **words)
    if do == "connect":
        return connect_agents(mover, **words)
    if do == "card":
        return {"card": mover.card()}
    if do == "add":
        mover.add(**words)
    elif do == "prepare":
        mover.prepare(lay_out(**words))
    elif do == "move":
        return move(mover, **words)
    elif do == "write until error":
        return write_until_error(mover, **words)
    return {}


def main(config):
    die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed targets do not become zombies
    config = json.loads(config)
    mover = MOVERS[config["mover"]](config)
    answer(pid=os.getpid(), base=mover.buffer.base)
    for words in read_lines(mover):
        do = words.pop("do")
        try:
            if do == "fork":
                fork_target(mover)
                continue
            mover.attending = do == "attend"
            answer(**obey(mover, do, words))
        except Exception as e:  # the harness adds the contender's name
            answer(error=f"{type(e).__name__}: {e}")
    os._exit(0)  # with two UCX agents, the interpreter's exit ends in a segmentation fault


if __name__ == "__main__":
    main(sys.argv[1])
