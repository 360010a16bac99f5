# SPDX-License-Identifier: Apache-2.0
"""Filtered egress as the configuration has it, and where it cannot be had. In a
pretend host and internet without a way out, see world.py."""

import os
import signal
import unittest

import router
import targets
import world
from harness import Service, signal_each, wait_for

WARNING = ("network requested but currently unavailable (egress firewall not "
           "verified); ran with network OFF")


def setUpModule():
    global place
    place = world.World()
    place.assert_closed()
    os.chmod(place.folder, 0o755)


def tearDownModule():
    place.close()


def kernel_step(http):
    """The first step of a new session: its `run`."""
    made = http.post("/v1/sessions", {"runtime": "python",
                                      "type": "kernel"}).json()
    return http.post("/v1/sessions/%s/exec" % made["id"], {"code": "pass"},
                     [("X-Session-Token", made["token"])]).json()["run"]


class TestNotAvailable(unittest.TestCase):
    """Whatever cannot be verified: no network, said so, and no flood in the
    log."""

    def check(self, reason, refuse=True, **settings):
        other = Service("caddy", world=place, **settings)
        try:
            other.start()
            http = other.client()
            place.forget()
            for _ in range(3):
                answer = http.execute(
                    "python-slim", "import socket\n"
                    "socket.create_connection(('1.1.1.1', 80), 1)").json()
                self.assertEqual(answer["warning"], WARNING)
                self.assertFalse(answer["run"]["network"])
                self.assertEqual(answer["run"]["exitCode"], 1, answer)
            self.assertNotIn("tcp 1.1.1.1 80", place.seen()[1])
            self.assertTrue(http.get("/readyz").json()["ready"])
            other.assert_clean()
            text = http.get("/metrics").body.decode()
            self.assertIn("isobox_egress_allowed %d\n" % refuse, text)
            if not refuse:
                return
            self.assertIn("isobox_egress_up 0\n", text)
            # Where the program is, only the log tells.
            self.assertRegex(text, 'egress_down_info{reason=".*%s' %
                             reason.replace("script", r"\[path\]"))
            self.assertIn("isobox_egress_refused_total 3\n", text)
            with open(other.path("log", "runner.log")) as f:
                lines = [x for x in f if "egress: runs have no network" in x]
            self.assertEqual(len(lines), 1, lines)
            self.assertRegex(lines[0], reason)
        finally:
            other.stop()

    def test_switched_off(self):
        self.check("", refuse=False, allow_network=False)

    def test_no_slirp4netns(self):
        self.check("No such file or directory", slirp4netns="/no/such",
                   pasta="/no/such")

    def test_slirp4netns_that_ends(self):
        self.check("slirp4netns ended", slirp4netns="/bin/false",
                   egress_driver="slirp4netns")

    def test_slirp4netns_that_hangs(self):
        self.check("slirp4netns is not ready in time",
                   egress_driver="slirp4netns",
                   slirp4netns=self.script("sleep 60"))

    def script(self, line):
        path = os.path.join(place.folder, "script")
        with open(path, "w") as f:
            f.write("#!/bin/sh\n%s\n" % line)
        os.chmod(path, 0o755)
        return path

    def test_pasta_too_old(self):
        self.check("script of 2024-02-20 is too old, it must be of "
                   "2025-05-03 or later", egress_driver="pasta",
                   pasta=self.script("echo pasta 0.0~git20240220.1e6f92b-1"))

    def test_pasta_of_no_day(self):
        """That of Debian 12, of March 2023."""
        self.check("script does not tell of which day it is",
                   egress_driver="pasta",
                   pasta=self.script("echo pasta unknown version"))

    def test_pasta_that_ends(self):
        self.check("pasta ended: bad luck", egress_driver="pasta",
                   pasta=self.script(
                       '[ "$1" = --version ] && echo pasta 2025_05_03.x || '
                       "echo bad luck >&2"))

    def test_bad_configuration(self):
        """The runner does not start with it, and says what is wrong."""
        wrong = Service("caddy", world=place,
                        egress_deny=["93.184.216.34/33"])
        try:
            wrong.start_runner()
            self.assertNotEqual(wrong.runner.wait(10), 0)
            self.assertIn('egress_deny: \\"93.184.216.34/33\\"',
                          wrong.logs().replace('"', '\\"'))
        finally:
            wrong.runner = None
            wrong.stop()


