# SPDX-License-Identifier: Apache-2.0
"""Programs against filtered egress, and a host that changes meanwhile. In a
pretend host and internet without a way out, see world.py."""

import socket
import struct
import subprocess
import time
import unittest

import router
import world
from egress_case import Background, EgressCase
from harness import Service, wait_for

METADATA = "169.254.169.254"


def setUpModule():
    global place, service, client
    place = EgressCase.place = world.World()
    place.assert_closed()
    service = Service("caddy", world=place).start()
    client = service.client()


def tearDownModule():
    try:
        service.assert_clean(60)
        service.stop()
    finally:
        place.close()


def run(code, language="python-slim", **members):
    members.setdefault("limits", {"wallTimeMs": 20000})
    return client.run(language, code, **members)


class TestPrograms(EgressCase):
    def test_rebinding(self):
        """A public name that answers with what is not public."""
        place.set_zone({"rebind.org": [[METADATA, world.HOST_PUBLIC,
                                        "10.9.9.9", "127.0.0.1"], 0]})
        out = run("import socket\n"
                  "for a in socket.getaddrinfo('rebind.org', 80, "
                  "socket.AF_INET, socket.SOCK_STREAM):\n"
                  "    s = socket.socket(); s.settimeout(5)\n"
                  "    try: s.connect(a[4]); print('open', a[4])\n"
                  "    except ConnectionRefusedError: print('refused')\n")
        self.assertEqual(out["stdout"], "refused\n" * 4, out)
        self.assert_no_leak()

    def test_redirects(self):
        for to in (METADATA, world.HOST_PUBLIC, "10.0.0.2", "192.168.0.1",
                   "2852039166"):
            out = run("import subprocess\nprint(subprocess.run(['curl', "
                      "'-sSLm', '5', 'http://1.1.1.1/redirect?to=http://%s/'],"
                      "capture_output=True, text=True))" % to, "python")
            self.assertRegex(out["stdout"], "refused|Couldn't connect|"
                                            "Failed to connect", out)
        self.assert_no_leak()

    def test_port_scan(self):
        """All ports of three hosts: no answer but refusals, at once."""
        out = run("import socket, sys\nn = 0\n"
                  "for a in ('%s', '%s', '10.255.1.2'):\n"
                  "    for p in list(range(1, 400)) + [3306, 5432, 6443, "
                  "8080, 10250]:\n"
                  "        s = socket.socket(); s.settimeout(5)\n"
                  "        try: s.connect((a, p)); print('open', a, p)\n"
                  "        except ConnectionRefusedError: n += 1\n"
                  "        s.close()\nprint(n)"
                  % (METADATA, world.HOST_PUBLIC))
        self.assertEqual(out["stdout"], "1212\n", out)
        self.assert_no_leak()

    def test_ten_thousand_connections(self):
        """As fast as a program can: some are open, the others are refused;
        the service does not mind, nor does the next run."""
        out = run(
            "import errno, resource, select, socket, collections\n"
            "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n"
            "seen = collections.Counter(); held = []\n"
            "for i in range(10000):\n"
            "    s = socket.socket(); s.setblocking(False)\n"
            "    s.connect_ex(('93.184.216.34', 80)); held.append(s)\n"
            "    if len(held) >= 2000 or i == 9999:\n"
            "        p = select.poll()\n"
            "        for x in held: p.register(x, select.POLLOUT)\n"
            "        p.poll(1000)\n"
            "        import time; time.sleep(0.2)\n"
            "        for x in held:\n"
            "            seen[x.getsockopt(socket.SOL_SOCKET, "
            "socket.SO_ERROR)] += 1\n"
            "            x.close()\n"
            "        held = []\n"
            "print(seen[errno.ECONNREFUSED], sum(seen.values()))",
            limits={"wallTimeMs": 20000, "memoryBytes": 256 << 20})
        self.assertEqual(out["exitCode"], 0, out)
        refused, tried = map(int, out["stdout"].split())
        self.assertEqual(tried, 10000)
        self.assertGreater(refused, 5000)
        answer = run("import socket\nprint(socket.create_connection("
                     "('1.1.1.1', 80), 5).getpeername()[0])")
        self.assertEqual(answer["stdout"], "1.1.1.1\n", answer)
        self.assertTrue(answer["network"])

    def test_at_once(self):
        """No more than 512 flows, whatever their kind."""
        out = run("import resource, socket, time\n"
                  "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n"
                  "held = []\n"
                  "until = time.monotonic() + 8\n"
                  "while time.monotonic() < until and len(held) < 1000:\n"
                  "    s = socket.socket(); s.settimeout(2)\n"
                  "    try: s.connect(('93.184.216.34', 80))\n"
                  "    except OSError: s.close(); time.sleep(0.02); continue\n"
                  "    held.append(s)\n"
                  "print(len(held))",
                  limits={"wallTimeMs": 20000, "memoryBytes": 256 << 20})
        self.assertEqual(out["exitCode"], 0, out)
        held = int(out["stdout"])
        self.assertLessEqual(held, 512)
        self.assertGreater(held, 300)

    def test_fills_connection_tracking(self):
        """Datagrams to 20,000 places. An open flow goes on, and so does
        everybody else's."""
        before = conntrack_count()
        out = run("import socket, time\n"
                  "k = socket.create_connection(('93.184.216.34', 80), 5)\n"
                  "k.sendall(b'GET /slow HTTP/1.0\\r\\n\\r\\n')\n"
                  "k.recv(100)\n"
                  "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                  "n = 0\n"
                  "for i in range(20000):\n"
                  "    try: u.sendto(b'x', ('9.%d.%d.9' % (i >> 8, i & 255), "
                  "1024 + i)); n += 1\n"
                  "    except OSError: pass\n"
                  "k.settimeout(5); k.sendall(b'x'); print(k.recv(20), n)")
        self.assertRegex(out["stdout"], r"^b'still here\\n' \d+\n$", out)
        self.assertLess(conntrack_count() - before, 2000)
        self.assertTrue(run("import socket\nsocket.create_connection("
                            "('1.1.1.1', 80), 5)")["exitCode"] == 0)

    def test_sandboxes_do_not_see_each_other(self):
        server = Background(
            client, "import socket, time\n"
            "l = socket.create_server(('0.0.0.0', 8080)); l.settimeout(6)\n"
            "socket.create_connection(('1.1.1.1', 8080), 5).close()\n"
            "try: print('reached by', l.accept()[1])\n"
            "except TimeoutError: print('alone')")
        wait_for("a server", lambda: "tcp 1.1.1.1 8080" in self.new())
        out = run("import socket\n"
                  "for a in ('10.255.0.1', '10.255.0.2', '10.255.0.3', "
                  "'10.255.1.100', '%s'):\n"
                  "    s = socket.socket(); s.settimeout(1)\n"
                  "    try: s.connect((a, 8080)); print('open', a)\n"
                  "    except OSError: print('no')" % world.HOST_PUBLIC)
        self.assertEqual(out["stdout"], "no\n" * 5)
        self.assertEqual(server.end()["stdout"], "alone\n")

    def test_fragments(self):
        """A datagram in parts is whole when it is judged."""
        out = run("import socket\n"
                  "for a in ('1.1.1.1', '%s', '10.9.9.9', '%s'):\n"
                  "    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                  "    u.settimeout(3); u.connect((a, 9999))\n"
                  "    try:\n"
                  "        u.send(b'x' * 60000)\n"
                  "        print(len(u.recv(65536)))\n"
                  "    except ConnectionRefusedError: print('refused')"
                  % (METADATA, world.HOST_PUBLIC))
        self.assertEqual(out["stdout"].split()[1:], ["refused"] * 3, out)
        self.assert_no_leak()


