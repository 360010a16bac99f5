# SPDX-License-Identifier: Apache-2.0
"""Starts the real service for tests and stops it: isobox-runner as user isobox
in a cgroup subtree of its own, isobox.fcgi as isobox-web, a front server as
www-data. Needs root, what tools/isobox-setup prepares, and a built tree.

Everything of one Service lives in one directory below /tmp and one subtree, so
that several can run side by side and leftovers() can tell what is whose. The
processes die with this one (PR_SET_PDEATHSIG), so start them in the main
thread only: the kernel means the thread that started them.
"""

import atexit
import contextlib
import ctypes
import glob
import grp
import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time

import cgroups
import front
from client import Broken, Client

REPO = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.path.join(REPO, os.environ.get("B", "build"))
IMAGES = os.environ.get("ISOBOX_IMAGES_DIR", "/var/lib/isobox/images")
RUNNER_USER = "isobox"
WEB_USER = "isobox-web"
FRONT_USER = "www-data"
PROGRAMS = ("isobox-runner", "isobox.fcgi", "isobox-init")
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
# Of all runs together: what four of the largest need, if the host has it.
MEMORY_CAP = min(6 << 30, os.sysconf("SC_PHYS_PAGES")
                 * os.sysconf("SC_PAGE_SIZE") * 3 // 4)
# AddressSanitizer ends a program, UBSan only says so.
COMPLAINT = re.compile(r"Sanitizer|runtime error:")
SANITIZED = os.path.basename(BUILD) == "asan"
PREFIX = "isobox-test-"
OWNER = "owner"  # file with the pid of the test that a service belongs to
# The store is the service's: a CGI program makes it when it first has use for it,
# which may be after its answer, and two files come and go with who has it open.
STORE_FILES = ("isobox.db", "isobox.db-shm", "isobox.db-wal")
SHARED = ("/tmp", "/var/tmp", "/run", "/dev/shm")

_running = []


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, check, timeout=10.0, every=0.02):
    """check() until it answers something true, which is returned."""
    until = time.monotonic() + timeout
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError("after %g s still no %s" % (timeout, what))
        time.sleep(every)


def spawn(argv, user, log, subtree=None, env=None, world=None):
    """Starts argv as user without any privilege, as tools/isobox-run does; its
    output is appended to the file log. world: in the network of its host."""
    command = ["setpriv", "--reuid", user, "--regid", user, "--init-groups",
               "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all",
               "--ambient-caps=-all", "--pdeathsig", "KILL", "--", *argv]
    if subtree is not None:
        command = subtree.command(command)
    if world is not None:
        command = world.command(command)
    clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    clean.update(env or {})
    with open(log, "ab") as out:
        # Apache opens /dev/stderr by name, which is for the owner only.
        os.fchown(out.fileno(), pwd.getpwnam(user).pw_uid, -1)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                stderr=out, env=clean, start_new_session=True)


def answers(client, path="/healthz"):
    """Whether there is somebody who answers 200."""
    try:
        return client.get(path).status == 200
    except (OSError, Broken):
        return False


def end(process, timeout=15.0):
    """SIGTERM, and SIGKILL when that is not enough. The exit status."""
    if process is None:
        return None
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


