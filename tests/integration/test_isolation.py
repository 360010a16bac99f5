# SPDX-License-Identifier: Apache-2.0
"""What a program sees of the world, and what it can do to it."""

import json
import os
import platform
import socket
import unittest

from harness import REPO, Service

WARNING = ("network requested but currently unavailable (egress firewall not "
           "verified); ran with network OFF")
LANGUAGES = ("python", "python-slim", "javascript", "typescript", "ruby",
             "go", "rust")

# A report in Python that the tests below look into.
PROBE = r'''
import ctypes, errno, glob, json, os, socket, subprocess

def status():
    out = {}
    for line in open("/proc/self/status"):
        k, _, v = line.partition(":")
        out[k] = v.strip()
    return out

def attempt(f, *args):
    try:
        f(*args)
        return "done"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))

def can_write(folder):
    p = os.path.join(folder, ".probe")
    try:
        with open(p, "w") as f:
            f.write("x")
        os.unlink(p)
        return True
    except OSError:
        return False

def executes(folder):
    p = os.path.join(folder, "exec-probe")
    with open(p, "wb") as f:
        f.write(open("/bin/true", "rb").read())
    os.chmod(p, 0o755)
    try:
        return subprocess.call([p]) == 0
    except OSError as e:
        return errno.errorcode[e.errno]

def device(mode, major, minor):
    """Makes a device node, as gVisor allows in a tmpfs, and opens it."""
    p = "/tmp/device-%d-%d" % (major, minor)
    try:
        os.mknod(p, mode, os.makedev(major, minor))
        os.close(os.open(p, os.O_RDWR))
        return "done"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))

writable = []
for top, dirs, files in os.walk("/", followlinks=False):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in
               ("/proc", "/sys", "/usr/share", "/usr/lib")]
    if can_write(top):
        writable.append(top)
for top in ("/usr/share", "/usr/lib", "/sys", "/proc", "/proc/sys"):
    if can_write(top):
        writable.append(top)

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.restype = ctypes.c_int
print(json.dumps({
    "uid": [os.getuid(), os.geteuid(), os.getgid(), os.getegid()],
    "groups": os.getgroups(),
    "status": status(),
    "no_new_privs": libc.prctl(39, 0, 0, 0, 0),
    "env": dict(os.environ),
    "cwd": os.getcwd(),
    "version": open("/proc/version").read(),
    "mounts": open("/proc/self/mountinfo").read(),
    "cmdlines": {p: open("/proc/%s/cmdline" % p, "rb").read()
                 .replace(b"\0", b" ").decode("utf-8", "replace")
                 for p in os.listdir("/proc") if p.isdigit()},
    "mypid": os.getpid(),
    "interfaces": [i[1] for i in socket.if_nameindex()],
    "writable": writable,
    "executes": {d: executes(d) for d in ("/box", "/tmp")},
    "fds": {f: os.readlink("/proc/self/fd/" + f)
            for f in os.listdir("/proc/self/fd")
            if os.path.exists("/proc/self/fd/" + f) or True
            and os.path.islink("/proc/self/fd/" + f)},
    "hostname": socket.gethostname(),
    "setuid": attempt(os.setuid, 0),
    "chroot": attempt(os.chroot, "/tmp"),
    "devices": {name: device(*which) for name, which in (
        ("disk", (0o060666, 8, 0)), ("mem", (0o020666, 1, 1)),
        ("port", (0o020666, 1, 4)), ("kvm", (0o020666, 10, 232)),
        ("nvidia", (0o020666, 195, 0)))},
    "chown": attempt(os.chown, "/box", 0, 0),
    "sethostname": attempt(socket.sethostname, "x"),
    "kill1": attempt(os.kill, 1, 9),
    "mem1": attempt(open, "/proc/1/mem", "r+b"),
    "env1": open("/proc/1/environ").read(),
    "fd1": [attempt(os.open, "/proc/1/fd/%d" % i, how)
            for i in range(3) for how in (os.O_RDONLY, os.O_WRONLY)],
    "root1": attempt(os.listdir, "/proc/1/root"),
    "trace1": attempt(os.readlink, "/proc/1/exe"),
    "passwd": open("/etc/passwd").read(),
}))
'''


def setUpModule():
    global service, client, seen
    # A secret that must not show inside.
    os.environ["ISOBOX_TEST_SECRET"] = "hunter2hunter2"
    service = Service("caddy").start()
    client = service.client()
    run = client.run("python-slim", PROBE, limits={"wallTimeMs": 20000})
    if run["exitCode"] != 0:
        raise AssertionError(run)
    seen = json.loads(run["stdout"])


