# SPDX-License-Identifier: Apache-2.0
"""What a part of `make bench` found: tables, goals, bars of the chart. It can be
kept as JSON, so that one part can be measured again and the report stays whole."""

import math
import os
import statistics
import time


class Skip(Exception):
    """A part that cannot be measured here; says why."""


class Part:
    def __init__(self, title, text):
        self.data = {
            "title": title, "text": text, "tables": [], "goals": [],
            "bars": [], "notes": [], "skipped": [],
            "when": time.strftime("%Y-%m-%d %H:%M"),
            "load": round(os.getloadavg()[0], 1)}

    def table(self, head, rows):
        self.data["tables"].append([head, rows])

    def note(self, text):
        self.data["notes"].append(text)

    def skip(self, reason):
        self.data["skipped"].append(reason)

    def goal(self, what, value, relation, limit):
        """relation: "<=" or ">="."""
        reached = value <= limit if relation == "<=" else value >= limit
        self.data["goals"].append({
            "what": what, "value": value, "relation": relation,
            "limit": limit, "reached": reached})

    def bar(self, label, values, kind):
        """kind: warm, cold or beside."""
        self.data["bars"].append({
            "label": label, "kind": kind,
            "median": statistics.median(values),
            "p95": percentile(values, 95)})


def percentile(values, p):
    """The nearest rank: at least p % of the values are not above it."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)]


def ms(value):
    return "%.2f" % value if value < 10 else "%.0f" % value


def row(label, values):
    """Median, p95, p99 and the lowest of some milliseconds."""
    if not values:
        return [label] + ["–"] * 4
    return [label, *(ms(v) for v in (
        statistics.median(values), percentile(values, 95),
        percentile(values, 99), min(values)))]
