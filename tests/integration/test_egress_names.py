# SPDX-License-Identifier: Apache-2.0
"""Egress by name, and real clients: requests, httpx, curl, git, pip. In a
pretend host and internet without a way out, see world.py."""

import json
import os
import signal
import subprocess
import threading
import time
import unittest
import zipfile

import router
import world
from egress_case import LIMITS, EgressCase
from harness import Service, descendants, signal_each, wait_for
from kernel_case import Kernel
from test_warm import is_warm

ZONE = {
    "pypi.org": [["151.101.0.223"], 300],
    "files.pythonhosted.org": "pypi.org",
    "api.github.com": "edge.github.net",
    "github.com": [["93.184.216.34"], 300],
    "edge.github.net": [["1.1.1.1"], 300],
    "evil.org": [["9.9.9.9"], 300],
    "rebind.org": [["169.254.169.254", world.HOST_PUBLIC, "10.9.9.9",
                    "11.0.0.1"], 0],
    "loop.org": "loop.org",
    "many.org": [["11.1.0.%d" % i for i in range(40)], 1],
    "huge.org": [["11.0.0.1"] + ["11.2.0.%d" % i for i in range(199)], 1],
    "empty.org": [[], 60],
    "brief.org": [["128.0.0.1"], 1],
    "old.org": [["172.32.0.1"], 60, "old"],
    "older.org": [["192.0.1.1"], 60, "older"],
    "bare.org": [["198.20.0.1"], 60, "bare"],
    "oldhuge.org": [["192.169.0.1"] + ["11.4.0.%d" % i for i in range(199)],
                    60, "bare"],
}
# How a name server can be wrong by TCP: internet.py knows these words.
WRONG = ("drip", "short", "mute", "shut", "null", "other", "again", "noise")
ZONE.update({x + ".wrong.org": [["11.5.0.%d" % i for i in range(200)], 60]
             for x in WRONG})

# [name or address, ...] on standard input; what comes of each.
REACH = r'''
import json, socket, sys
out = []
for host in json.load(sys.stdin):
    s = socket.socket(); s.settimeout(3)
    try:
        s.connect((host, 80))
        out.append(s.getpeername()[0])
    except socket.gaierror as e:
        out.append("no name" if e.errno == socket.EAI_NONAME else str(e))
    except ConnectionRefusedError:
        out.append("refused")
    except OSError as e:
        out.append(str(e))
    s.close()
print(json.dumps(out))
'''


def setUpModule():
    global place, service, client
    place = EgressCase.place = world.World()
    place.assert_closed()
    place.set_zone(ZONE)
    make_packages(place.root)
    make_repository(place.root)
    service = Service("caddy", world=place).start()
    client = service.client()


def tearDownModule():
    try:
        service.assert_clean()
        service.stop()
    finally:
        place.close()


def make_packages(root):
    """A package index with one package in it."""
    folder = os.path.join(root, "simple", "it")
    os.makedirs(folder)
    with zipfile.ZipFile(os.path.join(folder, "it-1-py3-none-any.whl"),
                         "w") as z:
        z.writestr("it.py", "word = 42\n")
        info = "it-1.dist-info/"
        z.writestr(info + "METADATA",
                   "Metadata-Version: 2.1\nName: it\nVersion: 1\n")
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\n"
                   "Root-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(info + "RECORD", "")
    with open(os.path.join(folder, "index.html"), "w") as f:
        f.write('<a href="it-1-py3-none-any.whl">it-1-py3-none-any.whl</a>')


def make_repository(root):
    """A bare repository, served as plain files."""
    work, bare = root + "/work", root + "/repo.git"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c",
           "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q", work], check=True)
    with open(work + "/file", "w") as f:
        f.write("cloned\n")
    for command in (["add", "file"], ["commit", "-qm", "one"]):
        subprocess.run([*git, "-C", work, *command], check=True)
    subprocess.run([*git, "clone", "-q", "--bare", work, bare], check=True)
    subprocess.run([*git, "-C", bare, "update-server-info"], check=True)


def run(code, language="python-slim", **members):
    members.setdefault("limits", LIMITS)
    answer = client.execute(language, code, **members).json()
    if "run" not in answer or not answer["run"]["network"]:
        raise AssertionError(answer)
    return answer["run"]


def reach(names, *hosts):
    out = run(REACH, stdin=json.dumps(hosts), network={"allow": names})
    if out["exitCode"] != 0:
        raise AssertionError(out)
    return json.loads(out["stdout"])


