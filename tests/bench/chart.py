# SPDX-License-Identifier: Apache-2.0
"""The chart of docs/benchmarks.md: a bar from the least decade to each median, a
line on to the 95th percentile, on a logarithmic scale."""

import math
from xml.sax.saxutils import escape

from part import ms

COLOURS = {"warm": "#2a78c2", "cold": "#8a97a5", "beside": "#c9a227"}
WORDS = {"warm": "isobox, a sandbox waited", "cold": "isobox, cold",
         "beside": "beside it"}
WIDTH, LEFT, RIGHT = 860, 250, 70
TOP, STEP, BAR = 56, 24, 15
FONT = "font-family='sans-serif' font-size='13'"


def svg(bars):
    """bars: dicts with label, kind, median and p95 in milliseconds."""
    low = math.floor(math.log10(min(b["median"] for b in bars)))
    high = math.ceil(math.log10(max(b["p95"] for b in bars)))
    high = max(high, low + 1)
    height = TOP + STEP * len(bars) + 30

    def x(value):
        share = (math.log10(value) - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    lines = ["<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
             "viewBox='0 0 %d %d' role='img'>" % (
                 WIDTH, height, WIDTH, height),
             "<title>Median times in milliseconds, line to the 95th "
             "percentile</title>",
             "<rect width='%d' height='%d' fill='#ffffff'/>" % (
                 WIDTH, height)]
    lines += legend()
    for decade in range(low, high + 1):
        at = x(10.0 ** decade)
        lines += ["<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' "
                  "stroke='#d9dee3'/>" % (at, at, TOP - 8, height - 26),
                  text(at, height - 10, "%g ms" % 10.0 ** decade, "middle")]
    for i, bar in enumerate(bars):
        lines += one_bar(bar, TOP + i * STEP, x)
    return "\n".join(lines + ["</svg>"]) + "\n"


def text(x, y, words, anchor, colour="#333a41"):
    return "<text x='%.1f' y='%.1f' text-anchor='%s' fill='%s' %s>%s</text>" % (
        x, y, anchor, colour, FONT, escape(words))


def legend():
    lines = []
    for i, kind in enumerate(WORDS):
        at = LEFT + i * 210
        lines += ["<rect x='%d' y='14' width='12' height='12' fill='%s'/>" % (
            at, COLOURS[kind]), text(at + 18, 25, WORDS[kind], "start")]
    return lines


def one_bar(bar, y, x):
    end, far, middle = x(bar["median"]), x(bar["p95"]), y + BAR / 2
    return [text(LEFT - 8, middle + 4.5, bar["label"], "end"),
            "<rect x='%d' y='%d' width='%.1f' height='%d' fill='%s'/>" % (
                LEFT, y, max(1.0, end - LEFT), BAR, COLOURS[bar["kind"]]),
            "<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#333a41'/>"
            % (end, far, middle, middle),
            text(max(end, far) + 6, middle + 4.5, ms(bar["median"]), "start")]
