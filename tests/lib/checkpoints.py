# SPDX-License-Identifier: Apache-2.0
"""Kernels whose checkpoints are made by the runner's own code: for each sandbox a
process of tests/integration/checkpoint_live.c, as user isobox in a subtree of
its own, between us and the guest."""

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile

import cgroups
import isoproto
from harness import BUILD, IMAGES, REPO, RUNNER_USER

sys.path.insert(0, os.path.join(REPO, "tests", "guest"))

import kernels  # noqa: E402

PROGRAM = os.path.join(BUILD, "integration", "checkpoint_live")
RUNSC = os.environ.get("RUNSC") or shutil.which("runsc") or "/usr/bin/runsc"
MIB = 1 << 20
MAX = 1 << 30


class Refused(Exception):
    """An answer "fail": errno, the word of its kind, the sentence."""

    def __init__(self, text):
        super().__init__(text)
        _, code, self.kind, self.why = text.split(" ", 3)
        self.code = int(code)


class Store:
    """A subtree, a directory of workspaces, and copies of what a stamp is
    made of, so that a test may change them."""

    def __init__(self, name="isobox-test-checkpoint", memory=3 << 30):
        subprocess.run(["make", "-s", "-C", REPO, os.path.join(
            os.environ.get("B", "build"), "integration/checkpoint_live")],
            check=True)
        self.user = pwd.getpwnam(RUNNER_USER)
        self.path = tempfile.mkdtemp(prefix="isobox-checkpoint-")
        os.chmod(self.path, 0o755)
        self.workspaces = self.directory("workspaces")
        self.kernels = os.path.join(self.workspaces, "kernels")
        self.init = os.path.join(self.path, "isobox-init")
        shutil.copy(os.path.join(BUILD, "isobox-init"), self.init)
        os.chmod(self.init, 0o755)
        self.count = itertools.count()
        self.subtree = cgroups.Subtree(name, RUNNER_USER, memory)

    def directory(self, name=None):
        path = os.path.join(self.path, name or "dir-%d" % next(self.count))
        os.mkdir(path, 0o700)
        os.chown(path, self.user.pw_uid, self.user.pw_gid)
        return path

    def ids(self, dotted=False):
        if not os.path.isdir(self.kernels):
            return []
        return sorted(n for n in os.listdir(self.kernels)
                      if n.startswith(".") == dotted)

    def file(self, id, name="checkpoint.img"):
        return os.path.join(self.kernels, id, name)

    def close(self):
        self.subtree.remove()
        shutil.rmtree(self.path)


class Live(kernels.Kernel):
    """A sandbox with a kernel in it, booted or restored."""

    def __init__(self, store, language="python-slim", restore=None,
                 workspace=None, runsc=RUNSC, rootfs=None, start=True,
                 preload=(), boot=True):
        self.store = store
        self.language, self.argv, image = kernels.LANGUAGES[language]
        self.rootfs = rootfs or os.path.join(IMAGES, image)
        self.workspace = workspace or store.directory()
        self.runsc = runsc
        self.number = 0
        self.pending, self.seen = b"", []
        self.mode = ["restore", restore] if restore else \
            ["boot" if boot else "store"]
        self.launch()
        try:
            self.pid, self.start_us = map(int, self.hear("up").split())
            if boot and restore is None:
                self.expect(isoproto.GUEST_READY)
                if start:
                    self.start_kernel(preload)
            elif restore is not None and start:
                self.restored()
        except BaseException:
            self.close()
            raise

    def launch(self):
        theirs_in, self.input = os.pipe()
        self.output, theirs_out = os.pipe()
        self.control, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.log = open(os.path.join(
            self.store.path, "log-%d" % next(self.store.count)), "wb")
        words = [PROGRAM, self.store.workspaces, self.rootfs, self.runsc,
                 self.store.init, self.workspace,
                 "live%d" % next(self.store.count), *self.mode]
        fd = theirs.fileno()
        # The shell puts the socket where the program expects it.
        script = 'exec 3>&%d; exec setpriv --reuid %s --regid %s ' \
            '--clear-groups --pdeathsig KILL "$@"' % (
                fd, RUNNER_USER, RUNNER_USER)
        self.process = subprocess.Popen(
            self.store.subtree.command(
                ["bash", "-c", script, "live", *words]),
            stdin=theirs_in, stdout=theirs_out, stderr=self.log,
            pass_fds=[fd], start_new_session=True)
        theirs.close()
        os.close(theirs_in)
        os.close(theirs_out)

    def hear(self, *words, timeout=60):
        """The rest of the next answer, whose first word is one of these."""
        self.control.settimeout(timeout)
        text = self.control.recv(2048).decode()
        word, _, rest = text.partition(" ")
        if word == "fail":
            raise Refused(text)
        if word not in words:
            raise AssertionError("answer %r; log: %s" % (
                text, self.log_text()))
        return rest

    def tell(self, *words):
        self.control.send(" ".join(str(w) for w in words).encode())

    def ask(self, *words, **kw):
        self.tell(*words)
        return self.hear("ok", "list", "bytes", "copied", "about",
                         **kw)

    def begin_save(self, id, max_bytes=MAX, min_free=0, timeout=30000,
                   go_on=False, copy=None, copy_max=MAX):
        """The pid of the process that does it. copy: (from, to)."""
        self.tell("save", id, max_bytes, min_free, timeout, int(go_on),
                  *(copy or ("-", "-")), copy_max)
        return int(self.hear("begun"))

    def end_save(self):
        """bytes, microseconds of standing still, bytes and files copied."""
        return [int(n) for n in self.hear("saved").split()]

    def save(self, id, **kw):
        self.begin_save(id, **kw)
        return self.end_save()

    def close(self):
        for fd in (self.input, self.output):
            os.close(fd)
        self.control.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def crash(self):
        """kill -9 of the supervisor."""
        self.process.kill()
        self.process.wait()
        self.close()
