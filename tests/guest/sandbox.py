# SPDX-License-Identifier: Apache-2.0
"""A sandbox with isobox-init and no runner: runsc as user isobox, and the
control pipes in our hands.

    with Sandbox() as box:
        run = box.run(["badguy", "exit", "3"])

needs root (to become isobox), runsc and a built tree. Everything lies in one
directory below /tmp; all processes are in a PID namespace that dies with us.
"""

import collections
import fcntl
import itertools
import json
import os
import pwd
import select
import shutil
import subprocess
import tempfile
import time

import isoproto

REPO = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
BUILD = os.path.join(REPO, os.environ.get("B", "build"))
RUNSC = os.environ.get("RUNSC") or shutil.which("runsc") or "/usr/bin/runsc"
USER = "isobox"
INIT = "/usr/libexec/isobox/init"
CAPS = ["CAP_CHOWN", "CAP_KILL", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETUID",
        "CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"]
ENV = ["PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"]
DIRS = ("bin", "box", "dev", "etc", "proc", "sys", "tmp", "usr/libexec/isobox",
        "workspace")
FLAGS = ["--network=none", "--platform=systrap", "--ignore-cgroups",
         "--overlay2=none", "--file-access=exclusive"]
F_SETPIPE_SZ = 1031

Run = collections.namedtuple(
    "Run", "code signal cpu_us compile_failed out err frames seconds")


class Failed(Exception):
    """GUEST_FAIL, or an end without a last frame."""


def owned(path, mode=0o755):
    who = pwd.getpwnam(USER)
    os.makedirs(path, exist_ok=True)
    os.chmod(path, mode)
    os.chown(path, who.pw_uid, who.pw_gid)
    return path


class Base:
    """What all sandboxes of a test program share: a copy of init, and a root
    file system: that of an image, or one that holds the hostile programs and
    nothing else."""

    def __init__(self, image=None):
        self.path = tempfile.mkdtemp(prefix="isobox-guest-")
        os.chmod(self.path, 0o755)
        self.init = os.path.join(self.path, "isobox-init")
        shutil.copy(os.path.join(BUILD, "isobox-init"), self.init)
        os.chmod(self.init, 0o755)
        self.count = itertools.count()
        self.root = image or self.hostile_root()

    def hostile_root(self):
        self.root = os.path.join(self.path, "root")
        for name in DIRS:
            os.makedirs(os.path.join(self.root, name), 0o755)
        for name in ("badguy", "snoop", "warmer"):
            shutil.copy(os.path.join(BUILD, "guest-test", name),
                        os.path.join(self.root, "bin"))
        with open(os.path.join(self.root, "etc", "note"), "w") as f:
            f.write("not executable\n")
        with open(os.path.join(self.root, "bin", "noformat"), "w") as f:
            f.write("echo no format\n")
        os.chmod(os.path.join(self.root, "bin", "noformat"), 0o755)
        open(self.root + INIT, "w").close()
        # A file system that the service's user owns, as images are.
        subprocess.run(["chown", "-R", USER + ":", self.root], check=True)
        return self.root

    def directory(self):
        return owned(os.path.join(self.path, "box-%d" % next(self.count)),
                     0o700)

    def remove(self):
        shutil.rmtree(self.path)


base = None


def setUpModule():
    global base
    base = Base()


def tearDownModule():
    base.remove()


def tmpfs(where, *options):
    return {"destination": where, "type": "tmpfs", "source": "tmpfs",
            "options": ["mode=1777", "nosuid", "nodev", *options]}


def config(of, workspace=None, scratch_exec=False, caps=CAPS):
    """The OCI bundle as the runner makes it (runner/bundle.c), of a Base."""
    noexec = [] if scratch_exec else ["noexec"]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc",
         "options": ["nosuid", "nodev", "noexec"]},
        tmpfs("/tmp", *noexec), tmpfs("/box", *noexec),
        tmpfs("/dev/shm", "noexec"),
        {"destination": INIT, "type": "bind", "source": of.init,
         "options": ["bind", "ro"]}]
    if workspace is not None:
        mounts.append({"destination": "/workspace", "type": "bind",
                       "source": workspace, "options": ["bind", "rw"]})
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False, "user": {"uid": 0, "gid": 0}, "args": [INIT],
            "env": ["PATH=/usr/bin:/bin"], "cwd": "/", "noNewPrivileges": True,
            "capabilities": {k: caps for k in
                             ("bounding", "effective", "permitted")}},
        "root": {"path": of.root, "readonly": True},
        "hostname": "isobox", "mounts": mounts,
        "linux": {"namespaces": [{"type": t} for t in (
            "pid", "mount", "ipc", "uts", "network")]}}


