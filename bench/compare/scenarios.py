# SPDX-License-Identifier: Apache-2.0
"""The scenarios of bench/rivals. Each returns a list of steps. A step is a name and a function of the round's number,
which measures one contender and stores the results in the book."""
import os
import random
import signal
import time

from compare.cases import CASES
from compare.memory import measure_process
from compare.nodes import FRAME_SHARE, Nodes, OneNode
from compare.pair import ANSWER_S, OPEN_S, STALL_S, Endpoint, Pair
from compare.run import Failure

SLOW_RATES = [2000, 2000, 2000, 500]  # Mb/s; low enough that the NICs and not two cores are the limit
DOWN_RATES, DOWN_NIC = [400] * 4, "eth1"
DOWN_AFTER_S, DOWN_FOR_S = 1.5, 4.5
MANY = 64
TYPED = ("nixlRemoteDisconnectError", "PeerDiedError")  # NIXL's and hawser's exceptions for a peer that has died
HELD = (("memory", "MB", 1e6), ("descriptors", "", 1), ("threads", "", 1))  # of measure_process(): name, unit, divisor
SMALL = {"pieces": 1, "size": 4 << 20, "slots": 2}


class Bench:
    """The objects that every scenario needs."""

    def __init__(self, run, book, contenders, args, hawser):
        self.run, self.book, self.contenders, self.args, self.hawser = run, book, contenders, args, hawser
        self.nodes = {}

    def make_nodes(self, nics=1, rates=None):
        """Returns nodes with these NICs and rates, which are created at the first call and remain until the end of the run."""
        key = (nics, tuple(rates or ()))
        if key not in self.nodes:
            if self.args.loopback:
                self.nodes[key] = OneNode(self.run, self.hawser, self.args.congestion)
            else:
                words = [f"{r}mbit" for r in rates] if rates else None
                self.nodes[key] = Nodes(self.run, self.hawser, nics, words, self.args.congestion)
        return self.nodes[key]

    def all_but_lists(self):
        return [c for c in self.contenders if not c.only_lists]

    def politely(self):
        """Returns the contenders that do not spin, for scenarios in which spinning makes no difference."""
        return [c for c in self.all_but_lists() if not c.name.endswith("-spin")]

    def seed(self, rnd):
        return 1 + rnd


def measure_cases(bench, contenders, names):
    nodes, failed = bench.make_nodes(), set()

    def measure_case(pair, label, case, rnd):
        try:
            m = pair.measure(case, bench.seed(rnd), bench.args.seconds)
        except Failure as e:
            if not pair.is_alive():
                raise
            failed.add(label)
            bench.run.skip(label, f"{e}; not tried again")
            return
        bench.book.put(label, "GB/s", rnd, m["median"])
        bench.book.put(f"{label} in all", "GB/s", rnd, m["whole"])
        bench.book.put(f"{label} cpu", "s/GB", rnd, m["cpu"])

    def make_step(contender):
        def step(rnd):
            with Pair(bench.run, nodes, contender, bench.args.plant) as pair:
                for name in names:
                    label = f"{contender.name} {name}"
                    if label not in failed:
                        measure_case(pair, label, CASES[name], rnd)
        return f"{contender.name} {', '.join(names)}", step
    return [make_step(c) for c in contenders]


def measure_lists(bench):
    return measure_cases(bench, bench.contenders, ["1024x64K", "8192x4K"])


def measure_single(bench):
    return measure_cases(bench, bench.all_but_lists(), ["64K", "1M", "16M", "64M"])