class Service:
    """One service. settings: keys of isobox.yaml over the defaults here."""

    def __init__(self, front_kind="caddy", images=IMAGES, world=None,
                 memory=MEMORY_CAP, **settings):
        adopt_orphans()
        self.front_kind = front_kind
        self.world = world  # what the runner's network is, see world.py
        self.runner_uid = pwd.getpwnam(RUNNER_USER).pw_uid
        self.runner = self.fcgi = self.front = None
        self.extra = []  # more isobox.fcgi processes
        self.base = tempfile.mkdtemp(prefix=PREFIX)
        self.subtree = cgroups.Subtree(os.path.basename(self.base),
                                       RUNNER_USER, memory)
        _running.append(self)
        self._directories()
        self.port = free_port()
        self.settings = {
            "rate_per_min": 0,
            # An interpreter that waits for a kernel session is left behind
            # for whoever counts what is; tests of kernels ask for it.
            "kernel_warm": 0,
            # Never from a test into a real network.
            "allow_network": world is not None,
            "allowed_users": [WEB_USER, FRONT_USER],
            "runsc": shutil.which("runsc") or "/usr/bin/runsc",
            "init_path": self.program("isobox-init"),
            "registry_dir": self.path("registry"),
            "images_dir": images,
            "runner_socket": self.path("run", "runner.sock"),
            "state_dir": self.path("state"),
            "workspaces_dir": self.path("workspaces"),
            "access_log": self.path("log", "access.log"),
        }
        # The same tests with another carrier of runs' packets.
        for key, name in (("egress_driver", "ISOBOX_TEST_EGRESS_DRIVER"),
                          ("pasta", "ISOBOX_TEST_PASTA")):
            if name in os.environ:
                self.settings[key] = os.environ[name]
        self.settings.update(settings)
        self.write_config()

    def path(self, *parts):
        return os.path.join(self.base, *parts)

    def own_directory(self, name, user, group=None, mode=0o755):
        who = pwd.getpwnam(user)
        os.mkdir(self.path(name))
        os.chown(self.path(name), who.pw_uid,
                 who.pw_gid if group is None else grp.getgrnam(group).gr_gid)
        os.chmod(self.path(name), mode)

    def _directories(self):
        """The programs and what they read are copied: the users of the
        service may not be able to look into this working tree."""
        os.chmod(self.base, 0o755)
        with open(self.path(OWNER), "w") as f:
            f.write(str(os.getpid()))
        # A CGI program is the front server's child and runs as its user.
        web = FRONT_USER if self.cgi else WEB_USER
        # Sockets take the group of their folder: whoever may use them.
        self.own_directory("run", RUNNER_USER, web, 0o2750)
        self.own_directory("fcgi", WEB_USER, FRONT_USER, 0o2750)
        self.own_directory("state", web, mode=0o700)
        self.own_directory("workspaces", RUNNER_USER, mode=0o700)
        self.own_directory("front", FRONT_USER)
        self.own_directory("log", WEB_USER, mode=0o1777)
        os.mkdir(self.path("bin"))
        for name in PROGRAMS:
            shutil.copy(os.path.join(BUILD, name), self.path("bin"))
        for name in ("registry", "playground"):
            shutil.copytree(os.path.join(REPO, name), self.path(name))
        subprocess.run(["chmod", "-R", "a+rX", self.path("bin"),
                        self.path("registry"), self.path("playground")],
                       check=True)

    def program(self, name):
        return self.path("bin", name)

    @property
    def cgi(self):
        return self.front_kind.startswith("cgi")

    @property
    def config(self):
        return self.path("isobox.yaml")

    @property
    def fcgi_socket(self):
        return self.path("fcgi", "fcgi.sock")

    def write_config(self):
        lines = []
        for key, value in self.settings.items():
            if isinstance(value, bool):
                value = "true" if value else "false"
            if isinstance(value, (list, tuple)):
                lines.append("%s:" % key)
                lines += ["  - %s" % v for v in value]
            else:
                lines.append("%s: %s" % (key, value if value != "" else '""'))
        with open(self.config, "w") as f:
            f.write("\n".join(lines) + "\n")
        os.chmod(self.config, 0o644)

    # Starting and stopping, one by one and all together.

    def start(self, wait=True):
        self.start_runner()
        self.start_fcgi()
        self.start_front()
        if wait:
            self.wait_ready()
            self.baseline = self.snapshot()
        return self

    def start_runner(self):
        self.runner = spawn(
            [self.program("isobox-runner"), "--config", self.config],
            RUNNER_USER, self.path("log", "runner.log"),
            self.subtree, world=self.world)

    def start_fcgi(self):
        if not self.cgi:
            self.fcgi = self.spawn_fcgi(self.fcgi_socket)

    def spawn_fcgi(self, path):
        return spawn([self.program("isobox.fcgi"), "--config", self.config,
                      "--listen", path],
                     WEB_USER, self.path("log", "fcgi.log"))

    def start_front(self):
        self.front = self.spawn_front("front", self.port, self.fcgi_socket)

    def spawn_front(self, name, port, socket_path, kind=None):
        folder = self.path(name)
        argv = front.prepare(kind or self.front_kind, folder, port, socket_path,
                             self.config, self.program("isobox.fcgi"),
                             self.path("playground"))
        return spawn(argv, FRONT_USER, self.path("log", name + ".log"),
                     env={"HOME": folder})

    def second(self):
        """One more isobox.fcgi on the same state, behind a front server of
        its own; a client of that one."""
        port, path = free_port(), self.path("fcgi", "second.sock")
        self.own_directory("front2", FRONT_USER)
        self.extra.append(self.spawn_fcgi(path))
        self.extra.append(self.spawn_front("front2", port, path))
        client = Client(("127.0.0.1", port))
        wait_for("second front", lambda: answers(client), 15, 0.05)
        return client

    def client(self, headers=(), timeout=60.0):
        return Client(("127.0.0.1", self.port), headers, timeout)

    def wait_ready(self, timeout=30.0):
        def ready():
            for name in ("runner", "fcgi", "front"):
                process = getattr(self, name)
                if process is not None and process.poll() is not None:
                    raise AssertionError("%s ended with %d\n%s" % (
                        name, process.returncode, self.logs()))
            return answers(self.client(timeout=10), "/readyz")
        try:
            wait_for("ready service", ready, timeout, 0.05)
        except AssertionError as e:
            raise AssertionError("%s\n%s" % (e, self.logs())) from None

    def logs(self):
        """The end of each log, for messages."""
        text = []
        for name in sorted(os.listdir(self.path("log"))):
            with open(self.path("log", name), "rb") as f:
                f.seek(max(0, os.path.getsize(f.name) - 4000))
                text.append("--- %s\n%s" % (
                    name, f.read().decode("utf-8", "replace")))
        return "\n".join(text)

    def stop(self):
        """Ends all and removes everything; SIGTERM must end our programs with
        status 0, and no sanitizer may have complained."""
        end(self.front)
        for process in self.extra:
            end(process)
        wrong = ["%s ended with status %d" % (name, status)
                 for name, status in (("isobox-runner", end(self.runner)),
                                      ("isobox.fcgi", end(self.fcgi)))
                 if status]
        wrong += self.complaints()
        logs = self.logs() if wrong else ""
        self.subtree.remove()
        shutil.rmtree(self.base, ignore_errors=True)
        if self in _running:
            _running.remove(self)
        if wrong:
            raise AssertionError("\n".join(wrong + [logs]))

    def complaints(self):
        found = []
        for name in ("runner.log", "fcgi.log"):
            try:
                with open(self.path("log", name), errors="replace") as f:
                    found += [line for line in f if COMPLAINT.search(line)]
            except FileNotFoundError:
                continue
        return found

    # What is there, and what is left.

    def snapshot(self):
        """Everything that a run could leave behind, as a set of lines."""
        found = set()
        for leaf in self.subtree.leaves():
            found.add("cgroup leaf %s" % leaf)
        for pid in self.processes():
            found.add("process %d %s" % (pid, command_line(pid)))
        with open("/proc/self/mountinfo") as f:
            for line in f:
                point = line.split(" ")[4]
                if point.startswith((self.base, self.settings["images_dir"])):
                    found.add("mount %s" % point)
        for folder, names, files in os.walk(self.base):
            if folder.startswith((self.path("log"), self.path("front"))):
                continue  # the logs are ours, the rest is the front server's
            found.update("file %s" % os.path.join(folder, n)
                         for n in names + files if n not in STORE_FILES)
        uids = {self.runner_uid, pwd.getpwnam(WEB_USER).pw_uid}
        for folder in SHARED:
            for entry in os.scandir(folder):
                try:
                    if entry.stat(follow_symlinks=False).st_uid in uids:
                        found.add("file %s" % entry.path)
                except FileNotFoundError:
                    continue
        return found

    def processes(self):
        """What is in the subtree, and what came from isobox-runner wherever
        it went: see adopt_orphans()."""
        return self.subtree.pids() | {
            p for p in descendants(os.getpid())
            if cgroups.alive(p) and owner(p) == self.runner_uid}

    def leftovers(self):
        """What is there and was not when the service was started and idle,
        and is no part of a sandbox that waits for its run. The processes of
        its life are compared by a new baseline after every restart()."""
        return sorted(self.snapshot() - self.baseline - self.pooled())

    def pool_size(self):
        """How many sandboxes wait or are booted for that; None: the runner
        does not tell."""
        try:
            values = self.client(timeout=5).metrics()
            return int(sum(v for k, v in values.items()
                           if k.startswith("isobox_pool_sandboxes")))
        except (OSError, Broken, AssertionError):
            return None

    def pooled(self):
        """The lines of snapshot() that are sandboxes which wait: all that
        there are, if they are as many as the runner says, with as many
        supervisors. One more is one left behind, and then all are told."""
        number = self.pool_size()
        if not number:
            return set()
        leaves = self.subtree.leaves()
        supervisors = {p for p in descendants(self.runner.pid)
                       if cgroups.parent(p) == self.runner.pid
                       and cgroups.alive(p)}
        if (len({os.path.basename(g) for g in leaves}) != number
                or len(supervisors) != number):
            return set()
        pids = supervisors | {p for q in supervisors for p in descendants(q)}
        return ({"cgroup leaf %s" % leaf for leaf in leaves}
                | {"process %d %s" % (p, command_line(p)) for p in pids})

    def wait_pool(self, number, timeout=30.0):
        """Until so many sandboxes wait."""
        def waiting():
            return self.client().metrics()[
                'isobox_pool_sandboxes{state="waiting"}'] >= number
        wait_for("%d waiting sandboxes" % number, waiting, timeout, 0.05)

    def assert_clean(self, timeout=10.0):
        """Nothing of any run is left; clean-up may take a moment."""
        until = time.monotonic() + timeout
        while True:
            left = self.leftovers()
            if not left:
                return
            if time.monotonic() > until:
                raise AssertionError("left behind:\n" + "\n".join(left))
            time.sleep(0.05)

    def usage(self):
        """{name: (descriptors, threads, RSS KiB)} of our processes; without
        the runner's descriptors for sandboxes that wait: a socket, and a
        directory in each hierarchy."""
        waiting = -1
        while waiting != self.pool_size():  # one comes or goes meanwhile
            waiting = self.pool_size()
            time.sleep(0.1)  # the connection for that is closed
            found = {name: usage(getattr(self, name).pid)
                     for name in ("runner", "fcgi") if getattr(self, name)}
        fds, threads, rss = found["runner"]
        each = 1 + len(self.subtree.tops())
        fds -= each * (waiting or 0)
        return dict(found, runner=(fds, threads, rss))


