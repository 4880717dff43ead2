#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of results in docs/field/README.md from the files docs/field/*.json. With --check, writes nothing and
exits with status 1 if the table is out of date. Usage: field_table.py [--check]"""
import json
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs/field"
BEGIN, END = "<!-- table -->\n", "<!-- end -->\n"
HEADS = ("result", "kernel", "NICs", "GPUs", "plain", "sum", "iperf3", "NIXL", "lists", "latency", "findings")


def ratio(a, b):
    return f"{a / b:.2f}" if a and b else "-"


def find(d, nic, test, key, last=False):
    values = [r[key] for r in d["bench"] if r["nic"] == nic and r["test"] == test and r["op"] in ("write", "pingpong") and r[key]]
    return values[-1 if last else 0] if values else None


def describe_nics(d):
    used = {p["nic"] for p in d["paths"]}
    kinds = [(n["speed_Mbps"], n["driver"]) for n in d["nodes"]["here"]["nics"] if n["nic"] in used]
    return ", ".join(f"{kinds.count(k)} x {k[0] / 1000:g} Gbit/s {k[1]}" if k[0] else f"{kinds.count(k)} x {k[1]}" for k in sorted(set(kinds), key=str))


def make_row(path):
    d = json.loads(path.read_text(encoding="utf-8"))
    here = d["nodes"]["here"]
    alone = {n: [v for v in (find(d, n, "write", "GBps"), find(d, n, "write", "GBps", True)) if v] for n in {p["nic"] for p in d["paths"]}}
    whole = find(d, "all", "write", "GBps")
    rivals = [[r["hawser_ratio"] for v in d["rivals"] if v["rival"] == name for r in v["rows"] if r["hawser_ratio"]] for name in ("iperf3", "NIXL over UCX")]
    spin = find(d, "all", "latency", "raw_pingpong_spin_us")
    return (f"[{path.stem}]({path.name}){'' if d['complete'] else ', incomplete'}", here["kernel"], describe_nics(d), str(len(here["gpus"])),
            ratio(find(d, "all", "write", "ratio_raw"), 1), ratio(whole, sum(max(v) for v in alone.values() if v)),
            *(f"{statistics.median(r):.2f}" if r else "-" for r in rivals), ratio(find(d, "all", "lists", "GBps", True), whole),
            ratio(spin, find(d, "all", "latency", "p50_us")), str(len(d["findings"])))


def main():
    rows = [HEADS, ("---",) * len(HEADS)] + [make_row(p) for p in sorted(FOLDER.glob("*.json"))]
    page = FOLDER / "README.md"
    text = page.read_text(encoding="utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    made = text[:begin] + "".join(f"| {' | '.join(r)} |\n" for r in rows) + text[end:]
    if "--check" in sys.argv:
        return made != text
    page.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
