# SPDX-License-Identifier: Apache-2.0
"""The part of `make bench` about requests that start nothing: /healthz beside a
FastCGI program of 40 lines behind the same front server."""

import os
import re
import socket
import statistics
import subprocess
import sys

import harness
import targets
from part import Part

SECONDS = int(os.environ.get("WEB_SECONDS", "5"))
ROUNDS = 5
CLIENTS = 32


def listen(path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    os.chmod(path, 0o666)
    s.listen(1024)
    return s


def start_trivial(service):
    """The trivial program behind a front server like that of the service; its
    port."""
    program = os.path.join(targets.FOLDER, "trivial")
    path = service.path("trivial.sock")
    service.own_directory("front2", harness.FRONT_USER)
    port = harness.free_port()
    with listen(path) as s:
        service.extra.append(subprocess.Popen([program], stdin=s, cwd="/"))
    service.extra.append(service.spawn_front("front2", port, path))
    client = harness.Client(("127.0.0.1", port))
    harness.wait_for("trivial program", lambda: harness.answers(client), 15)
    return port


def wrk(port):
    """Requests a second."""
    text = subprocess.run(
        ["wrk", "-t2", "-c%d" % CLIENTS, "-d%ds" % SECONDS,
         "http://127.0.0.1:%d/healthz" % port], check=True,
        capture_output=True, text=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        sys.exit(text)
    return float(re.search(r"Requests/sec:\s*([0-9.]+)", text)[1])


def requests(bench):
    """/healthz beside a trivial program."""
    service = bench.cold.service
    port = start_trivial(service)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(wrk(port))
        ours.append(wrk(service.port))
    part = Part("`GET /healthz` behind Caddy",
                "%d clients at once, %d times %d s of each; beside it a FastCGI "
                "program of 40 lines behind a Caddy of its own." % (
                    CLIENTS, ROUNDS, SECONDS))
    part.table(["requests a second", "median", "lowest", "highest"],
               [[name, *("%.0f" % f(values) for f in (
                   statistics.median, min, max))]
                for name, values in (("isobox", ours),
                                     ("trivial program", theirs))])
    part.goal("`/healthz` / trivial program, requests a second",
              statistics.median(ours) / statistics.median(theirs), ">=", 0.9)
    return part