def measure_nics(bench):
    """Measures with four NICs, the last at a quarter of the others' rate, and two requests of 64 MiB in flight."""
    nodes, total = bench.make_nodes(4, SLOW_RATES), sum(SLOW_RATES) / 8e3

    def make_step(contender):
        def step(rnd):
            with Pair(bench.run, nodes, contender, bench.args.plant) as pair:
                got = pair.measure(CASES["64M"], bench.seed(rnd), 3 * bench.args.seconds, depth=2)["whole"]
            if got > total * 1.02:
                raise Failure(f"{got:.3f} GB/s is more than the rates' {total:.3f}: they are not in force")
            bench.book.put(f"{contender.name} 4 NICs", "GB/s", rnd, got)
            bench.book.fix("sum of the rates", rnd, total)
            bench.book.fix("payload of the rates", rnd, total * FRAME_SHARE)
        return f"{contender.name} 4 NICs", step
    return [make_step(c) for c in bench.politely()]


def put_down(bench, rnd, name, got, at, case):
    """Stores the results of a run in which a NIC was down from time `at`: the rates before and after, and the
    longest request. If a contender stalls, the time until the stall was noticed counts."""
    before = [e for e in got["ends"] if e <= at]
    after = [e for e in got["ends"] if e > at]
    if before:
        bench.book.put(f"{name}: before", "GB/s", rnd, len(before) * case["size"] / 1e9 / (at - got["begun"]))
    bench.book.put(f"{name}: after", "GB/s", rnd, len(after) * case["size"] / 1e9 / (got["over"] - at))
    bench.book.put(f"{name}: longest", "ms", rnd, 1e3 * max([*got["took"], 0]))
    good = got["state"] == "done"
    bench.book.put(f"{name}: no failure", "", rnd, float(good))
    if not good:
        why = f"did not end in {STALL_S} s" if got["state"] == "stalled" else got["state"]
        raise Failure(f"{len(got['ends'])} requests of {case['size'] >> 20} MiB ended, the next one: {why}")


def measure_down(bench):
    """Measures with four NICs of the same rate. The second goes down during requests of 16 MiB, or before all of them,
    and stays down."""
    nodes, case = bench.make_nodes(4, DOWN_RATES), CASES["16M"]

    def step_while(contender, rnd):
        with Pair(bench.run, nodes, contender, bench.args.plant) as pair:
            pair.begin(case, bench.seed(rnd))
            pair.a.tell("move", seconds=DOWN_AFTER_S + DOWN_FOR_S, least=case["slots"], stall_s=STALL_S)
            time.sleep(DOWN_AFTER_S)
            at = time.monotonic()
            nodes.set_link("a", DOWN_NIC, False)
            got = pair.a.read(DOWN_FOR_S + STALL_S + ANSWER_S)
            put_down(bench, rnd, f"{contender.name} NIC goes", got, at, case)
            pair.verify()

    def step_before(contender, rnd):
        nodes.set_link("a", DOWN_NIC, False)
        with Pair(bench.run, nodes, contender, bench.args.plant) as pair:
            pair.begin(case, bench.seed(rnd))
            got = pair.a.ask("move", DOWN_FOR_S + STALL_S + ANSWER_S, seconds=2, least=case["slots"], stall_s=STALL_S)
            put_down(bench, rnd, f"{contender.name} NIC is away", got, got["begun"], case)
            pair.verify()

    def make_step(contender, step):
        def with_links(rnd):
            try:
                step(contender, rnd)
            finally:
                nodes.set_link("a", DOWN_NIC, True)
                time.sleep(0.5)  # until the NIC is in use again
        return with_links
    return [(f"{c.name} {name}", make_step(c, step)) for c in bench.politely()
            for name, step in (("NIC goes", step_while), ("NIC is away", step_before))]


