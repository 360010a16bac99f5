#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers at every address of the network namespace that it is started in, and
an ear at its links. world.py starts it; what it sees goes to standard output,
one line each:

	ready
	tcp ADDRESS PORT	a connection was accepted there
	udp ADDRESS PORT	a datagram came there
	packet ADDRESS		the first packet to that destination came by a link

usage: internet.py NAME ROOT ZONE
NAME stands in the answers, ROOT is a folder to serve by HTTP, ZONE a JSON file
for DNS: {"name": [["address", ...], ttl] or "alias"}; read again each time. A
third word is of which age the server of that name is: see dns(). What answer_by_tcp()
looks for in a name is how that one behaves.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import urllib.parse

TCP = (22, 25, 53, 80, 443, 465, 587, 853, 3128, 8080)
UDP = (53, 80, 123, 443, 853, 3128, 9999)
IP_PKTINFO = 8  # linux/in.h
ETH_P_ALL = 3
CHUNK = b"\0" * (1 << 18)

_said = threading.Lock()


def say(*words):
    with _said:
        print(*words, flush=True)


# ---- HTTP, as little as the clients of the tests need ----------------------

def read_head(conn):
    head = b""
    while b"\r\n\r\n" not in head and len(head) < 65536:
        part = conn.recv(65536)
        if not part:
            break
        head += part
    head, _, body = head.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), body


def respond(conn, status, body=b"", kind="text/plain", more=()):
    lines = ["HTTP/1.1 " + status, "Content-Length: %d" % len(body),
             "Content-Type: " + kind, "Connection: close", *more]
    conn.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def serve_file(conn, path):
    full = os.path.realpath(os.path.join(ROOT, path.lstrip("/")))
    if os.path.isdir(full):
        full = os.path.join(full, "index.html")
    if not full.startswith(ROOT + "/") or not os.path.isfile(full):
        respond(conn, "404 Not Found")
        return
    with open(full, "rb") as f:
        respond(conn, "200 OK", f.read(),
                "text/html" if full.endswith(".html")
                else "application/octet-stream")


def big(conn, megabytes):
    conn.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n" % (megabytes << 20))
    for _ in range(megabytes * 4):
        conn.sendall(CHUNK)


def upload(conn, headers, body):
    left = next(int(h.split(":")[1]) for h in headers
                if h.lower().startswith("content-length:")) - len(body)
    got = len(body)
    while left > 0:
        n = len(conn.recv(min(left, 1 << 20)))
        if n == 0:
            break
        left -= n
        got += n
    respond(conn, "200 OK", str(got).encode())


def http(conn, here, peer):
    head, body = read_head(conn)
    if not head or " " not in head[0]:
        conn.sendall(b"HELLO %s\n" % NAME)
        return
    url = urllib.parse.urlsplit(head[0].split(" ")[1])
    query = dict(urllib.parse.parse_qsl(url.query))
    if url.path == "/redirect":
        respond(conn, "302 Found", more=["Location: " + query["to"]])
    elif url.path == "/big":
        big(conn, int(query["mb"]))
    elif url.path == "/upload":
        upload(conn, head[1:], body)
    elif url.path == "/slow":
        # A line for each line that comes: a flow that stays open.
        conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while conn.recv(64):
            conn.sendall(b"still here\n")
    elif url.path == "/":
        respond(conn, "200 OK", b"HELLO %s %s port %d from %s\n" % (
            NAME, here[0].encode(), here[1], peer[0].encode()))
    else:
        serve_file(conn, urllib.parse.unquote(url.path))


def tcp_connection(conn, peer):
    here = conn.getsockname()
    say("tcp", here[0], here[1])
    try:
        conn.settimeout(60)
        if here[1] == 53:
            size = conn.recv(2)
            if len(size) == 2:
                answer_by_tcp(conn, conn.recv(struct.unpack("!H", size)[0]))
        else:
            http(conn, here, peer)
    except (OSError, StopIteration, KeyError, ValueError):
        pass
    finally:
        conn.close()


def tcp_server(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("0.0.0.0", port))
        s.listen(4096)
        READY.release()
        while True:
            conn, peer = s.accept()
            threading.Thread(target=tcp_connection, args=(conn, peer),
                             daemon=True).start()


# ---- DNS --------------------------------------------------------------------

def dns_name(text):
    return b"".join(bytes([len(p)]) + p.encode()
                    for p in text.split(".") if p) + b"\0"


