# SPDX-License-Identifier: Apache-2.0
"""docs/benchmarks.md, from what the parts of `make bench` found."""

import os
import platform
import subprocess

HEAD = """# Benchmarks

Written by `make bench WRITE=1`. Each figure stands beside that of what isobox
is built on, measured in turns in one run on the same machine: read the ratios,
the absolute numbers are that machine's.

How it is measured: isobox-runner, isobox.fcgi and the front servers run as their
own users, with the settings of examples/ and the defaults of isobox.yaml, but for
the rate limit. Two services run side by side: one boots each sandbox when its run
comes (`warm: false`: "cold"), of the other only runs count for which a sandbox
waited ("warm"; the header Server-Timing tells), unless the text says otherwise.
The client, tests/bench/load.c, keeps its connections open. Between two
measurements all comes to rest: nothing runs, is cleaned up or booted.

"""

CHART = "benchmarks.svg"


def machine(runsc):
    version = subprocess.run([runsc, "--version"], capture_output=True,
                             text=True).stdout.split()[2]
    return "%d processors, Linux %s, runsc %s" % (
        os.cpu_count(), platform.release(), version)


def render(results, where):
    """Markdown. results: {part's name: its data}, in the order of the report."""
    lines = [where, "", *goals(results), ""]
    if any(data["bars"] for data in results.values()):
        lines += ["![Median times](%s)" % CHART, ""]
    for data in results.values():
        lines += section(data)
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def goals(results):
    rows = []
    for data in results.values():
        for g in data["goals"]:
            rows.append([
                g["what"], number(g["value"]),
                "at %s %s" % ("most" if g["relation"] == "<=" else "least",
                              number(g["limit"])),
                "reached" if g["reached"] else "MISSED"])
    return table(["goal", "measured", "", ""], rows)


def section(data):
    lines = ["## " + data["title"], ""]
    if data["text"]:
        lines += [data["text"], ""]
    for head, rows in data["tables"]:
        if rows:
            lines += table(head, rows) + [""]
    for text in data["notes"]:
        lines += [text, ""]
    for reason in data["skipped"]:
        lines += ["Not measured: %s." % reason, ""]
    if "when" in data:
        lines += ["(%s, load average %.1f before it began.)" % (
            data["when"], data["load"]), ""]
    return lines


def table(head, rows):
    if not rows:
        return []
    return ["| %s |" % " | ".join(head),
            "|%s" % ("---|" * len(head)),
            *("| %s |" % " | ".join(row) for row in rows)]


def number(value):
    return "%.2f" % value if value < 10 else "%.0f" % value
