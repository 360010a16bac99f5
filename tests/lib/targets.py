# SPDX-License-Identifier: Apache-2.0
"""What a program tries to reach in the tests of egress, and what must come of
it: OPEN, REFUSED (at once), or NO_ROUTE (IPv6)."""

import json

import world

OPEN, REFUSED, NO_ROUTE = "open", "refused", "no route"

# The router and what slirp4netns has in its own little network.
ROUTERS = ("10.255.0.1", "10.255.1.1", "10.255.1.2", "10.255.1.3",
           "10.255.1.100")
HOST = (world.HOST_PUBLIC, world.HOST_SECOND, world.HOST_VPN, "84.200.10.255",
        "10.0.0.255")
IPV6 = ("2606:4700::1111", "2a01:4f8::10", "::ffff:0:0a09:0909",
        "64:ff9b::a9fe:a9fe", "fd00:aa::10", "fe80::1")


def table():
    """[(address, port, "tcp" or "udp", what must come of it)]"""
    rows = []
    for address in world.PUBLIC + ("84.200.10.1",):
        rows += [(address, 80, "tcp", OPEN), (address, 123, "udp", OPEN)]
    for address in world.REFUSED + HOST + ROUTERS + ("10.0.0.2",):
        rows += [(address, 80, "tcp", REFUSED), (address, 53, "udp", REFUSED)]
    for address in ("93.184.216.34", "1.1.1.1"):
        rows += [(address, port, "tcp", REFUSED) for port in (25, 465, 587)]
        rows += [(address, port, "tcp", OPEN) for port in (22, 443, 8080)]
        rows += [(address, port, "udp", OPEN) for port in (53, 443, 9999)]
    for address in IPV6:
        rows += [(address, 80, "tcp", NO_ROUTE), (address, 53, "udp", NO_ROUTE)]
    return rows


# A Python program that reads [[address, port, protocol], ...] from its standard
# input and prints [[what came of it, milliseconds], ...]; of what is not open
# the best of three.
PROGRAM = r'''
import errno, json, socket, sys, time

def attempt(address, port, protocol):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        try:
            s.connect((address, port))
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return "open" if s.recv(100) else "closed"
        except TimeoutError:
            return "time-out"
        except OSError as e:
            return {errno.ECONNREFUSED: "refused",
                    errno.ENETUNREACH: "no route",
                    errno.EHOSTUNREACH: "no route"}.get(e.errno, str(e))

found = []
for target in json.load(sys.stdin):
    best = None
    for _ in range(3):
        begun = time.monotonic()
        what = attempt(*target)
        ms = (time.monotonic() - begun) * 1000
        if best is None or ms < best[1] or what != best[0]:
            best = [what, ms]
        if what in ("open", "time-out"):
            break
    found.append(best)
print(json.dumps(found))
'''


def run(execute, rows):
    """Tries rows by execute(code, stdin) -> standard output, some at a time:
    a run is short. Lines of what is not as it must be."""
    wrong = []
    for i in range(0, len(rows), 40):
        part = rows[i:i + 40]
        out = execute(PROGRAM, json.dumps([r[:3] for r in part]))
        for (address, port, protocol, want), (what, ms) in zip(
                part, json.loads(out), strict=True):
            # By a time-out it would be seconds.
            if what != want or want != OPEN and ms > 50:
                wrong.append("%s %s:%d is %s after %.1f ms, must be %s" % (
                    protocol, address, port, what, ms, want))
    return wrong


def leaks(seen):
    """Of what the world's servers and ear have seen, what must not be."""
    bad = set(world.REFUSED + HOST + ROUTERS + ("10.0.0.2",)) | {"10.255.0.2"}
    return sorted(line for line in seen if line.split(" ")[1] in bad or
                  ":" in line.split(" ")[1] or
                  line.startswith("tcp") and line.endswith(
                      (" 25", " 465", " 587")))
