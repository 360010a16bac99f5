# SPDX-License-Identifier: Apache-2.0
"""Filtered egress: what a program reaches and what it does not, in a pretend
host and a pretend internet (world.py) that have no way out."""

import json
import re
import subprocess
import unittest

import targets
import world
from harness import Service

def setUpModule():
    global place, service, client
    place = world.World()
    place.assert_closed()
    service = Service("caddy", world=place).start()
    client = service.client()


def tearDownModule():
    try:
        service.assert_clean()
        service.stop()
    finally:
        place.close()


def run(code, language="python-slim", **members):
    members.setdefault("limits", {"wallTimeMs": 20000})
    r = client.execute(language, code, **members)
    if r.status != 200:
        raise AssertionError(r)
    return r.json()


class TestWorld(unittest.TestCase):
    def test_no_way_out(self):
        place.assert_closed()

    def test_the_pretend_host_reaches_everything(self):
        """Else a refusal would prove nothing."""
        place.forget()
        for address in world.REFUSED[:3] + ("10.0.0.2", world.HOST_PUBLIC,
                                            world.HOST_VPN, "1.1.1.1"):
            subprocess.run(place.command(
                ["curl", "-sf", "-m", "5", "http://%s/" % address]),
                check=True, capture_output=True)
        host, outside = place.seen()
        self.assertIn("tcp 169.254.169.254 80", outside)
        self.assertIn("tcp %s 80" % world.HOST_PUBLIC, host)


class TestTable(unittest.TestCase):
    def check(self, execute):
        place.forget()
        wrong = targets.run(execute, targets.table())
        self.assertEqual(wrong, [])
        host, outside = place.seen()
        self.assertEqual([x for x in host if not x.startswith("packet")], [])
        self.assertEqual(targets.leaks(
            x for x in outside if not x.startswith("packet")), [])

    def test_one_shot_runs(self):
        def execute(code, stdin):
            answer = run(code, stdin=stdin)
            self.assertNotIn("warning", answer)
            self.assertTrue(answer["run"]["network"])
            self.assertEqual(answer["run"]["exitCode"], 0, answer)
            return answer["run"]["stdout"]
        self.check(execute)

    def test_session_steps(self):
        made = client.post("/v1/sessions", {"runtime": "python-slim"})
        self.assertEqual(made.status, 201, made)
        session = made.json()
        key = [("X-Session-Token", session["token"])]

        def execute(code, stdin):
            r = client.post("/v1/sessions/%s/exec" % session["id"],
                            {"code": code, "stdin": stdin,
                             "limits": {"wallTimeMs": 20000}}, key)
            self.assertEqual(r.status, 200, r)
            self.assertTrue(r.json()["run"]["network"], r)
            return r.json()["run"]["stdout"]
        try:
            self.check(execute)
        finally:
            client.request("DELETE", "/v1/sessions/" + session["id"],
                           headers=key)

    def test_other_spellings(self):
        """Decimal, octal, hexadecimal and short forms mean the same hosts."""
        spelled = ["2852039166", "0251.0376.0251.0376", "0xa9fea9fe",
                   "0xa9.254.0251.254", "169.254.43518", "0x0a000001",
                   "10.1", "012.0.0.1", str(0x54c80a0a), "84.13109770",
                   "127.1"]
        code = ("import socket, sys, json\nout = []\n"
                "for a in json.load(sys.stdin):\n"
                "    s = socket.socket(); s.settimeout(5)\n"
                "    try: s.connect((a, 80)); out.append('open')\n"
                "    except ConnectionRefusedError: out.append('refused')\n"
                "    except OSError as e: out.append(str(e))\n"
                "print(json.dumps(out))")
        answer = run(code, stdin=json.dumps(spelled))
        self.assertEqual(json.loads(answer["run"]["stdout"]),
                         ["refused"] * len(spelled), answer)

    def test_ipv4_mapped(self):
        code = ("import socket\n"
                "for a in ('169.254.169.254', '84.200.10.10', '10.0.0.1',"
                " '1.1.1.1'):\n"
                "    s = socket.socket(socket.AF_INET6); s.settimeout(2)\n"
                "    try: s.connect(('::ffff:' + a, 80)); print('open')\n"
                "    except OSError as e: print('no')\n")
        self.assertIn(run(code)["run"]["stdout"],
                      ("no\nno\nno\nopen\n", "no\nno\nno\nno\n"))

    def test_broadcast_and_multicast(self):
        code = ("import socket\n"
                "for a in ('255.255.255.255', '224.0.0.251', '10.255.0.3',"
                " '84.200.10.255'):\n"
                "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                "    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\n"
                "    s.settimeout(0.3)\n"
                "    try:\n"
                "        s.sendto(b'x', (a, 9999)); print(s.recv(10))\n"
                "    except OSError: print('no')\n")
        self.assertEqual(run(code)["run"]["stdout"], "no\n" * 4)