class TestNames(EgressCase):
    def test_only_these(self):
        self.assertEqual(
            reach(["pypi.org", "*.github.com"], "pypi.org", "PyPI.org",
                  "api.github.com", "github.com", "evil.org",
                  "edge.github.net", "files.pythonhosted.org", "nope.org",
                  "pypi.org.evil.org", "a.pypi.org"),
            ["151.101.0.223", "151.101.0.223", "1.1.1.1"] + ["no name"] * 7)

    def test_bare_addresses(self):
        """Closed before its name was asked for, and open after."""
        self.assertEqual(
            reach(["pypi.org"], "151.101.0.223", "9.9.9.9", "1.1.1.1",
                  "pypi.org", "151.101.0.223", "9.9.9.9"),
            ["refused", "refused", "refused", "151.101.0.223",
             "151.101.0.223", "refused"])

    def test_names_of_what_is_never_open(self):
        """The first address that can be reached is public."""
        self.assertEqual(
            reach(["rebind.org"], "rebind.org", "169.254.169.254",
                  world.HOST_PUBLIC, "10.9.9.9", "11.0.0.1"),
            ["refused", "refused", "refused", "refused", "11.0.0.1"])
        self.assert_no_leak()

    def test_odd_zones(self):
        self.assertEqual(
            reach(["loop.org", "empty.org", "*.org"], "loop.org", "empty.org",
                  "nope.org")[2], "no name")
        out = run("import socket\nprint(len(socket.getaddrinfo('many.org', "
                  "80, socket.AF_INET, socket.SOCK_STREAM)))",
                  network={"allow": ["many.org"]})
        self.assertEqual(out["stdout"], "15\n")

    def test_more_than_a_datagram_holds(self):
        """It is asked for by TCP: not by the sandbox, which may not."""
        place.forget()
        out = run("import socket\nfound = socket.getaddrinfo('huge.org', 80, "
                  "socket.AF_INET, socket.SOCK_STREAM)\n"
                  "print(len(found), found[0][4][0])",
                  network={"allow": ["huge.org"]})
        self.assertEqual(out["stdout"], "15 11.0.0.1\n", out)
        self.assertIn("tcp 1.1.1.1 53", place.seen()[1])
        self.assertEqual(reach(["huge.org"], "huge.org"), ["11.0.0.1"])

    def test_name_servers_without_edns(self):
        self.assertEqual(
            reach(["*.org"], "old.org", "older.org", "bare.org",
                  "oldhuge.org"),
            ["172.32.0.1", "192.0.1.1", "198.20.0.1", "192.169.0.1"])

    def test_name_servers_that_are_wrong_by_tcp(self):
        """Within the time of three tries, beside each other, and the resolver
        goes on."""
        code = r'''
import socket, struct, sys, time
names = sys.stdin.read().split()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect(("10.255.0.1", 53))
begun = time.monotonic()
for i in range(8 * len(names)):
    labels = names[i % len(names)].split(".")
    u.send(struct.pack("!HHHHHH", i, 0x100, 1, 0, 0, 0) + b"".join(
        bytes([len(x)]) + x.encode() for x in labels) + b"\0\0\1\0\1")
u.settimeout(9)
codes = {}
for _ in range(8 * len(names)):
    a = u.recv(600)
    codes.setdefault(names[(a[0] << 8 | a[1]) % len(names)], []).append(
        (a[3] & 15, a[7]))
print(time.monotonic() - begun < 8)
for name, found in codes.items():
    assert found == [(2, 0)] * 8, (name, found)
print(socket.gethostbyname("huge.org"))
'''
        out = run(code, stdin=" ".join(x + ".wrong.org" for x in WRONG),
                  network={"allow": ["*.org"]})
        self.assertEqual(out["stdout"], "True\n11.0.0.1\n", out)

    def test_a_short_life(self):
        """What was open for a name stays so for a minute, open flows longer;
        a name that means another address opens that, too."""
        place.set_zone(dict(ZONE))
        out = run("import socket, time\n"
                  "print(socket.gethostbyname('brief.org'))\n"
                  "time.sleep(4)\n"
                  "s = socket.create_connection(('128.0.0.1', 80), 3)\n"
                  "print('open')", network={"allow": ["brief.org"]})
        self.assertEqual(out["stdout"], "128.0.0.1\nopen\n", out)

    def test_other_ways_to_ask(self):
        """No name server but ours, no DNS over TCP or TLS, not even at an
        address that is open."""
        out = run(
            "import socket, struct\n"
            "q = b'\\x01\\x02\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x08pypi"
            "\\x03org\\0\\0\\x01\\0\\x01'.replace(b'\\x08pypi', b'\\x04pypi')\n"
            "socket.gethostbyname('pypi.org')\n"
            "for a in ('1.1.1.1', '8.8.8.8', '151.101.0.223'):\n"
            "    for kind, port in ((socket.SOCK_DGRAM, 53), "
            "(socket.SOCK_STREAM, 53), (socket.SOCK_STREAM, 853), "
            "(socket.SOCK_DGRAM, 853)):\n"
            "        s = socket.socket(socket.AF_INET, kind)\n"
            "        s.settimeout(5)\n"
            "        try:\n"
            "            s.connect((a, port)); s.send(q); s.recv(100)\n"
            "            print('answered', a, port)\n"
            "        except ConnectionRefusedError: print('refused')\n"
            "        except OSError as e: print(e)\n",
            network={"allow": ["pypi.org"]})
        self.assertEqual(out["stdout"], "refused\n" * 12, out)

    def test_hostile_questions(self):
        """Whatever is sent there, the resolver goes on; nothing comes back
        that was not asked for."""
        out = run(
            "import os, random, socket\nrandom.seed(7)\n"
            "good = b'\\x01\\x02\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x04pypi"
            "\\x03org\\0\\0\\x01\\0\\x01'\n"
            "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "u.connect(('10.255.0.1', 53)); u.settimeout(0)\n"
            "for i in range(3000):\n"
            "    b = bytearray(good)\n"
            "    for _ in range(random.randrange(4)):\n"
            "        b[random.randrange(len(b))] = random.randrange(256)\n"
            "    b = b[:random.randrange(len(b) + 1)] + os.urandom("
            "random.randrange(3) * 300)\n"
            "    try: u.send(bytes(b))\n"
            "    except OSError: pass\n"
            "    try: u.recv(2000)\n"
            "    except OSError: pass\n"
            "import time; time.sleep(2.5)\n"
            "print(socket.gethostbyname('pypi.org'))\n"
            "u = socket.create_connection(('151.101.0.223', 80), 3)",
            network={"allow": ["pypi.org"]})
        self.assertEqual((out["stdout"], out["exitCode"]),
                         ("151.101.0.223\n", 0), out)

    def test_other_kinds_of_records(self):
        """No address of IPv6, no text: nothing leaves by them."""
        self.place.forget()
        out = run(
            "import socket\n"
            "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "u.connect(('10.255.0.1', 53)); u.settimeout(3)\n"
            "for kind in (28, 16, 255, 65, 12):\n"
            "    u.send(b'\\x01\\x02\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x04pypi"
            "\\x03org\\0' + bytes([0, kind, 0, 1]))\n"
            "    a = u.recv(600); print(a[3] & 15, a[7])",
            network={"allow": ["pypi.org"]})
        self.assertEqual(out["stdout"], "0 0\n" * 5, out)
        self.assertFalse([x for x in place.seen()[1] if x.startswith("dns")])

    def test_a_target_becomes_the_hosts_own(self):
        self.assertEqual(reach(["evil.org"], "evil.org"), ["9.9.9.9"])
        world.ip("addr", "add", "9.9.9.9/32", "dev", "lo", ns=place.host)
        try:
            self.assertEqual(reach(["evil.org"], "evil.org"), ["refused"])
        finally:
            world.ip("addr", "del", "9.9.9.9/32", "dev", "lo", ns=place.host)

    def test_resolver_killed(self):
        """The process that answers DNS ends: everything is closed."""
        code = ("import socket, time\n"
                "print(socket.gethostbyname('pypi.org'), flush=True)\n"
                "time.sleep(6)\n"
                "try: socket.create_connection(('151.101.0.223', 80), 2)\n"
                "except OSError: print('closed')")
        out = {}
        thread = threading.Thread(target=lambda: out.update(run(
            code, network={"allow": ["pypi.org"]})))
        place.forget()
        thread.start()
        wait_for("question", lambda: "dns pypi.org 1" in place.seen()[1])
        found = {pid for r in router.find(service)
                 for pid in descendants(r.pid) - {r.carrier}}
        # The run's, and those of sandboxes that wait.
        self.assertGreaterEqual(signal_each(found, signal.SIGKILL), 1)
        thread.join()
        self.assertEqual(out["stdout"], "151.101.0.223\nclosed\n", out)