def adopt_orphans():
    """From now on a process whose parent has died becomes this one's child and
    not init's: whatever our services start, it stays below us."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def descendants(pid):
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            children.setdefault(cgroups.parent(int(name)), []).append(
                int(name))
    found, todo = set(), [pid]
    while todo:
        for child in children.get(todo.pop(), ()):
            found.add(child)
            todo.append(child)
    return found


def signal_each(pids, number):
    """To processes that were found by a look around: some end meanwhile. How
    many were left."""
    met = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            met += 1
    return met


def owner(pid):
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None


def command_line(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            return f.read().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return "?"


def usage(pid):
    fields = {}
    with open("/proc/%d/status" % pid) as f:
        for line in f:
            key, value = line.split(":", 1)
            fields[key] = value
    # AddressSanitizer keeps what was freed for a while.
    rss = 0 if SANITIZED else int(fields["VmRSS"].split()[0])
    return (len(os.listdir("/proc/%d/fd" % pid)), int(fields["Threads"]), rss)


def sweep():
    """Also after Ctrl-C, when unittest cleans up nothing."""
    for service in list(_running):
        try:
            service.stop()
        except AssertionError as e:
            print(e)


def sweep_stale():
    """What test runs left that were killed: their processes died with them,
    groups and directories remain."""
    for base in glob.glob(os.path.join(tempfile.gettempdir(), PREFIX + "*")):
        try:
            with open(os.path.join(base, OWNER)) as f:
                if cgroups.alive(int(f.read())):
                    continue
        except (OSError, ValueError):
            continue
        cgroups.Subtree(os.path.basename(base), RUNNER_USER, 0).remove()
        shutil.rmtree(base, ignore_errors=True)


atexit.register(sweep)