class TestInside(unittest.TestCase):
    def test_files(self):
        out = run("print(open('/etc/resolv.conf').read(), "
                  "open('/etc/hosts').read())")["run"]["stdout"]
        self.assertIn("nameserver 1.1.1.1\nnameserver 8.8.8.8\n", out)
        self.assertRegex(out, r"127\.0\.0\.1\s+localhost")

    def test_loopback_works(self):
        code = ("import socket, threading\n"
                "l = socket.create_server(('127.0.0.1', 0))\n"
                "s = socket.create_connection(('localhost', "
                "l.getsockname()[1]))\n"
                "print(l.accept()[1][0])")
        for network in (True, False):
            self.assertEqual(run(code, network=network)["run"]["stdout"],
                             "127.0.0.1\n")

    def test_off(self):
        """By wish: no link, no resolver, no warning."""
        answer = run("import socket\nprint(socket.if_nameindex(), "
                     "open('/etc/resolv.conf').read())\n"
                     "socket.create_connection(('1.1.1.1', 80), 2)",
                     network=False)
        self.assertNotIn("warning", answer)
        self.assertFalse(answer["run"]["network"])
        self.assertEqual(answer["run"]["exitCode"], 1)
        self.assertNotIn("eth0", answer["run"]["stdout"])
        self.assertNotIn("nameserver", answer["run"]["stdout"])

    def test_names(self):
        place.set_zone({"example.org": [["93.184.216.34"], 60],
                        "www.example.org": "example.org"})
        answer = run("import socket\n"
                     "print(socket.gethostbyname('www.example.org'))\n"
                     "try: socket.gethostbyname('nope.example.org')\n"
                     "except socket.gaierror as e: print(e)")
        self.assertRegex(answer["run"]["stdout"],
                         r"^93\.184\.216\.34\n.*not known\n$")

    def test_raw_sockets(self):
        """No packets of the program's own making."""
        code = ("import socket\n"
                "for f, t, p in ((socket.AF_INET, socket.SOCK_RAW, 1),"
                "(socket.AF_INET, socket.SOCK_RAW, 255),"
                "(socket.AF_PACKET, socket.SOCK_RAW, 0x300),"
                "(socket.AF_PACKET, socket.SOCK_DGRAM, 0x300),"
                "(socket.AF_INET6, socket.SOCK_RAW, 58)):\n"
                "    try: socket.socket(f, t, p); print('got', f, t, p)\n"
                "    except OSError: print('no')\n")
        self.assertEqual(run(code)["run"]["stdout"], "no\n" * 5)

    def test_every_language_has_it(self):
        """go and rust compile; node resolves by itself."""
        programs = {
            "javascript": "require('http').get('http://93.184.216.34/', r => "
                          "r.pipe(process.stdout))",
            "ruby": "require 'net/http'\n"
                    "print Net::HTTP.get(URI('http://93.184.216.34/'))",
            "go": "package main\n\nimport (\n\t\"fmt\"\n\t\"io\"\n"
                  "\t\"net/http\"\n)\n\nfunc main() {\n"
                  "\tr, err := http.Get(\"http://93.184.216.34/\")\n"
                  "\tif err != nil {\n\t\tpanic(err)\n\t}\n"
                  "\tb, _ := io.ReadAll(r.Body)\n\tfmt.Print(string(b))\n}\n",
            "rust": "use std::io::{Read, Write};\nfn main() {\n"
                    "    let mut s = std::net::TcpStream::connect("
                    "\"93.184.216.34:80\").unwrap();\n"
                    "    s.write_all(b\"GET / HTTP/1.0\\r\\n\\r\\n\")"
                    ".unwrap();\n    let mut t = String::new();\n"
                    "    s.read_to_string(&mut t).unwrap();\n"
                    "    print!(\"{}\", t);\n}\n",
        }
        for language, code in programs.items():
            with self.subTest(language):
                answer = run(code, language)
                self.assertIn("HELLO world 93.184.216.34 port 80 from "
                              + world.HOST_PUBLIC, answer["run"]["stdout"],
                              answer)


class TestReports(unittest.TestCase):
    def metrics(self):
        text = client.get("/metrics").body.decode()
        return dict(re.findall(r"^isobox_egress_(\S+) (\S+)$", text, re.M))

    def test_metrics(self):
        service.assert_clean()  # no run of another test is counted in here
        before = self.metrics()
        self.assertEqual((before["allowed"], before["up"]), ("1", "1"))
        run("print(1)")
        run("print(1)", network=False)
        service.assert_clean()  # counted when its sandbox is gone
        after = self.metrics()
        self.assertEqual(int(after["runs_total"]),
                         int(before["runs_total"]) + 1)
        self.assertEqual(after["refused_total"], before["refused_total"])

    def test_check(self):
        r = subprocess.run(place.command(
            ["setpriv", "--reuid", "isobox", "--regid", "isobox",
             "--init-groups", "--", service.program("isobox-runner"),
             "--config", service.config, "--check-egress"]),
            capture_output=True, text=True)
        self.assertEqual((r.returncode, r.stderr), (0, ""), r)
        self.assertRegex(r.stdout, r"^egress: filtered and verified in ")


if __name__ == "__main__":
    unittest.main()