class TestWaiting(EgressCase):
    """A sandbox that waited for a run with names hears them with the job."""

    def warm(self, allow, *hosts, until=30):
        """Runs until one of them got such a sandbox; what that reached."""
        end = time.monotonic() + until
        while time.monotonic() < end:
            r = client.execute("python-slim", REACH, stdin=json.dumps(hosts),
                               network={"allow": allow}, limits=LIMITS)
            self.assertEqual(r.status, 200, r)
            self.assertTrue(r.json()["run"]["network"], r)
            if is_warm(r):
                return json.loads(r.json()["run"]["stdout"])
            time.sleep(0.5)
        raise AssertionError("no run with names was warm")

    def test_each_has_its_own_names(self):
        hosts = ("151.101.0.223", "pypi.org", "evil.org", "api.github.com",
                 "9.9.9.9", "151.101.0.223")
        no = "no name"
        for allow, reached in (
                (["pypi.org"], ["refused", "151.101.0.223", no, no,
                                "refused", "151.101.0.223"]),
                (["*.org"], ["refused", "151.101.0.223", "9.9.9.9", no,
                             "9.9.9.9", "151.101.0.223"]),
                (["api.github.com"], ["refused", no, no, "1.1.1.1",
                                      "refused", "refused"]),
                (["x%d.example" % i for i in range(63)] + ["evil.org"],
                 ["refused", no, "9.9.9.9", no, "9.9.9.9", "refused"])):
            self.assertEqual(self.warm(allow, *hosts), reached)

    def test_the_longest_list(self):
        """64 names as long as names can be, and they are heard."""
        label = "x" * 61
        allow = ["%02d%s.%s.%s.%s" % (i, label[2:], label, label, label)
                 for i in range(63)] + ["pypi.org"]
        self.assertEqual(self.warm(allow, "pypi.org", "evil.org"),
                         ["151.101.0.223", "no name"])

    def test_nothing_is_open_to_a_run_without_names(self):
        """Nor does it get a sandbox that waits for one with names."""
        self.warm(["pypi.org"], "pypi.org")
        self.assertEqual(
            json.loads(run(REACH, stdin='["9.9.9.9"]', network=True)[
                "stdout"]), ["9.9.9.9"])
        self.assertFalse(client.run("python-slim", "pass", network=False)[
            "network"])