class Sandbox:
    """One sandbox, booted; ready() has been seen unless ready is False."""

    def __init__(self, ready=True, log_mode=0o600, of=None, **settings):
        of = of or base
        self.dir = of.directory()
        with open(os.path.join(self.dir, "config.json"), "w") as f:
            json.dump(self.configure(of, **settings), f)
        os.chmod(f.name, 0o644)
        self.pending = b""
        self.seen = []
        self.begun = time.monotonic()
        self.start(log_mode)
        self.boot = None
        if ready:
            try:
                self.expect(isoproto.GUEST_READY)
            except BaseException:
                self.close()
                raise
            self.boot = time.monotonic() - self.begun

    def configure(self, of, **settings):
        return config(of, **settings)

    def start(self, log_mode):
        theirs_in, self.input = os.pipe()
        self.output, theirs_out = os.pipe()
        self.log = open(os.path.join(self.dir, "log"), "wb")
        os.chmod(self.log.name, log_mode)
        # As root: a pipe's owner is its maker. The runner makes its own.
        who = pwd.getpwnam(USER)
        for fd in (theirs_in, theirs_out):
            os.fchown(fd, who.pw_uid, who.pw_gid)
        self.process = subprocess.Popen(
            ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups",
             "--pdeathsig", "KILL", "unshare", "--user", "--map-root-user",
             "--mount", "--net", "--pid", "--mount-proc", "--fork",
             "--kill-child=KILL", *self.runsc("--bundle=" + self.dir)],
            stdin=theirs_in, stdout=theirs_out, stderr=self.log, cwd="/",
            env={"PATH": "/usr/bin:/bin"}, start_new_session=True)
        os.close(theirs_in)
        os.close(theirs_out)

    def runsc(self, bundle):
        """runsc and its words, to become the sandbox."""
        state = owned(os.path.join(self.dir, "state"))
        return [RUNSC, "--root=" + state, *FLAGS, "run", bundle, "box"]

    def send(self, data):
        """All of it, while keeping what comes back."""
        os.set_blocking(self.input, False)
        while data:
            readable, writable, _ = select.select(
                [self.output], [self.input], [], 30)
            if not readable and not writable:
                raise AssertionError("init takes nothing")
            if readable:
                self.receive()
            if writable:
                data = data[os.write(self.input, data[:65536]):]

    def receive(self):
        data = os.read(self.output, 1 << 20)
        if not data:
            raise Failed("the sandbox ended; its log: " + self.log_text())
        found, self.pending = isoproto.frames(self.pending + data)
        self.seen += [(time.monotonic(), kind, payload)
                      for kind, payload in found]

    def next(self, timeout=30.0):
        """The next frame: (time, type, payload)."""
        until = time.monotonic() + timeout
        while not self.seen:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.output], [], [], left)[0]:
                raise AssertionError("no frame in %g s; log: %s" % (
                    timeout, self.log_text()))
            self.receive()
        when, kind, payload = self.seen.pop(0)
        if kind == isoproto.GUEST_FAIL:
            raise Failed(isoproto.guest_fail(payload))
        return when, kind, payload

    def expect(self, kind, timeout=30.0):
        found = self.next(timeout)
        if found[1] != kind:
            raise AssertionError("frame %r instead of type %d" % (found, kind))
        return found

    def warm(self, run, entry, preload=(), timeout=90.0, **kw):
        """Has an interpreter wait; what GUEST_WARMED says."""
        kw.setdefault("env", ENV)
        self.send(isoproto.frame(isoproto.GUEST_WARM, isoproto.guest_warm(
            run, entry, preload=preload, **kw)))
        return isoproto.guest_warmed(
            self.expect(isoproto.GUEST_WARMED, timeout)[2])

    def job(self, *args, **kw):
        kw.setdefault("env", ENV)
        self.send(isoproto.frame(isoproto.GUEST_JOB,
                                 isoproto.guest_job(*args, **kw)))

    def run(self, *args, timeout=30.0, **kw):
        """One job to its end."""
        self.job(*args, **kw)
        return self.finish(timeout)

    def finish(self, timeout=30.0):
        started = self.expect(isoproto.GUEST_STARTED)[0]
        streams = {isoproto.GUEST_STDOUT: b"", isoproto.GUEST_STDERR: b""}
        got = []
        while True:
            when, kind, payload = self.next(timeout)
            if kind == isoproto.GUEST_EXIT:
                break
            streams[kind] += payload
            got.append((when - started, kind, payload))
        return Run(*isoproto.guest_exit(payload),
                   streams[isoproto.GUEST_STDOUT],
                   streams[isoproto.GUEST_STDERR], got, when - started)

    def ended(self, timeout=10.0):
        """Waits for the end of the sandbox itself."""
        return self.process.wait(timeout)

    def slow_reader(self):
        """Makes the pipe from init as small as it can be."""
        fcntl.fcntl(self.output, F_SETPIPE_SZ, 4096)

    def log_text(self):
        with open(self.log.name, errors="replace") as f:
            return f.read()[-2000:]

    def close(self):
        for fd in (self.input, self.output):
            if fd is not None:
                os.close(fd)
        self.input = self.output = None
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.dir)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run(*args, **kw):
    """One job in a sandbox of its own. sandbox: settings of that."""
    with Sandbox(**kw.pop("sandbox", {})) as box:
        return box.run(*args, **kw)