def dns(query, limit):
    """An answer from the zone; aliases are followed as name servers do."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    kind = struct.unpack("!H", query[at + 1:at + 3])[0]
    with open(ZONE) as f:
        zone = json.load(f)
    name, records, code = ".".join(labels).lower(), [], 0
    say("dns", name, kind)
    if query[11] and len(zone.get(name, "")) == 3:  # it knows no EDNS
        error, whole = {"old": (1, True), "bare": (1, False),
                        "older": (4, True)}[zone[name][2]]
        return (query[:2] + struct.pack("!HHHHH", 0x8180 | error, whole, 0, 0,
                                        0) + query[12:at + 5] * whole)
    for _ in range(8):
        entry = zone.get(name)
        if entry is None:
            code = 0 if records else 3
            break
        if isinstance(entry, str):
            records.append((name, 5, 300, dns_name(entry)))
            name = entry
            continue
        if kind == 1:
            records += [(name, 1, entry[1], socket.inet_aton(a))
                        for a in entry[0]]
        break
    body = b"".join(dns_name(n) + struct.pack("!HHIH", t, 1, ttl, len(d)) + d
                    for n, t, ttl, d in records)
    flags = 0x8180 | code
    if 12 + at + 5 + len(body) > limit:
        flags, body, records = flags | 0x200, b"", []
    return (query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) +
            query[12:at + 5] + body)


def answer_by_tcp(conn, query):
    answer = dns(query, 65535)
    whole = struct.pack("!H", len(answer)) + answer
    labels = query[12:query.index(b"\0", 12)]
    if b"drip" in labels:  # never done in time
        for byte in whole:
            conn.sendall(bytes([byte]))
            time.sleep(0.2)
    elif b"short" in labels:
        conn.sendall(whole[:100])
    elif b"mute" in labels:
        time.sleep(10)
    elif b"shut" in labels:
        conn.sendall(whole[:1])
    elif b"null" in labels:
        conn.sendall(b"\0\0" + whole)
    elif b"other" in labels:
        conn.sendall(whole[:2] + bytes([whole[2] ^ 1]) + whole[3:])
    elif b"again" in labels:  # cut off, here too
        conn.sendall(struct.pack("!H", len(query)) + query[:2] +
                     b"\x83\x80" + query[4:])
    elif b"noise" in labels:
        conn.sendall(b"\xff\xff" + os.urandom(65535))
    else:
        conn.sendall(whole)


def udp_server(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        s.bind(("0.0.0.0", port))
        READY.release()
        while True:
            data, extra, _, peer = s.recvmsg(65536, 256)
            here = extra[0][2][8:12]
            say("udp", socket.inet_ntoa(here), port)
            answer = b"REPLY " + NAME + b" " + data
            try:
                if port == 53 and data[4:6] == b"\0\1":
                    # EDNS: what our resolver says that it takes
                    answer = dns(data, 1232 if data[11] else 512)
            except (IndexError, struct.error, UnicodeError):
                pass  # no question: the echo
            try:
                s.sendmsg([answer], [(socket.IPPROTO_IP, IP_PKTINFO,
                                      b"\0\0\0\0" + here + b"\0\0\0\0")],
                          0, peer)
            except OSError:
                continue


# ---- the ear -----------------------------------------------------------------

def listen_to_links():
    seen = set()
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM,
                       socket.htons(ETH_P_ALL)) as s:
        READY.release()
        while True:
            packet, (link, protocol, kind, *_) = s.recvfrom(128)
            if link == "lo" or kind == socket.PACKET_OUTGOING:
                continue
            if protocol == 0x0800 and len(packet) >= 20:
                to = socket.inet_ntoa(packet[16:20])
            elif protocol == 0x86dd and len(packet) >= 40:
                to = socket.inet_ntop(socket.AF_INET6, packet[24:40])
                if to.startswith("ff02:"):
                    continue  # neighbours of the host itself
            else:
                continue
            if to not in seen:
                seen.add(to)
                say("packet", to)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    NAME, ROOT, ZONE = sys.argv[1].encode(), sys.argv[2], sys.argv[3]
    READY = threading.Semaphore(0)
    for server, argument in ([(tcp_server, (p,)) for p in TCP] +
                             [(udp_server, (p,)) for p in UDP] +
                             [(listen_to_links, ())]):
        threading.Thread(target=server, args=argument, daemon=True).start()
        READY.acquire()
    say("ready")
    signal.pause()