def conntrack_count():
    return world.in_namespace(place.host, lambda: int(
        open("/proc/sys/net/netfilter/nf_conntrack_count").read()))


# ---- frames that no program can make, from the sandbox's own link -------------

def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ipv4(to, payload, protocol=socket.IPPROTO_UDP, source="10.255.0.2",
         options=b"", fragment=0):
    head = struct.pack(
        "!BBHHHBBH4s4s", 0x40 | 5 + len(options) // 4, 0,
        20 + len(options) + len(payload), 7, fragment, 64, protocol, 0,
        socket.inet_aton(source), socket.inet_aton(to)) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def udp(port=9999, data=b"attack!!"):
    return struct.pack("!HHHH", 4000, port, 8 + len(data), 0) + data


def tcp(flags, port=80):
    return struct.pack("!HHIIBBHHH", 4000, port, 1, 1, 0x50, flags, 1024, 0,
                       0)


def attacks():
    """{destination that must never be seen: (EtherType, frame's payload)}"""
    lsrr = b"\x83\x07\x04" + socket.inet_aton(METADATA) + b"\0"
    return {
        "5.5.5.1": (0x0800, ipv4("5.5.5.1", udp(), source="84.200.10.10")),
        "5.5.5.2": (0x0800, ipv4("5.5.5.2", udp(), source="10.255.0.1")),
        "5.5.5.3": (0x0800, ipv4("5.5.5.3", udp(), source="127.0.0.1")),
        "5.5.5.4": (0x0800, ipv4("5.5.5.4", udp(), options=lsrr)),
        "5.5.5.5": (0x0800, ipv4("5.5.5.5", udp(), options=b"\x07\x07\x04" +
                                 b"\0" * 5)),
        # tunnels and other protocols
        "5.5.5.6": (0x0800, ipv4("5.5.5.6", ipv4(METADATA, udp()), 4)),
        "5.5.5.7": (0x0800, ipv4("5.5.5.7", b"\0\0\x08\0" +
                                 ipv4(METADATA, udp()), 47)),
        "5.5.5.8": (0x0800, ipv4("5.5.5.8", b"\0" * 40, 41)),
        "5.5.5.9": (0x0800, ipv4("5.5.5.9", b"\x08\0\xf7\xff\0\0\0\0", 1)),
        "5.5.5.10": (0x0800, ipv4("5.5.5.10", b"\0" * 16, 132)),
        "5.5.5.11": (0x0800, ipv4("5.5.5.11", b"\0" * 16, 50)),
        # no flow of anybody: answers, resets, nonsense
        "5.5.5.12": (0x0800, ipv4("5.5.5.12", tcp(0x12), 6)),
        "5.5.5.13": (0x0800, ipv4("5.5.5.13", tcp(0x04), 6)),
        "5.5.5.14": (0x0800, ipv4("5.5.5.14", tcp(0x00), 6)),
        # a first part that never gets its rest, a later one, a tiny one
        "5.5.5.15": (0x0800, ipv4("5.5.5.15", udp(), fragment=0x2000)),
        "5.5.5.16": (0x0800, ipv4("5.5.5.16", udp(), fragment=0x0010)),
        "5.5.5.17": (0x0800, ipv4("5.5.5.17", tcp(0x02)[:8], 6,
                                  fragment=0x2000)),
        # a VLAN tag, two of them, a length instead of a type
        "5.5.5.18": (0x8100, b"\0\1\x08\0" + ipv4("5.5.5.18", udp())),
        "5.5.5.19": (0x88a8, b"\0\1\x81\0\0\1\x08\0" +
                     ipv4("5.5.5.19", udp())),
        # to addresses that are refused anyway, with bits that change nothing
        METADATA: (0x0800, ipv4(METADATA, tcp(0x02), 6)),
        world.HOST_VPN: (0x0800, ipv4(world.HOST_VPN, tcp(0x02), 6)),
        "10.255.1.100": (0x0800, ipv4("10.255.1.100", udp(53))),
        "127.0.0.1": (0x0800, ipv4("127.0.0.1", udp(53))),
        "255.255.255.255": (0x0800, ipv4("255.255.255.255", udp(67))),
        "224.0.0.1": (0x0800, ipv4("224.0.0.1", b"\x16\0\0\0\0\0\0\0", 2)),
        # IPv6, to the router's own link, and as a router advertisement
        "2606:4700::1111": (0x86dd, b"\x60\0\0\0\0\x10\x11\x40" +
                            socket.inet_pton(socket.AF_INET6, "fe80::2") +
                            socket.inet_pton(socket.AF_INET6,
                                             "2606:4700::1111") + udp()),
    }


