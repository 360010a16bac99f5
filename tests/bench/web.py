# SPDX-License-Identifier: Apache-2.0
"""The parts of `make bench` about requests that start nothing: /healthz beside a
FastCGI program of 40 lines behind the same front server, and the memory beside
/healthz."""

import contextlib
import os
import re
import socket
import sqlite3
import statistics
import subprocess
import sys
import time

import harness
import subjects
from part import Part, row

SECONDS = int(os.environ.get("WEB_SECONDS", "5"))
ROUNDS = 5
CLIENTS = 32


def listen(path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    os.chmod(path, 0o666)
    s.listen(1024)
    return s


def start_trivial(service, kind="caddy"):
    """The trivial program behind a front server of its own; its port."""
    program = os.path.join(subjects.FOLDER, "trivial")
    name = "trivial%d" % len(service.extra)
    path = service.path(name + ".sock")
    service.own_directory(name, harness.FRONT_USER)
    port = harness.free_port()
    with listen(path) as s:
        service.extra.append(subprocess.Popen([program], stdin=s, cwd="/"))
    service.extra.append(service.spawn_front(name, port, path, kind))
    client = harness.Client(("127.0.0.1", port))
    harness.wait_for("trivial program", lambda: harness.answers(client), 15)
    return port


def wrk(port, path="/healthz"):
    """Requests a second."""
    text = subprocess.run(
        ["wrk", "-t2", "-c%d" % CLIENTS, "-d%ds" % SECONDS,
         "http://127.0.0.1:%d%s" % (port, path)], check=True,
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


KEYS = 10000


def fill(service):
    """Keys by SQL: each by itself would wait for the disk."""
    with contextlib.closing(sqlite3.connect(
            service.path("state", "isobox.db"))) as db, db:
        db.executemany(
            "INSERT INTO memory (tenant, space, key, etag, type, size, "
            "modified_ms, expires_ms, value) "
            "VALUES ('public', 'bench', ?, '', '', 100, 0, 0, zeroblob(100))",
            ((b"key-%05d" % i,) for i in range(KEYS - 1)))


def list_all(client):
    """Milliseconds of each page of 1,000 keys."""
    times, found, cursor = [], 0, ""
    while cursor is not None:
        begun = time.perf_counter()
        page = client.get("/v1/memory/bench?limit=1000&cursor=" +
                          cursor).json()
        times.append((time.perf_counter() - begun) * 1000)
        found += len(page["keys"])
        cursor = page["nextCursor"]
    if found != KEYS - 1:
        sys.exit("bench: %d keys listed instead of %d" % (found, KEYS - 1))
    return times


def put_all(client, count):
    """Milliseconds of each PUT."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        r = client.request("PUT", "/v1/memory/one/value", [], b"x" * 1024)
        times.append((time.perf_counter() - begun) * 1000)
        if r.status != 204:
            sys.exit("bench: %r" % r)
    return times


def values(bench):
    """Values of the memory behind Caddy."""
    service = bench.cold.service
    client = service.client()
    puts = put_all(client, 100)
    ours, health = [], []
    for _ in range(ROUNDS):
        health.append(wrk(service.port))
        ours.append(wrk(service.port, "/v1/memory/one/value"))
    fill(service)
    pages = [t for _ in range(5) for t in list_all(client)]
    client.request("DELETE", "/v1/memory/one/value")
    with contextlib.closing(sqlite3.connect(
            service.path("state", "isobox.db"))) as db, db:
        db.execute("DELETE FROM memory")
    part = Part("Memory: values of 1 KiB behind Caddy",
                "`GET` by %d clients at once, %d times %d s; `PUT` by one, each "
                "on the disk when it is answered; %d keys listed in pages of "
                "1,000." % (CLIENTS, ROUNDS, SECONDS, KEYS - 1))
    part.table(["requests a second", "median", "lowest", "highest"],
               [[name, *("%.0f" % f(found) for f in (
                   statistics.median, min, max))]
                for name, found in (("`GET` of a value", ours),
                                    ("`GET /healthz`", health))])
    part.table(["ms", "median", "p95", "p99", "lowest"],
               [row("`PUT` of a value", puts), row("a page of keys", pages)])
    part.goal("`GET` of a value / `/healthz`, requests a second",
              statistics.median(ours) / statistics.median(health), ">=", 0.7)
    return part