def measure_agents(bench):
    """Measures one agent and then 64 of one process: the time to open them and to connect them to one other agent, and
    the memory, file descriptors and threads of the process in each case."""
    nodes = bench.make_nodes()

    def put_held(name, rnd, first, last, count):
        for what, unit, scale in HELD:
            bench.book.put(f"{name}: {what} each", unit, rnd, (last[what] - first[what]) / scale / count)

    def make_step(contender):
        def step(rnd):
            ends = []
            try:
                for node in "ab":
                    ends.append(Endpoint(bench.run, nodes, node, contender, 1 << 20))
                a, b = ends
                b.ask("open", OPEN_S)
                card = b.ask("card")["card"]
                b.ask("attend")
                nothing = measure_process(a.pid)
                first = a.ask("open", OPEN_S)["seconds"]
                took = a.ask("connect", OPEN_S, card=card)["seconds"]
                bench.book.put(f"{contender.name} 1 agent: open", "ms", rnd, 1e3 * first)
                bench.book.put(f"{contender.name} 1 agent: connect", "ms", rnd, 1e3 * took)
                one = measure_process(a.pid)
                put_held(f"{contender.name} 1 agent", rnd, nothing, one, 1)
                rest = a.ask("open", bench.args.patience, count=MANY - 1)["seconds"]
                bench.book.put(f"{contender.name} {MANY} agents: open", "s", rnd, first + rest)
                took = a.ask("connect", bench.args.patience, card=card)["seconds"]
                bench.book.put(f"{contender.name} {MANY} agents: connect", "s", rnd, took)
                put_held(f"{contender.name} {MANY} agents", rnd, one, measure_process(a.pid), MANY - 1)
            finally:
                for end in ends:
                    end.close()
        return f"{contender.name} agents", step
    return [make_step(c) for c in bench.politely()]


def kill_target(a, b):
    """Kills a target during a write to it. Returns the error, and the seconds from the kill to the error."""
    b.tell("fork")
    target = b.read(OPEN_S)
    a.tell("write until error", card=target["card"], case=SMALL, stall_s=STALL_S)
    first = a.read(OPEN_S)
    if first["state"] != "done":
        raise Failure(f"the first write: {first['state']}")
    time.sleep(random.uniform(0, 0.02))
    at = time.monotonic()
    os.kill(target["pid"], signal.SIGKILL)
    got = a.read(ANSWER_S + STALL_S)
    if got["state"] == "stalled":
        raise Failure(f"the write did not end in {STALL_S} s")
    return got["state"], got["over"] - at


def measure_killed(bench):
    """Kills many targets, one after the other, each during writes of 4 MiB. The writing process continues."""
    nodes, count = bench.make_nodes(), bench.args.kills

    def put_kills(name, rnd, states, took, held):
        took.sort()
        other = [s for s in states if not s.startswith(TYPED)]
        bench.book.put(f"{name}: typed errors", "", rnd, 1 - len(other) / len(states))
        bench.book.put(f"{name}: p50", "ms", rnd, 1e3 * took[len(took) // 2])
        bench.book.put(f"{name}: longest", "ms", rnd, 1e3 * took[-1])
        for what, unit, scale in HELD:
            bench.book.put(f"{name}: {what} grown", unit, rnd, (held[-1][what] - held[0][what]) / scale)
        if other:
            raise Failure(f"other errors: {sorted(set(other))[:3]}")

    def make_step(contender):
        def step(rnd):
            ends, states, took, held = [], [], [], []
            try:
                for node in "ab":
                    ends.append(Endpoint(bench.run, nodes, node, contender, SMALL["size"] * SMALL["slots"]))
                a, b = ends
                a.ask("open", OPEN_S)
                for k in range(count):
                    state, seconds = kill_target(a, b)
                    states.append(state)
                    took.append(seconds)
                    if k == count // 10:
                        held.append(measure_process(a.pid))
                time.sleep(0.5)
                held.append(measure_process(a.pid))
            except Failure as e:
                raise Failure(f"kill {len(states) + 1} of {count}: {e}") from None
            finally:
                for end in ends:
                    end.close()
            put_kills(f"{contender.name} {count} kills", rnd, states, took, held)
        return f"{contender.name} {count} kills", step
    return [make_step(c) for c in bench.politely()]


SCENARIOS = {  # name: function that makes the steps, maximum number of rounds
    "lists": (measure_lists, None),
    "single": (measure_single, None),
    "nics": (measure_nics, None),
    "down": (measure_down, None),
    "agents": (measure_agents, 1),
    "killed": (measure_killed, 1),
}