class TestClients(EgressCase):
    def check(self, code, want, names=None, language="python"):
        for network in (True, {"allow": names}):
            out = run(code, language, network=network)
            self.assertIn(want, out["stdout"], out)

    def test_requests_and_httpx(self):
        for module in ("requests", "httpx"):
            self.check("import %s\nr = %s.get('http://api.github.com/')\n"
                       "print(r.status_code, r.text)" % (module, module),
                       "200 HELLO world 1.1.1.1 port 80",
                       ["*.github.com"])

    def test_curl(self):
        self.check("import subprocess\nprint(subprocess.run(['curl', '-sS', "
                   "'-L', 'http://pypi.org/redirect?to=http://github.com/'],"
                   " capture_output=True, text=True).stdout)",
                   "HELLO world 93.184.216.34", ["pypi.org", "github.com"])

    def test_git(self):
        self.check("import subprocess\nsubprocess.run(['git', 'clone', '-q', "
                   "'http://github.com/repo.git', '/tmp/r'], check=True)\n"
                   "print(open('/tmp/r/file').read())", "cloned",
                   ["github.com"])

    def test_pip(self):
        self.check("import subprocess\nprint(subprocess.run(['pip', "
                   "'download', '-q', '--disable-pip-version-check', "
                   "'--index-url', 'http://pypi.org/simple', "
                   "'--trusted-host', 'pypi.org', '-d', '/tmp/d', 'it'], "
                   "capture_output=True, text=True).stderr)\n"
                   "import os; print(os.listdir('/tmp/d'))",
                   "it-1-py3-none-any.whl", ["pypi.org"])

    def test_pip_install(self):
        self.check("import subprocess, sys\nsubprocess.run(['pip', 'install', "
                   "'-q', '--user', '--index-url', 'http://pypi.org/simple', "
                   "'--trusted-host', 'pypi.org', 'it'], check=True)\n"
                   "import site; sys.path.insert(0, site.getusersitepackages())"
                   "\nimport it; print(it.word)", "42", ["pypi.org"])

    def test_pip_install_in_a_kernel(self):
        """What it installs is there in the next step, in the session's files,
        and so after the kernel."""
        k = Kernel(client, runtime="python", network={"allow": ["pypi.org"]})
        self.addCleanup(k.end)
        got = k.run(
            "import subprocess\nsubprocess.run(['pip', 'install', '-q', "
            "'--user', '--index-url', 'http://pypi.org/simple', "
            "'--trusted-host', 'pypi.org', 'it'], check=True)\nNone",
            limits=LIMITS)
        self.assertEqual(got["exitCode"], 0, got)
        got = k.run("import it; print(it.word, it.__file__)")
        self.assertEqual(got["exitCode"], 0, got)
        word, path = got["stdout"].split()
        self.assertEqual(word, "42")
        self.assertTrue(path.startswith("/workspace/.local/lib/"), path)
        self.assertEqual(
            k.fs("GET", path.removeprefix("/workspace/")).body,
            b"word = 42\n")

    def test_large_transfers(self):
        for how in ("requests.get('http://pypi.org/big?mb=32', stream=True)"
                    ".raw.read()", "requests.post('http://pypi.org/upload', "
                    "data=b'x' * (32 << 20)).content.rjust(32 << 20)"):
            out = run("import requests, time\nprint(len(%s))" % how,
                      "python")
            self.assertEqual(out["stdout"], "%d\n" % (32 << 20), out)


if __name__ == "__main__":
    unittest.main()
