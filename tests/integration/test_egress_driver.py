# SPDX-License-Identifier: Apache-2.0
"""Which program carries runs' packets, slirp4netns or pasta; and all of egress by
a pasta that is recent enough, where there is one: /usr/bin/pasta, or what
ISOBOX_TEST_PASTA names. In a pretend host and internet without a way out, see
world.py."""

import os
import re
import subprocess
import time
import unittest

import router
import targets
import world
from egress_case import Background
from harness import Service

PASTA = os.environ.get("ISOBOX_TEST_PASTA", "/usr/bin/pasta")
# What a pasta says that will not do.
USELESS = r"is too old|does not tell|No such file"


def setUpModule():
    global place
    place = world.World()
    place.assert_closed()
    os.chmod(place.folder, 0o755)


def tearDownModule():
    place.close()


def script(name, *lines):
    path = os.path.join(place.folder, name)
    with open(path, "w") as f:
        f.write("\n".join(("#!/bin/sh",) + lines) + "\n")
    os.chmod(path, 0o755)
    return path


def pretend(name, version, *lines):
    """A pasta that says so of its version, and else does as told."""
    return script(name, '[ "$1" != --version ] || '
                  "{ echo 'pasta %s'; exit; }" % version, *lines)


def check_egress(**settings):
    """(exit status, what --check-egress says)"""
    service = Service("caddy", world=place, **settings)
    try:
        r = subprocess.run(place.command(
            ["setpriv", "--reuid", "isobox", "--regid", "isobox",
             "--init-groups", "--", service.program("isobox-runner"),
             "--config", service.config, "--check-egress"]),
            capture_output=True, text=True, timeout=60)
    finally:
        service.stop()
    return r.returncode, r.stdout + r.stderr


class TestChoice(unittest.TestCase):
    def check(self, pattern, status=0, **settings):
        found, text = check_egress(**settings)
        self.assertEqual(found, status, text)
        self.assertRegex(text, pattern)

    def test_auto_is_slirp4netns(self):
        self.check(r"verified in \S+ ms, by slirp4netns\n",
                   egress_driver="auto", pasta="/no/such")

    def test_auto_with_two_that_do_not_work(self):
        """slirp4netns' reason is told, it is the one that is installed."""
        self.check("slirp4netns ended", 1, egress_driver="auto",
                   slirp4netns="/bin/false",
                   pasta=pretend("ends", "2025_05_03.x", "exit 1"))

    def test_auto_prefers_none_that_is_old(self):
        self.check("slirp4netns ended", 1, egress_driver="auto",
                   slirp4netns="/bin/false",
                   pasta=pretend("old", "2025_05_02.x"))

    def test_as_configured(self):
        self.check("by slirp4netns, as configured\n",
                   egress_driver="slirp4netns")
        self.check("pasta ended: not today\n", 1, egress_driver="pasta",
                   pasta=pretend("sad", "2025_05_03.x",
                                 "echo not today >&2", "exit 1"))

    def test_of_debian_12(self):
        """It does not even say how old it is."""
        self.check("does not tell of which day it is", 1,
                   egress_driver="pasta",
                   pasta=pretend("debian12", "unknown version"))


