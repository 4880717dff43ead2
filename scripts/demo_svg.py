#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates docs/demo.svg from a demo's report. It shows the first plot, in which a NIC goes down and comes back, with a
title, a legend and light colours. The throughput is shown as a share of the rates of the lab's NICs, because these
rates and not the software determine the scale.
Usage: demo_svg.py REPORT.html GB/s-OF-ALL-NICS > docs/demo.svg        (the demo's last lines contain the GB/s)"""
import re
import sys

COLOURS = ["#2563c9", "#d9730d", "#0f8a76", "#8b3fc4"]
STYLE = """text{font:13px system-ui,-apple-system,"Segoe UI","Noto Sans","DejaVu Sans",sans-serif;fill:#5b6675}
.title{font-size:16px;font-weight:600;fill:#1c2430}.mid{text-anchor:middle}.end{text-anchor:end}
.marktext,.badgetext{font-weight:600;fill:#b3261e}.badgetext{font-size:11px}.grid{stroke:#e8ebef}.axis{stroke:#5b6675}
.mark{stroke:#b3261e;stroke-dasharray:4 3}.badge{fill:#fff;stroke:#b3261e}.area{opacity:.45}
.line,.edge{fill:none;stroke-width:1.2;stroke-linejoin:round}"""


def main(path, whole):
    page = open(path, encoding="utf-8").read()
    figure = re.search(r"<figure>.*?Throughput over time.*?</figure>", page, re.S)[0]
    marks = [re.sub("<[^>]+>", "", m) for m in re.findall(r"<li><b>.*?</li>", figure)]
    names = re.findall(r"</svg>([\w.-]+)</li>", figure)
    width, height, body = re.search(r'<svg viewBox="0 0 (\d+) (\d+)" role[^>]*>(.*?)</svg>', figure, re.S).groups()
    # the y axis: two existing labels determine the scale, and new labels replace all of them
    label = r'<path class="grid" d="M([\d.]+) ([\d.]+)H([\d.]+)"/>\n<text x="([\d.]+)" y="[\d.]+" class="end">([\d.]+)</text>\n'
    rows = re.findall(label, body)
    x0, zero, x1, tx, _ = rows[0]
    top, value = float(rows[-1][1]), float(rows[-1][4])
    unit = (float(zero) - top) / value * float(whole) / 100
    body = re.sub(label, "", body)
    body = re.sub(r'<text[^>]*class="unit">GB/s</text>\n', "", body)
    grid = []
    for percent in range(0, 200, 25):
        y = float(zero) - unit * percent
        if y < top - 1:
            break
        grid.append(f'<path class="grid" d="M{x0} {y:.1f}H{x1}"/>\n<text x="{tx}" y="{y + 4:.1f}" class="end">{percent} %</text>')
    style = STYLE + "".join(f"\n.area.c{i},.bar.c{i}{{fill:{c}}}.line.c{i},.edge.c{i}{{stroke:{c}}}" for i, c in enumerate(COLOURS))
    rows_of_marks = -(-len(marks) // 3)
    tall = int(height) + 60 + 22 * rows_of_marks
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}" role="img">',
           "<title>hawser demo: throughput over time of four NICs, one of which goes down and comes back</title>",
           f"<style>\n{style}\n</style>", f'<rect width="{width}" height="{tall}" fill="#fff"/>',
           '<text x="10" y="24" class="title">Throughput per NIC, stacked, as a share of the four NICs’ rates together</text>']
    for i, name in enumerate(names):
        out.append(f'<rect class="area c{i}" x="{12 + 90 * i}" y="38" width="14" height="12" rx="2"/>'
                   f'<text x="{32 + 90 * i}" y="49">{name}</text>')
    for i, mark in enumerate(marks):  # numbered down the columns, as on the plot
        x, y = 40 + 285 * (i // rows_of_marks), int(height) + 74 + 22 * (i % rows_of_marks)
        out.append(f'<rect class="badge" x="{x}" y="{y - 12}" width="26" height="16" rx="8"/><text class="mid badgetext" '
                   f'x="{x + 13}" y="{y}">{i + 1}</text><text x="{x + 34}" y="{y + 1}">{mark}</text>')
    out += ['<g transform="translate(0 60)">', *grid, body.strip(), "</g>", "</svg>"]
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