class TestLate(unittest.TestCase):
    """A host that gets its address only when the service is there already."""

    ADDRESSES = (("eth0", world.HOST_PUBLIC), ("eth0", world.HOST_SECOND),
                 ("vpn0", world.HOST_VPN))

    def add_addresses(self):
        for link, address in self.ADDRESSES:
            world.ip("addr", "replace", address + "/24", "dev", link,
                     ns=place.host)
        world.ip("route", "replace", "default", "via", world.GATEWAY,
                 ns=place.host)

    def setUp(self):
        self.addCleanup(self.add_addresses)
        for link in ("eth0", "vpn0"):
            world.ip("-4", "addr", "flush", "dev", link, ns=place.host)
        self.service = Service("caddy", world=place, warm_max=3, kernel_warm=1,
                               kernel_slots=1, min_free_disk_gb=1)
        self.addCleanup(self.service.stop)
        self.service.start()
        self.http = self.service.client()

    def has_network(self):
        return self.http.run("python-slim", "pass")["network"]

    def metric(self, name):
        return self.http.metrics()["isobox_" + name]

    def test_what_waits_is_not_without_a_network_for_long(self):
        self.assertFalse(self.has_network())
        self.service.wait_pool(1)
        wait_for("a kernel that waits",
                 lambda: self.metric("kernels_waiting") == 1, 60)
        wait_for("the end of all boots", lambda: self.metric(
            'pool_sandboxes{state="booting"}') == 0, 60)
        self.add_addresses()
        wait_for("egress", lambda: self.metric("egress_up") == 1, 90, 0.2)
        for _ in range(4):
            self.assertTrue(self.has_network())
        self.assertTrue(kernel_step(self.http)["network"])
        # Those that were given up end meanwhile, and their end is no news.
        self.assertEqual(self.metric("egress_up"), 1)
        with open(self.service.path("log", "runner.log")) as f:
            self.assertEqual(f.read().count("egress: filtered and verified"),
                             1)

    def test_what_began_without_one_tells_nothing_of_now(self):
        code = "import time; print(1, flush=True); time.sleep(%d)"
        with self.http.open_stream(
                "python-slim", code % 15, limits={"wallTimeMs": 20000}) as c:
            events = c.events()
            next(e for e in events if e.name == "stdout")
            self.add_addresses()
            wait_for("a network", self.has_network)
            next(e for e in events if e.name == "done")
        wait_for("the end of it", lambda: self.metric("runner_running") == 0)
        self.assertEqual(self.metric("egress_up"), 1)


class TestCanary(unittest.TestCase):
    """The port of the host that is tried is none that the operator allows."""

    def test_the_kernels_first_choice_is_allowed(self):
        # Of a range it takes the odd ones first.
        service = Service("caddy", world=place, warm=False, egress_allow=[
            "0.0.0.0/0:%d" % port for port in (40001, 40003, 40005, 40007)])
        self.addCleanup(service.stop)
        # It is among what is tried, and would be met by chance.
        vpn = world.HOST_VPN + "/24", "dev", "vpn0"
        world.ip("addr", "del", *vpn, ns=place.host)
        self.addCleanup(world.ip, "addr", "add", *vpn, ns=place.host)
        old = world.in_namespace(place.host, self.set_ports, "40000 40007")
        self.addCleanup(world.in_namespace, place.host, self.set_ports, old)
        service.start()
        for _ in range(3):
            self.assertTrue(service.client().run("python-slim", "pass")
                            ["network"], service.logs())

    def set_ports(self, value):
        path = "/proc/sys/net/ipv4/ip_local_port_range"
        with open(path, "r+") as f:
            old = f.read()
            f.seek(0)
            f.write(value)
        return old


class TestKernelThatWaits(unittest.TestCase):
    def waiting(self):
        return self.http.metrics()["isobox_kernels_waiting"]

    def test_it_ends_with_its_network(self):
        service = Service("caddy", world=place, warm_max=1, kernel_warm=1,
                          kernel_slots=1, min_free_disk_gb=1)
        self.addCleanup(service.stop)
        service.start()
        self.http = service.client()
        wait_for("a kernel", lambda: self.waiting() == 1, 60)
        for found in router.await_some(service):
            signal_each([found.pid], signal.SIGKILL)
        wait_for("its end", lambda: "a kernel that waited for a session is lost"
                 in service.logs(), 30)
        wait_for("another one", lambda: self.waiting() == 1, 60)
        self.assertTrue(kernel_step(self.http)["network"])


class TestOperator(unittest.TestCase):
    """egress_deny, egress_allow and resolvers."""

    @classmethod
    def setUpClass(cls):
        cls.service = Service(
            "caddy", world=place,
            egress_deny=["93.184.216.0/24", "8.8.8.8"],
            egress_allow=["10.9.9.9:3128", "84.200.10.10:8080",
                          "192.168.0.0/16:443"],
            resolvers=["9.9.9.9"]).start()
        cls.client = cls.service.client()

    @classmethod
    def tearDownClass(cls):
        cls.service.assert_clean()
        cls.service.stop()

    def test_all(self):
        place.set_zone({"a.org": [["1.1.1.1"], 60]})
        rows = [("93.184.216.34", 80, "tcp", targets.REFUSED),
                ("8.8.8.8", 53, "udp", targets.REFUSED),
                ("1.1.1.1", 80, "tcp", targets.OPEN),
                ("10.9.9.9", 3128, "tcp", targets.OPEN),
                ("10.9.9.9", 3128, "udp", targets.OPEN),
                ("10.9.9.9", 80, "tcp", targets.REFUSED),
                ("84.200.10.10", 8080, "tcp", targets.OPEN),
                ("84.200.10.10", 80, "tcp", targets.REFUSED),
                ("192.168.0.1", 443, "tcp", targets.OPEN),
                ("192.168.255.254", 443, "tcp", targets.OPEN),
                ("192.168.255.254", 80, "tcp", targets.REFUSED),
                ("169.254.169.254", 80, "tcp", targets.REFUSED)]
        wrong = targets.run(lambda code, stdin: self.client.run(
            "python-slim", code, stdin=stdin)["stdout"], rows)
        self.assertEqual(wrong, [])
        self.assertEqual(self.client.run(
            "python-slim", "import socket\n"
            "print(socket.gethostbyname('a.org'))")["stdout"], "1.1.1.1\n")


if __name__ == "__main__":
    unittest.main()