def tearDownModule():
    service.assert_clean()
    service.stop()


def attack(code, language="python-slim", **members):
    return client.run(language, code, **members)


class TestIdentity(unittest.TestCase):
    def test_nobody(self):
        self.assertEqual(seen["uid"], [65534] * 4)
        self.assertLessEqual(set(seen["groups"]), {65534})

    def test_no_capability(self):
        for key in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            if key in seen["status"]:
                self.assertEqual(int(seen["status"][key], 16), 0, key)
        self.assertIn("CapEff", seen["status"])

    def test_no_new_privs(self):
        self.assertEqual(seen["no_new_privs"], 1)

    def test_privileged_calls_fail(self):
        for call in ("setuid", "chroot", "chown", "sethostname"):
            self.assertNotEqual(seen[call], "done", call)

    def test_device_nodes_lead_nowhere(self):
        for name, result in seen["devices"].items():
            self.assertNotEqual(result, "done", name)

    def test_every_language_is_nobody(self):
        programs = {
            "python": "import os\nprint(os.getuid())",
            "python-slim": "import os\nprint(os.getuid())",
            "javascript": "console.log(process.getuid())",
            "typescript": "console.log(process.getuid!())",
            "ruby": "puts Process.uid",
            "go": "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\n"
                  "func main() { fmt.Println(os.Getuid()) }\n",
            "rust": "fn main() { let s = std::fs::read_to_string("
                    "\"/proc/self/status\").unwrap(); for l in s.lines() { "
                    "if l.starts_with(\"Uid:\") { println!(\"{}\", "
                    "l.split_whitespace().nth(1).unwrap()); } } }\n",
        }
        for language in LANGUAGES:
            with self.subTest(language):
                self.assertEqual(attack(programs[language], language)
                                 ["stdout"], "65534\n")

    def test_setuid_programs_do_nothing(self):
        run = attack("import os\nfor top, _, files in os.walk('/usr'):\n"
                     "    for f in files:\n"
                     "        p = os.path.join(top, f)\n"
                     "        s = os.lstat(p)\n"
                     "        if s.st_mode & 0o6000 and not "
                     "os.path.islink(p): print(p)",
                     "python", limits={"wallTimeMs": 20000})
        self.assertEqual((run["stdout"], run["exitCode"]), ("", 0), run)


class TestFiles(unittest.TestCase):
    def test_only_scratch_is_writable(self):
        self.assertLessEqual(set(seen["writable"]),
                             {"/box", "/tmp", "/dev/shm"})
        self.assertLessEqual({"/box", "/tmp", "/dev/shm"},
                             set(seen["writable"]))

    def test_root_is_mounted_read_only(self):
        roots = [line.split() for line in seen["mounts"].splitlines()
                 if line.split()[4] == "/"]
        self.assertTrue(roots)
        run = attack("open('/x', 'w')")
        self.assertEqual(run["exitCode"], 1)
        self.assertRegex(run["stderr"], "Read-only file system|"
                                        "Permission denied")

    def test_scratch_does_not_execute(self):
        for folder, result in seen["executes"].items():
            self.assertEqual(result, "EACCES", folder)

    def test_no_host_path_is_visible(self):
        text = json.dumps(seen)
        for word in (service.base, REPO, "isobox-runner", "runner.sock",
                     "/var/lib/isobox"):
            self.assertNotIn(word, text)

    def test_host_files_are_not_there(self):
        """The image's /etc, not the host's; no device of the host."""
        run = attack("import os\n"
                     "for p in ('/home', '/boot', '/lost+"
                     "found', '/dev/sda', '/dev/vda', '/dev/kvm', '/dev/mem',"
                     " '/dev/net/tun', '/sys/fs/cgroup', '/run/systemd',"
                     " '/etc/shadow', '/proc/kcore', '/proc/sysrq-trigger'):\n"
                     "    try: print(p, len(os.listdir(p)) if "
                     "os.path.isdir(p) else open(p, 'rb').read(1) and 'READ')"
                     "\n    except OSError: pass\n")
        self.assertNotIn("READ", run["stdout"], run)
        self.assertEqual(run["exitCode"], 0, run)
        self.assertNotIn("isobox", seen["passwd"])

    def test_links_lead_nowhere(self):
        run = attack("import os\nos.symlink('/proc/1/root/etc/shadow', 'l')\n"
                     "try: print(open('l').read())\n"
                     "except OSError: print('no')")
        self.assertEqual(run["stdout"], "no\n")

    def test_remount(self):
        run = attack("import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n"
                     "print(c.mount(b'none', b'/', None, 32, None),"
                     "c.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None),"
                     "c.umount2(b'/box', 2),"
                     "c.mount(b'/tmp', b'/tmp', None, 32, None))")
        self.assertEqual(run["stdout"], "-1 -1 -1 -1\n", run)

    def test_own_user_namespace_gives_nothing_outside(self):
        """Being root of a namespace of its own does not make the root file
        system writable, nor lift the limit of processes."""
        run = attack(
            "import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\n"
            "c.unshare(0x10000000 | 0x20000)\n"
            "c.mount(None, b'/', None, 32, None)\n"
            "try: open('/etc/x', 'w'); print('WRITTEN')\n"
            "except OSError: print('no')\n")
        self.assertEqual(run["stdout"], "no\n", run)