class TestPasta(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        status, text = check_egress(egress_driver="pasta", pasta=PASTA)
        if status and re.search(USELESS, text):
            raise unittest.SkipTest("no recent pasta: %s" %
                                    text.rpartition("egress: ")[2].strip())
        if status:
            raise AssertionError(text)
        place.set_zone({"a.org": [["1.1.1.1"], 60],
                        "b.org": [["8.8.8.8"], 60]})
        cls.service = Service("caddy", world=place, egress_driver="pasta",
                              pasta=PASTA, egress_allow=[
                                  "10.255.1.2:80", "10.0.0.2:8080"]).start()
        cls.client = cls.service.client()

    @classmethod
    def tearDownClass(cls):
        cls.service.assert_clean()
        cls.service.stop()

    def run_code(self, code, **members):
        members.setdefault("limits", {"wallTimeMs": 20000})
        return self.client.run("python-slim", code, **members)

    def test_table(self):
        place.forget()
        rows = [row for row in targets.table() if row[:3] !=
                ("10.255.1.2", 80, "tcp")]
        wrong = targets.run(lambda code, stdin: self.run_code(
            code, stdin=stdin)["stdout"], rows)
        self.assertEqual(wrong, [])
        host, outside = place.seen()
        self.assertEqual([x for x in host if not x.startswith("packet")], [])
        self.assertEqual(targets.leaks(
            x for x in outside if not x.startswith("packet")), [])

    def test_auto_takes_it_where_slirp4netns_fails(self):
        for slirp, why in (("/bin/false", "slirp4netns fails"),
                           ("/no/such", "/no/such: No such file")):
            status, text = check_egress(
                egress_driver="auto", slirp4netns=slirp, pasta=PASTA)
            self.assertEqual(status, 0, text)
            self.assertRegex(text, "by pasta, since %s" % why)

    def test_no_address_means_the_host(self):
        """Its gateway is open here: that pasta could mean the host's loopback
        by it, and does not."""
        place.forget()
        out = self.run_code(
            "import socket\n"
            "try: print(socket.create_connection(('10.255.1.2', 80), 2))\n"
            "except OSError: print('no')")
        self.assertEqual(out["stdout"], "no\n")
        self.assertEqual([x for x in place.seen()[0]
                          if not x.startswith("packet")], [])

    def test_routes_are_the_hosts(self):
        """By the link that the host's routes say, not the default's."""
        out = self.run_code(
            "import socket\n"
            "s = socket.create_connection(('10.0.0.2', 8080), 5)\n"
            "s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n"
            "print(s.recv(4096).decode().split(' from ')[-1])")
        self.assertEqual(out["stdout"].strip(), world.HOST_VPN)

    def test_nothing_listens(self):
        """No port of the host's goes in, and none in the router goes out."""
        def listeners(argv):
            return subprocess.run(argv + ["ss", "-Hltunp"], check=True,
                                  capture_output=True, text=True).stdout
        self.assertIn("python3", listeners(place.command([])))  # world's
        self.assertNotIn("pasta", listeners(place.command([])))
        for r in router.await_some(self.service):
            text = listeners(["nsenter", "--net=/proc/%d/ns/net" % r.pid, "--"])
            self.assertEqual([x for x in text.splitlines()
                              if " 10.255.0.1:53 " not in x], [])  # names

    def test_by_name(self):
        out = self.run_code(
            "import socket\n"
            "for n in ('a.org', 'b.org'):\n"
            "    try: print(socket.create_connection((n, 80), 5)"
            ".getpeername()[0])\n"
            "    except OSError: print('no')\n", network={"allow": ["a.org"]})
        self.assertEqual(out["stdout"], "1.1.1.1\nno\n")

    def test_large_transfers(self):
        out = self.run_code(
            "import urllib.request as u\n"
            "print(len(u.urlopen('http://1.1.1.1/big?mb=50').read()))\n"
            "print(u.urlopen(u.Request('http://1.1.1.1/upload',"
            " data=bytes(50 << 20), method='POST')).read().decode())",
            limits={"wallTimeMs": 20000, "memoryBytes": 512 << 20})
        self.assertEqual(out["stdout"], "%d\n%d\n" % (50 << 20, 50 << 20), out)

    def test_large_datagrams(self):
        """In fragments beyond a link's size, they come whole."""
        out = self.run_code(
            "import os, socket\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "s.settimeout(5)\ns.connect(('1.1.1.1', 9999))\n"
            "for size in (1, 1400, 1500, 9000, 60000):\n"
            "    data = os.urandom(size)\n"
            "    s.send(data)\n"
            "    print(s.recv(65536).endswith(data))\n")
        self.assertEqual(out["stdout"], "True\n" * 5, out)

    def test_slow_peer(self):
        """The first SYNs are lost: after seconds it is a connection."""
        def nft(text):
            subprocess.run(["nsenter", "--net=/run/netns/" + place.world,
                            "--", "nft", text], check=True,
                           capture_output=True)
        nft("add table ip lossy; add chain ip lossy in { type filter hook "
            "prerouting priority raw; }; "
            "add rule ip lossy in tcp dport 3128 drop")
        try:
            guest = Background(
                self.client, "import socket\n"
                "s = socket.create_connection(('1.1.1.1', 3128), 15)\n"
                "s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\n"
                "print(len(s.recv(4096)) > 0)")
            time.sleep(2)
        finally:
            nft("delete table ip lossy")
        self.assertEqual(guest.end()["stdout"], "True\n")

    def test_told(self):
        text = self.client.get("/metrics").body.decode()
        self.assertIn('isobox_egress_driver_info{driver="pasta"} 1\n', text)
        with open(self.service.path("log", "runner.log")) as f:
            self.assertIn("egress: by pasta, as configured", f.read())

    def test_it_dies_with_its_router(self):
        routers = router.await_some(self.service)
        os.kill(routers[0].pid, 9)
        router.wait_for("end of pasta", lambda: not routers[0].alive())


if __name__ == "__main__":
    unittest.main()
