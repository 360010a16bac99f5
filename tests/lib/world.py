# SPDX-License-Identifier: Apache-2.0
"""A pretend host and a pretend internet for tests of egress: two network
namespaces with links to each other and to nothing else. The service's runner is
started in the first; whatever a program in a sandbox reaches is a server of the
test's in the second, which has every address that is needed, public ones and
those that must be refused. Needs root; nothing of it is left by close().

	host                            world
	eth0 84.200.10.10/24, .11 ----- up0 84.200.10.1      on lo: ADDRESSES
	vpn0 10.0.0.1/24 -------------- vp0 10.0.0.2
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

CLONE_NEWNET = 0x40000000

HOST_PUBLIC = "84.200.10.10"
HOST_SECOND = "84.200.10.11"
HOST_VPN = "10.0.0.1"
GATEWAY = "84.200.10.1"

PUBLIC = ("93.184.216.34", "1.1.1.1", "8.8.8.8", "9.9.9.9", "151.101.0.223",
          "172.15.255.254", "172.32.0.1", "11.0.0.1", "100.63.255.254",
          "100.128.0.1", "169.253.255.254", "169.255.0.1", "192.167.255.254",
          "192.169.0.1", "192.0.1.1", "198.17.255.254", "198.20.0.1",
          "223.255.255.254", "126.255.255.254", "128.0.0.1")
REFUSED = ("169.254.169.254", "169.254.0.1", "169.254.255.254", "10.9.9.9",
           "10.255.255.254", "172.16.0.1", "172.31.255.254", "192.168.0.1",
           "192.168.255.254", "100.64.0.1", "100.127.255.254", "198.18.0.1",
           "198.19.255.254", "198.51.100.9", "203.0.113.9", "192.0.0.9",
           "192.0.2.9", "192.31.196.9", "192.52.193.9", "192.88.99.9",
           "192.175.48.9", "168.63.129.16", "240.0.0.9", "255.255.255.254")

_libc = ctypes.CDLL(None, use_errno=True)


def ip(*words, ns=None, check=True):
    command = ["ip"] + (["-n", ns] if ns else []) + list(words)
    r = subprocess.run(command, capture_output=True, text=True)
    if check and r.returncode:
        raise AssertionError("%s: %s" % (" ".join(command), r.stderr))
    return r.stdout


def in_namespace(name, function, *args):
    """Calls function in a thread that is in that network namespace; sockets
    made there stay there. Its result, or its exception."""
    out = {}

    def run():
        try:
            fd = os.open("/run/netns/" + name, os.O_RDONLY)
            try:
                if _libc.setns(fd, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(fd)
            out["value"] = function(*args)
        except BaseException as e:
            out["error"] = e

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in out:
        raise out["error"]
    return out["value"]


class World:
    """zone: names for DNS, see internet.py; root: a folder served by HTTP."""

    def __init__(self):
        base = "isobox-%d-" % os.getpid()
        self.host, self.world = base + "host", base + "world"
        self.servers = []
        self.folder = tempfile.mkdtemp(prefix="isobox-test-world-")
        self.root = os.path.join(self.folder, "root")
        os.mkdir(self.root)
        self.zone = {}
        self.close_namespaces()
        try:
            self.set_zone({})
            self.build()
            self.assert_closed()
            for ns, name in ((self.host, "host"), (self.world, "world")):
                self.servers.append(Server(ns, name, self.root,
                                           self.zone_file))
        except BaseException:
            self.close()
            raise

    @property
    def zone_file(self):
        return os.path.join(self.folder, "zone.json")

    def set_zone(self, zone):
        with open(self.zone_file + ".new", "w") as f:
            json.dump(zone, f)
        os.rename(self.zone_file + ".new", self.zone_file)

    def seen(self):
        """What came to the servers of host and world, as sets of lines."""
        return tuple(s.seen() for s in self.servers)

    def forget(self):
        for s in self.servers:
            s.forget()

    def build(self):
        for ns in (self.host, self.world):
            ip("netns", "add", ns)
            ip("link", "set", "lo", "up", ns=ns)
        # Made inside, so that no name of theirs is ever on this machine.
        for here, there in (("eth0", "up0"), ("vpn0", "vp0")):
            ip("link", "add", here, "type", "veth", "peer", "name", there,
               "netns", self.world, ns=self.host)
        for ns, link, address in (
                (self.host, "eth0", HOST_PUBLIC + "/24"),
                (self.host, "eth0", HOST_SECOND + "/24"),
                (self.host, "vpn0", HOST_VPN + "/24"),
                (self.host, "eth0", "2a01:4f8::10/64"),
                (self.world, "up0", GATEWAY + "/24"),
                (self.world, "vp0", "10.0.0.2/24"),
                (self.world, "up0", "2a01:4f8::1/64")):
            nodad = ["nodad"] if ":" in address else []
            ip("addr", "add", address, "dev", link, *nodad, ns=ns)
        for ns, link in ((self.host, "eth0"), (self.host, "vpn0"),
                         (self.world, "up0"), (self.world, "vp0")):
            ip("link", "set", link, "up", ns=ns)
        ip("route", "add", "default", "via", GATEWAY, ns=self.host)
        ip("-6", "route", "add", "default", "via", "2a01:4f8::1", ns=self.host)
        for address in PUBLIC + REFUSED:
            ip("addr", "add", address + "/32", "dev", "lo", ns=self.world)
        ip("addr", "add", "2606:4700::1111/128", "dev", "lo", "nodad",
           ns=self.world)

    def assert_closed(self):
        """No way from here to anywhere real: each link's other end is in the
        other namespace, and the world has no default route."""
        for ns, other, links in ((self.host, self.world, ("eth0", "vpn0")),
                                 (self.world, self.host, ("up0", "vp0"))):
            found = set()
            for line in ip("-o", "link", ns=ns).splitlines():
                name = line.split(": ")[1].split("@")[0]
                found.add(name)
                if name != "lo" and "link-netns " + other not in line:
                    raise AssertionError("a way out: " + line)
            if found != {"lo", *links}:
                raise AssertionError("unexpected links: %s" % found)
        if ip("route", "show", "default", ns=self.world):
            raise AssertionError("the world has a default route")

    def close_namespaces(self):
        for ns in (self.host, self.world):
            ip("netns", "del", ns, check=False)

    def close(self):
        for s in self.servers:
            s.close()
        self.close_namespaces()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, argv):
        """argv, to be run in the host's network."""
        return ["nsenter", "--net=/run/netns/" + self.host, "--", *argv]


class Server:
    """internet.py in a namespace, and what it says."""

    def __init__(self, ns, name, root, zone):
        here = os.path.dirname(os.path.abspath(__file__))
        self.lines = []
        self.process = subprocess.Popen(
            ["nsenter", "--net=/run/netns/" + ns, "--", sys.executable,
             os.path.join(here, "internet.py"), name, root, zone],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise AssertionError("no servers in " + ns)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def seen(self):
        time.sleep(0.05)  # what has just come is on its way
        return set(self.lines)

    def forget(self):
        """Connections and datagrams; a packet's address is said once."""
        self.lines[:] = [x for x in self.lines if x.startswith("packet")]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
