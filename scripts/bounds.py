#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of bounds in docs/security.md, from the constants in the source.

    scripts/bounds.py            writes the table between its two marker lines
    scripts/bounds.py --check    exits 1, and shows what differs, where the page has another table (TAP)
    scripts/bounds.py --print    prints it

A row names constants and never has a value of its own. An expression may use the names that its file defines, those of
all headers in lib/ and nixl/blob.h, and knob.NAME for a knob's default. A pattern in its place finds the expression in the file's code."""
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

# Part, rows of: expression or pattern, file, unit, what it bounds, what happens beyond it.
TABLE = [
    ("A peer that has proved the key: what this side holds for it", [
        ("HW_CONTROL_WINDOW", PEER, "", "control messages that came and were not read", "the peer is dropped"),
        ("HW_CONTROLS", PEER, "", "control messages that wait to be sent: answers, refusals, and what this side has to say",
         "the peer is dropped"),
        ("HW_NOTES", PEER, "bytes", "notifications that the application has not taken", "the rail ends"),
        ("HW_NOTE_MAX", PEER, "bytes", "one notification", "the rail ends"),
        ("HW_NOTE_COST", PEER, "bytes", "what each notification or eager message counts besides its own bytes", ""),
        ("HW_EAGER_ROOM", PEER, "bytes", "eager messages that no receive has met", "the rail ends"),
        ("HW_MSG_EAGER_MAX", "lib/wire/message.h", "bytes", "one eager message", "the rail ends"),
        ("HW_QUEUES", PEER, "", "queues with something in flight", "the peer is dropped"),
        ("HW_QUEUES", PEER, "", "streams that one side has closed and the other has not", "the peer is dropped"),
        ("HW_OPS", PEER, "", "receives of the peer's that nothing was sent to yet", "the peer is dropped"),
        ("HW_OPS", PEER, "", "counts of the peer's writes with a notification", "the rail ends"),
        ("HW_READS", PEER, "", "requests of the peer's of which not all was cut into frames", "the rail ends"),
        ("HW_READS + HW_RAIL_LINKS * HW_LINK_FLIGHT", PEER, "",
         "requests of the peer's of which it has not confirmed the whole answer, with one rail; each further one allows as many "
         "as its links may have in flight", "the rail ends"),
        ("HW_REQUEST", PEER, "bytes", "one request of a read", "the rail ends"),
        ("HW_MSG_VECS_MAX", "lib/wire/message.h", "", "descriptors of one request, or of one frame of a write",
         "the rail ends"),
        ("HW_HANDLES", "lib/message/region.h", "", "handles to this side's regions", "the peer gets ENOSPC"),
        ("HW_SESSION_RAILS", "lib/core/session.h", "", "rails", "the connection is refused"),
        ("HW_RAIL_LINKS", "lib/wire/word.h", "", "links of a rail", "the connection is refused"),
        ("HW_SESSION_RAILS * HW_RAIL_LINKS", "lib/core/session.h", "",
         "connections that stand, and as many that are being made: a descriptor each", "refused"),
        ("2 * HW_LINK_BUF", LINK, "bytes", "buffers of a link", "no more is read"),
        ("HW_LINK_EXT_MAX", "lib/wire/link.h", "bytes", "extension of a frame", "the rail ends"),
        ("HW_LINK_PAY_MAX", "lib/wire/link.h", "bytes", "payload of a frame; it goes to its place unbuffered",
         "the rail ends"),
        ("HW_LINK_FLIGHT", LINK, "", "frames of this side's in flight on a link", "no more is sent"),
        (WINDOW, CONTEXT, "bytes", "bytes of this side's in flight on a link", "no more is sent"),
    ]),
    ("A NIXL agent that has the key: what the backend holds for it", [
        ("HX_NOTE_MAX", "nixl/blob.h", "bytes", "notifications of which pieces are missing", "the oldest is dropped"),
        (PARTIAL, "nixl/agent.cc", "", "such notifications", "the oldest is dropped"),
        (READY, "nixl/agent.cc", "bytes", "notifications of all agents that are taken ahead of the application's call",
         "no more is taken: senders wait"),
        ("HX_NAME_MAX", "nixl/blob.h", "bytes", "an agent's name", "the connection is closed"),
    ]),
    ("This side's own use of a peer", [
        ("HW_OPS", PEER, "", "operations in flight", "-EAGAIN"),
        ("HW_READS", PEER, "", "requests of reads that the peer has not answered whole", "they wait"),
        ("HW_LANDINGS", "lib/message/landing.h", "", "landings", "the operation fails, or waits"),
        ("HW_HANDLES", "lib/message/region.h", "", "imports of the peer's regions", "-ENOMEM"),
    ]),
    ("Strangers", [
        ("SLOTS", LISTENER, "", "connections that have not said all, each with a descriptor",
         "a newcomer takes the place of a stranger's; others wait in the kernel's queue"),
        ("HW_HELLO_SIZE + HW_PROOF_SIZE", "lib/wire/wire.h", "bytes", "what is read of one before it has proved the key", ""),
        ("HW_SETUP_FRAME", "lib/context/context.h", "bytes", "a client's SETUP, after its proof", "refused"),
        ("HW_SETUP_MAX", "lib/wire/wire.h", "", "NICs that a server may name", "the client leaves"),
        ("LOGS_PER_SECOND", LISTENER, "", "lines a second on refused connections", "they are counted"),
        ("knob.max_peers", LISTENER, "", "peers of a context (knob `max_peers`)", "refused"),
    ]),
    ("Readers of the local socket for metrics: the same user, or root", [
        ("BACKLOG", "lib/context/metrics.c", "", "readers that wait", "they cannot connect"),
        ("HW_METRICS_APART_MS", METRICS, "ms", "from one reader to the next, at least", "they wait"),
        ("HW_METRICS_READ_MS", METRICS, "ms", "a reader that does not read, which others wait for", "the reader is dropped"),
        ("HW_METRICS_PEERS", METRICS, "", "peers that are listed", "they are summed up as one"),
        ("HW_METRICS_ROWS", METRICS, "", "pairs of NICs of these", "likewise"),
        ("HW_METRICS_NICS", METRICS, "", "local NICs of the peer that stands for the others", "the last one has the rest"),
    ]),
    ("CPU time: one turn of a loop", [
        ("TASKS", "lib/core/driver.c", "", "tasks and timers", "they wait for the next turn"),
        ("EVENTS", "lib/core/driver.c", "", "descriptors that are looked at", "likewise"),
        ("TURN_STEPS", "lib/core/rail.c", "", "reads of a link, and as many writes", "other rails come first"),
        ("TURN_PIECES", "lib/core/rail.c", "", "pieces of memory of one read or write", ""),
        ("STAGED_READS", "lib/transport/tcp/tcp.c", "", "reads into a staging ring in a row", "likewise"),
        ("SLOTS", LISTENER, "", "connections that are accepted in a row", "likewise"),
    ]),
    ("Time", [
        ("knob.handshake_ms", LISTENER, "ms", "HELLO and proof; then ASK (knob `handshake_ms`)", "closed"),
        ("knob.path_ms + knob.handshake_ms", LISTENER, "ms", "a client's SETUP (knobs `path_ms` and `handshake_ms`)", "closed"),
        ("DEFER_SECONDS", LISTENER, "s", "a connection that sends nothing waits in the kernel", "it takes a place"),
        ("knob.stall_ms", "lib/transport/tcp/sock.c", "ms", "data that TCP has no acknowledgement for (knob `stall_ms`)",
         "the rail ends"),
        (DEAD, CONTEXT, "ns",
         "silence of a rail; frames in flight that make no progress (knob `peer_timeout_ms`)", "the rail ends"),
        (DEAD, CONTEXT, "ns", "a peer that is heard by no rail", "the peer is dropped"),
        (ANSWER_IN, "lib/message/peer.c", "ns",
         "what became of an operation that was called off, unsaid by the peer", "the peer is dropped"),
        ("HW_PATIENCE", PEER, "ns", "the same, as far as the caller waits for it", "the operation ends for the caller"),
        ("GONE_MS", WAYS, "ms", "a client whose process closed its last connection", "the peer is dropped"),
        ("BYE_MS", "lib/context/peer.c", "ms", "`hawser_peer_close()`: until the peer has heard of it", "it goes on"),
        ("HW_COPIES_WAIT_MS", "lib/transport/tcp/copies.h", "ms", "copies of a device that memory is taken back from",
         "the rail ends"),
    ]),
]

DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+?)[ \t]*(?:/\*.*)?$", re.M)
KNOB = re.compile(r'\{"(\w+)", AT\(\w+\), (COUNT|SIZE), "([^"]+)"')
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Members of structures that an expression of the code may name: where their own expression is.
MEMBERS = {"limits->dead": (DEAD, CONTEXT)}
OPS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
       ast.LShift: operator.lshift, ast.RShift: operator.rshift}


class Fault(Exception):
    """A row that the source does not have any more."""


def read_defines(path):
    """Name -> expression, of the constants that a file defines."""
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
            raise Fault(f"knob {name} is gone, or is no number")
        return int(m[1]) * UNITS[m[2]]

    def find(self, pattern, file):
        """The expression in a file's code."""
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
            raise Fault(f"{file}: \"{expression}\" is no constant") from None

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
        raise Fault(f"{file}: \"{ast.unparse(node)}\" is no constant")


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
        print(f"scripts/bounds.py: {PAGE.name} has no place for the table")
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
