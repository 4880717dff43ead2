# SPDX-License-Identifier: Apache-2.0
"""Two processes of one contender, one in each node. The first writes to the second's memory, which the harness then
reads."""
import json
import os
import select
import statistics
import sys
import time

from compare.cases import BUFFER, make_expected
from compare.memory import find_difference, measure_process, read_memory, write_memory
from compare.run import Failure

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "endpoint.py")
OPEN_S, ANSWER_S, STALL_S = 60, 20, 10
GUARD = 4096  # bytes after the written range, which must not change


class Endpoint:
    def __init__(self, run, nodes, node, contender, size=BUFFER):
        self.run, self.name, self.text = run, contender.name, b""
        hosts = nodes.address(node), nodes.address("ba"["ab".index(node)])
        config = contender.config | {"host": hosts[0], "peer_host": hosts[1], "size": size + GUARD}
        argv = [contender.python or sys.executable, SCRIPT, json.dumps(config)]
        self.child = run.spawn(nodes.on(node, argv), env=contender.environment(nodes), talk=True)
        try:
            hello = self.read(OPEN_S)
        except Failure:
            self.close()
            raise
        self.pid, self.base = hello["pid"], hello["base"]

    def tell(self, do, **words):
        self.child.stdin.write((json.dumps({"do": do} | words) + "\n").encode())

    def read(self, within):
        """Returns the next answer. Raises Failure if there is none within the given seconds, or if it is an error."""
        end = time.monotonic() + within
        while b"\n" not in self.text:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                raise Failure(f"{self.name} did not answer in {within:.0f} s")
            more = os.read(self.child.stdout.fileno(), 1 << 20)
            if not more:
                self.child.log.seek(0)
                raise Failure(f"{self.name} ended with {self.child.wait()}: {self.child.log.read().strip()[-300:]}")
            self.text += more
        line, self.text = self.text.split(b"\n", 1)
        words = json.loads(line)
        if "error" in words:
            raise Failure(f"{self.name}: {words['error']}")
        return words

    def ask(self, do, within=ANSWER_S, **words):
        self.tell(do, **words)
        return self.read(within)

    def close(self):
        self.run.stop(self.child)


class Pair:
    """Both ends, with open agents; the first end has the connection information (card) of the second. plant: damages a
    byte of the receiver's memory before it is compared."""

    def __init__(self, run, nodes, contender, plant=False):
        self.contender, self.plant, self.ends, self.usable = contender, plant, [], True
        try:
            for node in "ab":
                self.ends.append(Endpoint(run, nodes, node, contender))
            self.a, self.b = self.ends
            for end in self.ends:
                end.ask("open", OPEN_S)
            self.a.ask("add", card=self.b.ask("card")["card"])
            self.b.ask("attend")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for end in self.ends:
            end.close()

    def is_alive(self):
        """Returns whether another case can be tried: both processes run, and every request has ended."""
        return self.usable and all(end.child.poll() is None for end in self.ends)

    def begin(self, case, seed):
        """Writes the sender's bytes, prepares the requests, moves each once, and then clears the receiver's memory."""
        sent, self.expected = make_expected(seed, case)
        write_memory(self.a.pid, self.a.base, sent)
        self.a.ask("prepare", **case)
        self.checked_move(0, case["slots"])
        write_memory(self.b.pid, self.b.base, bytes(len(sent) + GUARD))

    def checked_move(self, seconds, least, depth=1):
        got = self.a.ask("move", seconds + ANSWER_S + STALL_S, seconds=seconds, least=least, depth=depth,
                         stall_s=STALL_S)
        if got["state"] == "stalled":
            self.usable = False
            raise Failure(f"a transfer did not end in {STALL_S} s")
        if got["state"] != "done":
            raise Failure(got["state"])
        return got

    def verify(self):
        """Raises Failure if the receiver's memory is not as expected. Returns the size of the expected data."""
        size = len(self.expected)
        if self.plant:
            byte = read_memory(self.b.pid, self.b.base + size // 2, 1)
            write_memory(self.b.pid, self.b.base + size // 2, bytes([byte[0] ^ 1]))
        got = read_memory(self.b.pid, self.b.base, size + GUARD)
        pages, first = find_difference(got, bytes(self.expected) + bytes(GUARD))
        if pages:
            raise Failure(f"wrong bytes in {pages} pages, the first at {first} of {size}")
        return size

    def measure(self, case, seed, seconds, depth=1):
        """Moves a case's slots for the given seconds, and verifies every slot's bytes. Returns the GB/s of the whole
        time, the GB/s of the median request, which other work on the machine affects less, and both processes' CPU
        seconds per GB."""
        self.begin(case, seed)
        before = sum(measure_process(e.pid)["cpu_s"] for e in self.ends)
        got = self.checked_move(seconds, case["slots"], depth)
        cpu = sum(measure_process(e.pid)["cpu_s"] for e in self.ends) - before
        self.verify()
        each = case["pieces"] * case["size"] / 1e9
        moved = each * len(got["ends"])
        return {"whole": moved / (got["ends"][-1] - got["begun"]), "median": each / statistics.median(got["took"]),
                "cpu": cpu / moved}