class TestFrames(EgressCase):
    def test_raw_frames(self):
        """As who has broken out of gVisor into the sandbox's namespaces."""
        guest = Background(client, "import socket, time\ntime.sleep(8)\n"
                           "print(socket.create_connection(('1.1.1.1', 80), "
                           "5).getpeername()[0])")
        s = router.raw_socket(router.sandbox_namespace(service))
        mine = s.getsockname()[4]
        theirs = neighbour(s, mine)
        for to, (kind, payload) in attacks().items():
            for mac in (theirs, b"\xff" * 6):
                s.send(mac + mine + struct.pack("!H", kind) + payload)
        # ARP: "I am the router", "who is the host?"
        for ip in ("10.255.0.1", world.HOST_PUBLIC, METADATA):
            s.send(b"\xff" * 6 + mine + b"\x08\x06" + struct.pack(
                "!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mine,
                socket.inet_aton(ip), b"\0" * 6, socket.inet_aton(ip)))
        # The ear hears: this one is like any program's, and passes.
        s.send(theirs + mine + b"\x08\0" + ipv4("5.5.5.200", udp()))
        wait_for("packet to 5.5.5.200",
                 lambda: "packet 5.5.5.200" in self.new())
        time.sleep(0.5)
        seen = {x.split()[1] for x in self.new() if x.startswith("packet")}
        self.assertEqual(seen & set(attacks()), set())
        s.close()
        self.assertEqual(guest.end()["stdout"], "1.1.1.1\n")


