#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates the table of bounds in docs/security.md from the constants in the source.

    scripts/bounds.py            writes the table between its two marker lines
    scripts/bounds.py --check    checks, as a TAP test, that the page has this table; shows differences and exits 1 if not
    scripts/bounds.py --print    prints the table

A row refers to constants. An expression may use names that its file defines, names from
all headers in lib/, from nixl/blob.h and from include/hawser.h, and knob.NAME for a knob's default. A pattern in place
of an expression finds the expression in the file's code."""
import ast
import difflib
import operator
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/security.md"
BEGIN, END = "<!-- bounds: scripts/bounds.py writes what follows -->", "<!-- bounds: end -->"

PEER, LINK = "lib/message/peer.h", "lib/core/link.h"
METRICS = "lib/context/metrics.h"
CONTEXT, LISTENER, WAYS = "lib/context/context.c", "lib/context/listener.c", "lib/context/ways.c"

WINDOW = re.compile(r"\.window = ([^,]+),")
DEAD = re.compile(r"\.dead = ([^,]+),")
PARTIAL = re.compile(r"partial_max = ([^;]+);")
READY = re.compile(r"ready_max = ([^;]+);")
ANSWER_IN = re.compile(r"answer_in = ([^;]+);")

# Each part has rows of: expression or pattern, file, unit, the bounded quantity, the behaviour beyond the bound.
TABLE = [
    ("What this side stores for an authenticated peer", [
        ("HW_CONTROL_WINDOW", PEER, "", "control messages that have arrived and are not processed yet", "the rail ends"),
        ("HW_CONTROLS", PEER, "", "answers and refusals that wait to be sent", "the peer is dropped"),
        ("HW_NOTES", PEER, "bytes", "notifications that the application has not read", "the rail ends"),
        ("HW_NOTE_MAX", PEER, "bytes", "one notification", "the rail ends"),
        ("HW_NOTE_COST", PEER, "bytes", "bytes added for each notification or eager message when these are counted", ""),
        ("HW_EAGER_ROOM", PEER, "bytes", "eager messages that no receive has matched", "the rail ends"),
        ("HW_MSG_EAGER_MAX", "lib/wire/message.h", "bytes", "one eager message", "the rail ends"),
        ("HW_QUEUES_BOTH", PEER, "", "queues with operations in flight, including those of this side", "the peer is dropped"),
        ("HW_QUEUES", PEER, "", "streams that one side has closed and the other has not", "the peer is dropped"),
        ("HW_OPS", PEER, "", "receives of the peer that no send has matched", "the peer is dropped"),
        ("HW_OPS", PEER, "", "counters for the peer's writes with a notification", "the rail ends"),
        ("HW_READS", PEER, "", "read requests of the peer that are not yet divided into frames completely", "the rail ends"),
        ("HW_READS + HW_RAIL_LINKS * HW_LINK_FLIGHT", PEER, "",
         "read requests of the peer with an answer that it has not confirmed completely, for one rail; each further rail allows "
         "as many more as its links may have in flight", "the rail ends"),
        ("HW_REQUEST", PEER, "bytes", "one read request", "the rail ends"),
        ("HW_MSG_VECS_MAX", "lib/wire/message.h", "", "descriptors of one request, or of one frame of a write",
         "the rail ends"),
        ("HW_HANDLES", "lib/message/region.h", "", "handles to this side's regions", "the peer gets ENOSPC"),
        ("HW_SESSION_RAILS", "lib/core/session.h", "", "rails", "the connection is refused"),
        ("HW_RAIL_LINKS", "lib/wire/word.h", "", "links of a rail", "the connection is refused"),
        ("HW_SESSION_RAILS * HW_RAIL_LINKS", "lib/core/session.h", "",
         "established connections, and as many again that are being established; each needs a file descriptor", "refused"),
        ("2 * HW_LINK_BUF", LINK, "bytes", "buffers of a link", "nothing more is read"),
        ("HW_LINK_EXT_MAX", "lib/wire/link.h", "bytes", "the extension of a frame", "the rail ends"),
        ("HW_LINK_PAY_MAX", "lib/wire/link.h", "bytes", "the payload of a frame; it is stored in place without a buffer",
         "the rail ends"),
        ("HW_LINK_FLIGHT", LINK, "", "frames of this side in flight on a link", "nothing more is sent"),
        (WINDOW, CONTEXT, "bytes", "bytes of this side in flight on a link", "nothing more is sent"),
    ]),
    ("What the backend stores for a NIXL agent that has the key", [
        ("HX_NOTE_MAX", "nixl/blob.h", "bytes", "incomplete notifications", "the oldest is dropped"),
        (PARTIAL, "nixl/agent.cc", "", "incomplete notifications of one agent", "the oldest is dropped"),
        (READY, "nixl/agent.cc", "bytes", "notifications of all agents that are read before the application's call",
         "nothing more is read, and senders wait"),
        ("HX_NAME_MAX", "nixl/blob.h", "bytes", "an agent's name", "the connection is closed"),
    ]),
    ("This side's own use of a peer", [
        ("HW_OPS", PEER, "", "operations in flight", "-EAGAIN"),
        ("HW_CONTROLS", PEER, "", "control messages of this side's operations that wait to be sent", "-EAGAIN"),
        ("HW_READS", PEER, "", "read requests that the peer has not answered completely", "further requests wait"),
        ("HW_LANDINGS", "lib/message/landing.h", "", "landings", "the operation fails, or waits"),
        ("HW_HANDLES", "lib/message/region.h", "", "imports of the peer's regions", "-ENOMEM"),
    ]),
    ("Connections that are not authenticated", [
        ("SLOTS", LISTENER, "", "connections whose setup is not complete, each with a file descriptor",
         "a new connection replaces one that is not authenticated; others wait in the kernel's queue"),
        ("HW_HELLO_SIZE + HW_PROOF_SIZE", "lib/wire/wire.h", "bytes",
         "bytes read from a connection before it is authenticated", ""),
        ("HW_SETUP_FRAME", "lib/context/context.h", "bytes", "a client's SETUP, after its proof", "refused"),
        ("HW_SETUP_MAX", "lib/wire/wire.h", "", "NICs that a server may list", "the client closes the connection"),
        ("LOGS_PER_SECOND", LISTENER, "", "log lines per second about refused connections", "further ones are only counted"),
        ("knob.max_peers", LISTENER, "", "peers of a context (knob `max_peers`)", "refused"),
    ]),
    ("Readers of the local socket for metrics: the same user, or root", [
        ("BACKLOG", "lib/context/metrics.c", "", "readers that wait", "they cannot connect"),
        ("HW_METRICS_APART_MS", METRICS, "ms", "pause after each reader", "the next reader waits"),
        ("HW_METRICS_READ_MS", METRICS, "ms", "time that a reader may take", "the reader is dropped"),
        ("HW_METRICS_PEERS", METRICS, "", "peers that are listed", "further peers are combined into one"),
        ("HW_METRICS_ROWS", METRICS, "", "pairs of NICs of these peers", "further pairs are combined into one"),
        ("HW_METRICS_NICS", METRICS, "", "local NICs of the combined peer", "the last NIC includes the rest"),
    ]),
    ("CPU time: one turn of a loop", [
        ("TASKS", "lib/core/driver.c", "", "tasks and timers", "they wait for the next turn"),
        ("EVENTS", "lib/core/driver.c", "", "file descriptors that are processed", "they wait for the next turn"),
        ("TURN_STEPS", "lib/core/rail.c", "", "reads from a link, and as many writes", "other rails come first"),
        ("TURN_PIECES", "lib/core/rail.c", "", "pieces of memory of one read or write", ""),
        ("STAGED_READS", "lib/transport/tcp/tcp.c", "", "consecutive reads into a staging ring", "other rails come first"),
        ("SLOTS", LISTENER, "", "consecutive accepted connections", "further ones wait for the next turn"),
    ]),
    ("Time", [
        ("knob.handshake_ms", LISTENER, "ms", "HELLO and proof, and then ASK (knob `handshake_ms`)", "closed"),
        ("knob.path_ms + knob.handshake_ms", LISTENER, "ms", "a client's SETUP (knobs `path_ms` and `handshake_ms`)", "closed"),
        ("DEFER_SECONDS", LISTENER, "s", "time that a connection without data waits in the kernel", "it is accepted"),
        ("knob.stall_ms", "lib/transport/tcp/sock.c", "ms", "time that TCP waits for an acknowledgement (knob `stall_ms`)",
         "the rail ends"),
        (DEAD, CONTEXT, "ns",
         "silence of a rail, or lack of progress of its frames in flight (knob `peer_timeout_ms`)", "the rail ends"),
        (DEAD, CONTEXT, "ns", "silence of a peer on all rails", "the peer is dropped"),
        (ANSWER_IN, "lib/message/peer.c", "ns",
         "time for the peer to report the result of a canceled operation", "the peer is dropped"),
        ("HW_PATIENCE", PEER, "ns",
         "time that the caller waits for this report; with HAWSER_TRUSTED, about 1 s for a write or a send",
         "the operation ends for the caller"),
        ("GONE_MS", WAYS, "ms", "time for a client that has closed its last connection to open a new one", "the peer is dropped"),
        ("BYE_MS", "lib/context/peer.c", "ms",
         "time that `hawser_peer_close()` waits for the peer to be informed", "the call continues"),
        ("CLOSE_MS", "lib/context/peer.c", "ms", "time for a peer that has announced its close to close its connections",
         "the peer is dropped"),
        ("HW_COPIES_WAIT_MS", "lib/transport/tcp/copies.h", "ms",
         "time for each queue of copies of a device whose memory is being released", "the rail ends"),
    ]),
]

DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+?)[ \t]*(?:/\*.*)?$", re.M)
KNOB = re.compile(r'\{"(\w+)", AT\(\w+\), (COUNT|SIZE), "([^"]+)"')
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Structure members that expressions use, with the pattern and the file of each member's own expression.
MEMBERS = {"limits->dead": (DEAD, CONTEXT)}
OPS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
       ast.LShift: operator.lshift, ast.RShift: operator.rshift}


class Fault(Exception):
    """Raised if a row refers to a definition that no longer exists in the source."""


def read_defines(path):
    """Returns a dict that maps the names of the constants in a file to their expressions."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    return {m[1]: m[2] for m in DEFINE.finditer(text)}


class Source:
    def __init__(self, root):
        self.root = root
        self.shared = {}
        for header in sorted(root.glob("lib/**/*.h")) + [root / "nixl/blob.h", root / "include/hawser.h"]:
            self.shared.update(read_defines(header))
        self.knobs = {m[1]: m[3] for m in KNOB.finditer((root / "lib/base/knob.c").read_text(encoding="utf-8"))}

    def knob(self, name):
        m = re.fullmatch(r"(\d+)(\w*)", self.knobs.get(name, ""))
        if not m or m[2] not in UNITS:
            raise Fault(f"knob {name} does not exist or is not a number")
        return int(m[1]) * UNITS[m[2]]

    def find(self, pattern, file):
        """Returns the expression that the pattern finds in a file's code."""
        found = pattern.findall((self.root / file).read_text(encoding="utf-8"))
        if len(set(found)) != 1:
            raise Fault(f"{file} has {len(set(found))} expressions that match {pattern.pattern}")
        return found[0]

    def value(self, expression, file):
        for member, (pattern, where) in MEMBERS.items():
            if member in expression:
                expression = expression.replace(member, f"({self.value(self.find(pattern, where), where)})")
        own = read_defines(self.root / file) if file.endswith(".c") else {}
        text = re.sub(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", expression)
        text = re.sub(r"\bh->k\.", "knob.", text)
        try:
            return self.walk(ast.parse(text.strip(), mode="eval").body, own, file)
        except SyntaxError:
            raise Fault(f"{file}: \"{expression}\" is not a constant") from None

    def walk(self, node, own, file):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            text = own.get(node.id, self.shared.get(node.id))
            if text is None:
                raise Fault(f"{file}: there is no {node.id}")
            return self.value(text, file)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "knob":
            return self.knob(node.attr)
        if isinstance(node, ast.BinOp) and type(node.op) in OPS:
            return OPS[type(node.op)](self.walk(node.left, own, file), self.walk(node.right, own, file))
        raise Fault(f"{file}: \"{ast.unparse(node)}\" is not a constant")


def show(value, unit):
    if unit == "bytes":
        for name, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value >= size and value % size == 0:
                return f"{value // size} {name}"
        return f"{value} bytes"
    if unit == "ns":
        value, unit = value // 1000000, "ms"
    if unit == "ms" and value >= 1000 and value % 1000 == 0:
        value, unit = value // 1000, "s"
    return f"{value:,} {unit}".strip()


def make_table(source):
    lines = []
    for part, rows in TABLE:
        lines += ["", f"**{part}**", "", "| what | at most | name | beyond that |", "|---|---:|---|---|"]
        for expression, file, unit, what, beyond in rows:
            pattern = isinstance(expression, re.Pattern)
            name = f"in `{file}`" if pattern else "`" + expression.replace("knob.", "") + "`"
            constant = source.find(expression, file) if pattern else expression
            if not pattern and file.endswith(".h"):
                for word in re.findall(r"\b[A-Z]\w+", expression):
                    if word not in source.shared:
                        raise Fault(f"{file}: there is no {word}")
            lines.append(f"| {what} | {show(source.value(constant, file), unit)} | {name} | {beyond} |")
    return "\n".join(lines[1:]) + "\n"


def main(*args):
    page = PAGE.read_text(encoding="utf-8")
    try:
        table = make_table(Source(ROOT))
    except Fault as fault:
        print(f"Bail out! scripts/bounds.py: {fault}" if "--check" in args else f"scripts/bounds.py: {fault}")
        return 1
    if "--print" in args:
        print(table, end="")
        return 0
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        print(f"scripts/bounds.py: {PAGE.name} must have each marker line exactly once")
        return 1
    before, rest = page.split(BEGIN)
    now, after = rest.split(END)
    if "--check" in args:
        same = now.strip() == table.strip()
        print(f"{'' if same else 'not '}ok 1 - the bounds in docs/security.md are those of the source")
        diff = difflib.unified_diff(now.strip().splitlines(), table.strip().splitlines(), "page", "source", "", "", 0)
        for line in () if same else diff:
            print(f"# {line.strip()}")
        print("1..1")
        return 0 if same else 1
    PAGE.write_text(f"{before}{BEGIN}\n{table}{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