class TestEnvironment(unittest.TestCase):
    def test_nothing_of_the_host(self):
        text = json.dumps(seen["env"])
        self.assertNotIn("hunter2", text)
        for key in seen["env"]:
            self.assertFalse(key.startswith("ISOBOX"), key)
        self.assertIn("PATH", seen["env"])
        self.assertIn("HOME", seen["env"])

    def test_nothing_from_the_request(self):
        """Neither headers nor CGI variables reach the program."""
        r = client.post("/execute", {
            "language": "python-slim",
            "code": "import os\nprint(dict(os.environ))"},
            [("X-Evil", "evil-marker"), ("Proxy", "http://evil-marker/")])
        self.assertNotIn("evil-marker", r.json()["run"]["stdout"], r)
        self.assertNotIn("REMOTE_ADDR", r.json()["run"]["stdout"], r)
        self.assertNotIn("127.0.0.1", r.json()["run"]["stdout"], r)

    def test_locale_and_zone(self):
        run = attack("import sys, locale, zoneinfo\n"
                     "print(sys.getfilesystemencoding(), sys.stdout.encoding)"
                     "\nzoneinfo.ZoneInfo('Asia/Tokyo')", "python")
        self.assertEqual((run["stdout"], run["exitCode"]),
                         ("utf-8 utf-8\n", 0), run)

    def test_only_standard_descriptors(self):
        """No pipe of init's, no socket of ours."""
        run = attack("import os\nprint(sorted(int(f) for f in "
                     "os.listdir('/proc/self/fd'))[:4])\n"
                     "for fd in range(3, 300):\n"
                     "    try: os.fstat(fd); print('open', fd)\n"
                     "    except OSError: pass")
        self.assertNotIn("open", run["stdout"], run)


class TestProcesses(unittest.TestCase):
    def test_only_own_processes(self):
        """init and the program: no other run, nothing of the host."""
        self.assertLessEqual(len(seen["cmdlines"]), 3, seen["cmdlines"])
        self.assertLess(seen["mypid"], 20)
        run = attack("import os, time\nfor i in range(5):\n"
                     "    n = [p for p in os.listdir('/proc') if p.isdigit()]"
                     "\n    print(len(n)); time.sleep(0.1)")
        self.assertLessEqual(max(int(x) for x in run["stdout"].split()), 3)

    def test_init_is_out_of_reach(self):
        for what in ("kill1", "mem1", "root1", "trace1"):
            self.assertNotEqual(seen[what], "done", what)
        # The pipes to the host above all: who writes there forges results.
        self.assertNotIn("done", seen["fd1"])
        self.assertLessEqual({v.split("=")[0] for v in
                              seen["env1"].split("\0")},
                             {"PATH", "HOME", ""})

    def test_signals_to_all(self):
        """kill(-1) ends the program's own, and the answer still comes."""
        run = attack("import os, signal\nprint('x', flush=True)\n"
                     "try: os.kill(-1, 9)\nexcept OSError: pass\n"
                     "print('y', flush=True)", limits={"wallTimeMs": 5000})
        self.assertIn(run["stdout"], ("x\n", "x\ny\n"))
        self.assertFalse(run["timedOut"])

    def test_signals_to_pid_1(self):
        run = attack("import os\nfor s in range(1, 65):\n"
                     "    for target in (1,):\n"
                     "        try: os.kill(target, s)\n"
                     "        except OSError: pass\nprint('still')")
        self.assertEqual((run["stdout"], run["exitCode"]), ("still\n", 0),
                         run)

    def test_ptrace_of_init(self):
        run = attack("import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n"
                     "print(c.ptrace(16, 1, 0, 0), c.ptrace(0x4206, 1, 0, 0))")
        self.assertEqual(run["stdout"], "-1 -1\n", run)

    def test_forged_frames(self):
        """What looks like a frame of init's is output, wherever it goes."""
        frame = b"\x0c\0\0\0\x34\0\0\0" + b"\0" * 12
        run = attack("import os\nos.write(1, %r * 3)\nos.write(2, %r)\n"
                     "os._exit(9)" % (frame, frame))
        self.assertEqual(run["exitCode"], 9, run)
        self.assertEqual(run["stdout"].encode(), frame * 3)
        self.assertEqual(run["stderr"].encode(), frame)

    def test_frames_into_inits_descriptors(self):
        """gVisor lets one open what init has open, as far as its owner and
        mode allow: that must not be the way to the host."""
        frame = b"\x1d\0\0\0\x34\0\0\0" + b"\0" * 29
        run = attack("import os\nfor i in range(64):\n    try:\n"
                     "        f = os.open('/proc/1/fd/%%d' %% i, "
                     "os.O_WRONLY | os.O_NONBLOCK)\n"
                     "        os.write(f, %r)\n"
                     "    except OSError: pass\nos._exit(9)" % frame)
        self.assertEqual((run["exitCode"], run["signal"]), (9, None), run)
        self.assertIn(run["stdout"].encode() + run["stderr"].encode(),
                      (b"", frame, frame * 2))

    def test_runs_do_not_see_each_other(self):
        attack("open('/tmp/secret', 'w').write('x')\n"
               "open('/dev/shm/secret', 'w').write('x')")
        run = attack("import os\nprint(os.listdir('/tmp'), "
                     "os.listdir('/dev/shm'))")
        self.assertEqual(run["stdout"], "[] []\n", run)


