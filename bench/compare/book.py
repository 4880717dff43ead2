# SPDX-License-Identifier: Apache-2.0
"""The measurements of a comparison, which are made in rounds, with their medians and ratios, and the tables that show
them."""
import json
import os
import statistics
import sys
import time

from compare.run import Failure


class Book:
    """Stores values by name and round. A round without a value is absent."""

    def __init__(self):
        self.values, self.unit, self.fixed = {}, {}, {}

    def put(self, name, unit, rnd, value):
        if value is not None:
            self.values.setdefault(name, {})[rnd] = value
            self.unit[name] = unit

    def fix(self, name, rnd, value):
        """Stores a value for comparison, which is not shown among the measurements."""
        self.fixed.setdefault(name, {})[rnd] = value

    def of(self, name):
        """Returns a dict from round to value, measured or else fixed."""
        return self.values.get(name) or self.fixed.get(name, {})

    def median(self, name):
        v = self.of(name)
        return statistics.median(v.values()) if v else None

    def ratio(self, name, over):
        """Returns the median of the rounds' ratios and the number of these rounds. The divisor is the round's largest
        value among the names in over. Rounds without both values are left out."""
        ratios = []
        for rnd, v in self.of(name).items():
            rivals = [self.of(o)[rnd] for o in over if rnd in self.of(o)]
            if rivals and max(rivals) > 0:
                ratios.append(v / max(rivals))
        return (statistics.median(ratios), len(ratios)) if ratios else (None, 0)


def run_rounds(run, steps, first, count, reserve):
    """Runs all steps count times, in rotating order, and fewer times if the time limit does not suffice. A step that
    has failed twice is not run again."""
    failed, longest = {}, 0.0
    for rnd in range(first, first + count):
        if run.left() < reserve + longest * 1.1:
            run.skip(f"rounds {rnd + 1 - first} to {count} of {', '.join(n for n, _ in steps)}", "no time left")
            return
        start = time.monotonic()
        k = rnd % len(steps)
        for name, step in steps[k:] + steps[:k]:
            if failed.get(name, 0) >= 2 or run.left() < 0:
                continue  # the second failure was reported, or no time is left
            if sys.stderr.isatty():
                print(f"\r\033[K# round {rnd + 1 - first} of {count}: {name}", end="", file=sys.stderr, flush=True)
            try:
                step(rnd)
            except Failure as e:
                why = str(e)
            except (OSError, ValueError, KeyError, TypeError) as e:
                why = f"{type(e).__name__}: {e}"
            else:
                continue
            failed[name] = failed.get(name, 0) + 1
            run.skip(f"{name}, round {rnd + 1 - first}", why + (", not tried again" if failed[name] == 2 else ""))
        longest = max(longest, time.monotonic() - start)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def judge_targets(book, targets):
    """Returns a dict for each target, with the ratio and whether the target is met. A target is a tuple: a description,
    hawser's value, the rivals' values (the largest counts), the sense (">=", "<=" or "<") and the bound."""
    out = []
    for what, ours, rivals, sense, bound in targets:
        ratio, n = book.ratio(ours, rivals)
        met = None
        if ratio is not None and bound is not None:
            met = {">=": ratio >= bound, "<=": ratio <= bound, "<": ratio < bound}[sense]
        medians = [m for m in (book.median(r) for r in rivals) if m is not None]
        out.append({"what": what, "hawser": book.median(ours), "rival": max(medians, default=None),
                    "unit": book.unit.get(ours, ""), "ratio": ratio, "rounds": n, "sense": sense, "target": bound,
                    "met": met})
    return out


def show_book(book, targets):
    def num(v, digits=3):
        return "-" if v is None else f"{v:.{digits}f}"

    print(f"\n{'measurement':<40} {'median':>9} {'least':>9} {'most':>9}  unit  rounds")
    for name, values in sorted(book.values.items()):
        v = list(values.values())
        print(f"{name:<40} {num(statistics.median(v)):>9} {num(min(v)):>9} {num(max(v)):>9}  {book.unit[name]:<5} "
              f"{len(v)}")
    print(f"\n{'hawser against':<54} {'hawser':>8} {'rival':>8}  {'unit':<5} {'ratio':>6}  target")
    for t in targets:
        verdict = {True: "pass", False: "MISS", None: "not measured" if t["ratio"] is None else ""}[t["met"]]
        target = f"{t['sense']} {t['target']}" if t["target"] else ""
        print(f"{t['what']:<54} {num(t['hawser']):>8} {num(t['rival']):>8}  {t['unit']:<5} {num(t['ratio'], 2):>6}  "
              f"{target:<7} {verdict}")


def write_book(path, book, targets, **facts):
    """Writes the measurements, the targets and the facts (other properties of the run) to a JSON file."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    measurements = {n: {"unit": book.unit[n], "median": book.median(n), "values": list(v.values())}
                    for n, v in sorted(book.values.items())}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(facts | {"measurements": measurements, "targets": targets}, f, indent=1)
        f.write("\n")
    print(f"# {os.path.relpath(path)}")