def neighbour(s, mine):
    """The router's MAC address, asked for as the sandbox would."""
    s.settimeout(10)
    s.bind(("eth0", 0x0806))
    s.send(b"\xff" * 6 + mine + b"\x08\x06" + struct.pack(
        "!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mine,
        socket.inet_aton("10.255.0.2"), b"\0" * 6,
        socket.inet_aton("10.255.0.1")))
    while True:
        frame = s.recv(100)
        if frame[20:22] == b"\0\2" and frame[28:32] == \
                socket.inet_aton("10.255.0.1"):
            return frame[22:28]


# ---- the host changes ---------------------------------------------------------

FLOW = r'''
import socket, time
def try_once(a):
    s = socket.socket(); s.settimeout(5)
    t = time.monotonic()
    try:
        s.connect((a, 80))
        return "open"
    except ConnectionRefusedError:
        return "refused" if time.monotonic() - t < 0.05 else "late"
    except OSError as e:
        return str(e)
    finally:
        s.close()

def try_it(a):
    """A host that stands still makes one late, not three of them."""
    for _ in range(3):
        how = try_once(a)
        if how != "late":
            break
    return how

flow = socket.create_connection(("9.9.9.9", 80), 5)
flow.settimeout(2)
flow.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
flow.recv(100)
begun = time.monotonic()
print("flow", flush=True)
socket.create_connection(("1.1.1.1", 8080), 5).close()  # the test hears of it
while time.monotonic() - begun < 15:
    try:
        flow.sendall(b"x")
        if not flow.recv(20):
            break
    except ConnectionError:
        break
    except OSError as e:
        print("not cut off:", e)
        break
    time.sleep(0.02)
print(try_it("9.9.9.9"), try_it("9.9.9.9"), try_it("1.1.1.1"))
'''