class TestKernel(unittest.TestCase):
    def test_gvisors_kernel(self):
        """The sentry answers, not the host's kernel."""
        self.assertNotIn(platform.release(), seen["version"])
        self.assertIn("Linux version 4.4", seen["version"])
        run = attack("import ctypes\nc = ctypes.CDLL(None)\n"
                     "b = ctypes.create_string_buffer(65536)\n"
                     "n = c.klogctl(3, b, 65536)\n"
                     "print(b.raw[:max(n, 0)].decode())")
        self.assertIn("gVisor", run["stdout"], run)

    def test_host_name(self):
        self.assertNotEqual(seen["hostname"], socket.gethostname())


class TestNetwork(unittest.TestCase):
    def test_no_interface_but_loopback(self):
        self.assertLessEqual(set(seen["interfaces"]), {"lo"})

    def test_no_way_out(self):
        host = service.port
        run = attack(
            "import socket\nfor host, port in (('127.0.0.1', %d), "
            "('169.254.169.254', 80), ('1.1.1.1', 53), ('10.0.0.1', 22)):\n"
            "    for kind in (socket.SOCK_STREAM,):\n"
            "        s = socket.socket(socket.AF_INET, kind)\n"
            "        s.settimeout(2)\n"
            "        try: s.connect((host, port)); print('CONNECTED', host)\n"
            "        except OSError: pass\n"
            "try: socket.getaddrinfo('debian.org', 80); print('RESOLVED')\n"
            "except OSError: pass\n"
            "for p in ('/run/isobox/runner.sock', %r, '/run/docker.sock'):\n"
            "    s = socket.socket(socket.AF_UNIX)\n"
            "    try: s.connect(p); print('CONNECTED', p)\n"
            "    except OSError: pass\n"
            "    try: s = socket.socket(socket.AF_UNIX); "
            "s.connect('\\0isobox'); print('CONNECTED @')\n"
            "    except OSError: pass\n"
            "print('end')" % (host, service.settings["runner_socket"]),
            limits={"wallTimeMs": 20000})
        self.assertEqual(run["stdout"], "end\n", run)

    def test_raw_sockets(self):
        run = attack("import socket\nfor f, k, p in ((2, 3, 1), (2, 3, 255), "
                     "(17, 3, 768), (17, 2, 768)):\n"
                     "    try: socket.socket(f, k, p); print('OPEN', f, k)\n"
                     "    except OSError: pass")
        self.assertEqual(run["stdout"], "", run)

    def test_localhost_works(self):
        run = attack("import socket\ns = socket.create_server(('localhost', "
                     "0))\nc = socket.create_connection(s.getsockname()[:2])\n"
                     "print('ok')")
        self.assertEqual(run["stdout"], "ok\n", run)

    def test_asked_for_and_refused(self):
        """Fails closed, and says so in the reference's words."""
        r = client.execute("python-slim", "print(1)", network=True)
        self.assertEqual(r.status, 200)
        self.assertIs(r.json()["run"]["network"], False)
        self.assertEqual(r.json()["warning"], WARNING)
        events = client.stream("python-slim", "print(1)", network=True)
        self.assertEqual(events[-1].data["warning"], WARNING)
