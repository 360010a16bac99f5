# SPDX-License-Identifier: Apache-2.0
"""The part of `make bench` about files of a session: 16 MiB up and down beside
the same front server handing out a static file of that size."""

import os
import statistics
import subprocess
import sys

import subjects
import web
from part import Part, row

ROUNDS = max(5, int(os.environ.get("ROUNDS", "40")) // 4)
SIZE = 16 << 20
FRONTS = ("caddy", "nginx", "apache", "lighttpd")


def curl(port, target, *more):
    """Milliseconds of one transfer."""
    out = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-H", "Expect:", "-w",
         "%{http_code} %{size_download} %{size_upload} %{time_total}", *more,
         "http://127.0.0.1:%d%s" % (port, target)],
        check=True, capture_output=True, text=True).stdout
    status, down, up, took = out.split()
    if status != "200" or SIZE not in (int(down), int(up)):
        sys.exit("bench: %s: %s" % (target, out))
    return float(took) * 1000


def files(bench):
    """Files of a session beside static ones."""
    site = bench.cold
    big = site.service.path("playground", "big")
    with open(big, "wb") as f:
        f.write(os.urandom(SIZE))
    os.chmod(big, 0o644)
    session = site.service.client().post(
        "/v1/sessions", {"runtime": subjects.LANGUAGE}).json()
    target = "/v1/sessions/" + session["id"]
    token = "X-Session-Token: " + session["token"]
    part = Part("Files of 16 MiB",
                "By curl, one after the other; beside each front server's own "
                "static file, and beside a FastCGI program that makes up what "
                "it sends and forgets what it gets: what FastCGI itself takes "
                "there.")
    rows = []
    for name in (n for n in FRONTS if n in site.ports):
        ours, trivial = site.ports[name], web.start_trivial(site.service, name)
        transfers = {
            "static file": (ours, "/big"),
            "upload": (ours, target + "/fs?path=big", "-H", token, "-T", big),
            "download": (ours, target + "/fs?path=big", "-H", token),
            "trivial program, upload": (trivial, "/v1/big", "-T", big),
            "trivial program, download": (trivial, "/v1/big"),
        }
        took = {kind: [] for kind in transfers}
        for i in range(ROUNDS + 1):
            for kind, words in transfers.items():
                ms = curl(*words)
                if i:
                    took[kind].append(ms)
        rows += [row("%s, %s" % (name, kind), values)
                 for kind, values in took.items()]
        ms = {kind: statistics.median(values)
              for kind, values in took.items()}
        for kind in ("download", "upload"):
            part.goal("%s: speed of a %s / of a static file" % (name, kind),
                      ms["static file"] / ms[kind], ">=", 0.5)
    part.table(["ms", "median", "p95", "p99", "lowest"], rows)
    os.unlink(big)
    site.service.client().request(
        "DELETE", target, [tuple(token.split(": "))])
    return part