# Datagrams to the host, one after the other; how many there were.
KNOCK = r'''
import socket, time
socket.create_connection(("1.1.1.1", 80), 5)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("84.200.10.10", 9999))
end, n = time.monotonic() + %d, 0
while time.monotonic() < end:
    try: s.send(b"knock")
    except ConnectionRefusedError: pass
    n += 1
print(n)
'''


class TestHostChanges(EgressCase):
    def test_a_target_becomes_the_hosts_own(self):
        guest = Background(client, FLOW)
        wait_for("open flow", lambda: "tcp 1.1.1.1 8080" in self.new())
        world.ip("addr", "add", "9.9.9.9/32", "dev", "vpn0", ns=place.host)
        try:
            lines = guest.end()["stdout"].splitlines()
            self.assertEqual(lines[0], "flow")
            self.assertEqual(lines[-1], "refused refused open", lines)
            # A new run knows it from the start.
            out = run("import socket\nsocket.create_connection(('9.9.9.9', "
                      "80), 2)")
            self.assertIn("ConnectionRefusedError", out["stderr"])
        finally:
            world.ip("addr", "del", "9.9.9.9/32", "dev", "vpn0",
                     ns=place.host)

    def test_while_it_waits(self):
        """What waits for a run follows, too, and forgets."""
        code = ("import socket\n"
                "s = socket.socket(); s.settimeout(5)\n"
                "try: s.connect(('128.0.0.1', 80)); print('open')\n"
                "except ConnectionRefusedError: print('refused')")
        self.assertEqual(run(code)["stdout"], "open\n")
        for _ in range(3):
            router.await_some(service)
            world.ip("addr", "add", "128.0.0.1/32", "dev", "lo",
                     ns=place.host)
            self.assertEqual(run(code)["stdout"], "refused\n")
            router.await_some(service)
            world.ip("addr", "del", "128.0.0.1/32", "dev", "lo",
                     ns=place.host)
            self.assertEqual(run(code)["stdout"], "open\n")

    def test_others_change_while_it_knocks(self):
        """No packet slips through while the kernel has the set of the host's
        addresses replaced."""
        guest = Background(client, KNOCK % 5)
        wait_for("a knock", lambda: "tcp 1.1.1.1 80" in self.new())
        end, n = time.monotonic() + 4.5, 0
        while time.monotonic() < end:
            world.ip("addr", "add" if n % 2 == 0 else "del", "128.0.0.1/32",
                     "dev", "lo", ns=place.host)
            n += 1
        if n % 2:
            world.ip("addr", "del", "128.0.0.1/32", "dev", "lo",
                     ns=place.host)
        out = guest.end()
        self.assertGreater(int(out["stdout"]), 1000, out)
        self.assertGreater(n, 20)
        self.assert_no_leak()

    def test_prefixes_declared_local(self):
        code = ("import socket\n"
                "s = socket.socket(); s.settimeout(5)\n"
                "try: s.connect(('126.255.255.254', 80)); print('open')\n"
                "except ConnectionRefusedError: print('refused')")
        world.ip("route", "add", "local", "126.255.0.0/16", "dev", "lo",
                 ns=place.host)
        try:
            self.assertEqual(run(code)["stdout"], "refused\n")
        finally:
            world.ip("route", "del", "local", "126.255.0.0/16", "dev", "lo",
                     ns=place.host)
        self.assertEqual(run(code)["stdout"], "open\n")


class TestCost(unittest.TestCase):
    def test_memory(self):
        """At most 6 MB a sandbox, idle; who asks for pasta gives more."""
        limit = 24 if service.settings.get("egress_driver") == "pasta" else 6
        for r in router.await_some(service):
            self.assertLess(r.memory_kib(), limit << 10)


if __name__ == "__main__":
    unittest.main()
