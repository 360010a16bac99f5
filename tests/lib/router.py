# SPDX-License-Identifier: Apache-2.0
"""The routers of a service under test: their processes and namespaces, for an
outsider who is root."""

import ctypes
import os
import socket
import subprocess
import threading

from cgroups import alive, parent
from harness import command_line, wait_for

CLONE_NEWNET = 0x40000000
CARRIERS = ("slirp4netns --configure ", "pasta --foreground ")
_libc = ctypes.CDLL(None, use_errno=True)


class Router:
    def __init__(self, carrier):
        self.carrier = carrier  # slirp4netns or pasta
        self.pid = parent(carrier)

    def alive(self):
        return alive(self.carrier) and alive(self.pid)

    def nft(self, *words):
        """Changes the rule set as root of the host could."""
        return subprocess.run(
            ["nsenter", "--net=/proc/%d/ns/net" % self.pid, "--", "nft",
             *words], check=True, capture_output=True, text=True).stdout

    def memory_kib(self):
        """What is its own: of the process and of its carrier."""
        total = 0
        for pid in (self.pid, self.carrier):
            with open("/proc/%d/smaps_rollup" % pid) as f:
                total += sum(int(line.split()[1]) for line in f
                             if line.startswith(("Private_Dirty:",
                                                 "Private_Clean:")))
        return total


def find(service):
    return [Router(p) for p in sorted(service.processes())
            if command_line(p).startswith(CARRIERS) and alive(p)]


def await_some(service, count=1, timeout=20):
    """Routers of sandboxes that wait or run."""
    return wait_for("%d routers" % count, lambda: (
        lambda found: found if len(found) >= count else None)(
            find(service)), timeout)


def sandbox_namespace(service):
    """A network namespace in which a sandbox's eth0 is."""
    def look():
        for pid in sorted(service.processes()):
            if "runsc-sandbox" in command_line(pid):
                try:
                    links = subprocess.run(
                        ["nsenter", "--net=/proc/%d/ns/net" % pid, "--", "ip",
                         "-o", "link"], check=True, capture_output=True,
                        text=True).stdout
                except subprocess.CalledProcessError:
                    continue
                if "eth0" in links:
                    return "/proc/%d/ns/net" % pid
        return None
    return wait_for("sandbox with eth0", look)


def raw_socket(namespace):
    """An AF_PACKET socket at a sandbox's eth0, and the two MAC addresses."""
    out = {}

    def run():
        fd = os.open(namespace, os.O_RDONLY)
        try:
            if _libc.setns(fd, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            s.bind(("eth0", 0))
            out["socket"] = s
        finally:
            os.close(fd)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return out["socket"]
