# SPDX-License-Identifier: Apache-2.0
"""The runner's side of lib/wsproto.h for tests: directories below one folder,
with none of the real one's guards; what it refuses, a test tells it to."""

import errno
import io
import os
import shutil
import socket
import struct
import threading
import zipfile

from fake_runner import Reader, frame, text

WS_COMMIT = 4
INFO, ENTRIES, IDS, DATA, END = 22, 23, 24, 25, 26
OPS = (None, "create", "remove", "stat", "open", "write", "delete", "zip",
       "list")
SESSION, VOLUME = 1, 2
UNKNOWN = 2 ** 64 - 1
FILE, DIR, LINK, OTHER = 1, 2, 3, 4
QUOTA = 512 << 20


class Request:
    """struct ws_request."""

    def __init__(self, payload):
        r = Reader(payload)
        self.op = OPS[r.u8()]
        self.kind = r.u8()
        self.request_id = r.text().decode()
        self.id = r.text().decode()
        self.path = r.text()
        self.size = r.u64()
        assert not r.data, "payload too long"

    def __repr__(self):
        return "<%s %d %s %r %d>" % (self.op, self.kind, self.id, self.path,
                                     self.size)


def info(st=None, used=0, files=0, quota=0, busy=False):
    values = (False, 0, 0, 0, 0)
    if st is not None:
        values = (os.path.stat.S_ISDIR(st.st_mode), st.st_size,
                  st.st_mtime_ns, st.st_ctime_ns, st.st_ino)
        if values[0]:
            values = (True, 0) + values[2:]
    return struct.pack("<BQqqQQQQB", *values, used, files, quota, busy)


def entry(name, kind=FILE, size=0, mtime_ns=0):
    return text(name) + struct.pack("<BQq", kind, size, mtime_ns)


class Refusal(Exception):
    """kind, retry, message of a PROTO_FAIL."""


class Workspaces:
    def __init__(self, base):
        self.base = base
        self.asked = []  # every Request
        self.busy = False
        self.lock = threading.Lock()
        self.clear()

    def clear(self):
        shutil.rmtree(self.base, ignore_errors=True)
        for kind in (SESSION, VOLUME):
            os.makedirs(self.root(kind))
        self.asked.clear()
        self.busy = False

    def root(self, kind, name=""):
        return os.path.join(self.base, str(kind), name)

    def path(self, q):
        """Of what a request is about; there is such a workspace."""
        root = self.root(q.kind, q.id)
        if not os.path.isdir(root):
            raise Refusal("session_not_found" if q.kind == SESSION
                          else "volume_not_found", 0, "")
        return os.path.join(root.encode(), q.path)

    def serve(self, call):
        q = Request(call.payload)
        with self.lock:
            self.asked.append(q)
        try:
            getattr(self, "do_" + q.op)(call, q)
        except Refusal as e:
            call.fail(*e.args)
            return
        except (FileNotFoundError, NotADirectoryError):
            call.fail("not_found")
            return
        except OSError as e:
            if e.errno != errno.ENAMETOOLONG:
                raise
            call.fail("invalid_path")
            return
        call.send(frame(END))

    def do_create(self, call, q):
        os.mkdir(self.root(q.kind, q.id))

    def do_remove(self, call, q):
        shutil.rmtree(self.root(q.kind, q.id), ignore_errors=True)

    def do_list(self, call, q):
        names = os.listdir(self.root(q.kind))
        if names:
            call.send(frame(IDS, b"".join(text(n) for n in names)))

    def do_stat(self, call, q):
        used = files = 0
        for folder, _, names in os.walk(self.path(q)):
            files += len(names)
            used += sum(os.path.getsize(os.path.join(folder, n))
                        for n in names)
        call.send(frame(INFO, info(used=used, files=files, quota=QUOTA,
                                   busy=self.busy)))

    def do_open(self, call, q):
        path = self.path(q)
        st = os.stat(path)
        if not os.path.isdir(path):
            fd = os.open(path, os.O_RDONLY)
            self.send_fd(call, frame(INFO, info(st)), fd)
            return
        call.send(frame(INFO, info(st)))
        for name in sorted(os.listdir(path)):
            st = os.lstat(os.path.join(path, name))
            kind = (DIR if os.path.stat.S_ISDIR(st.st_mode) else
                    LINK if os.path.stat.S_ISLNK(st.st_mode) else
                    FILE if os.path.stat.S_ISREG(st.st_mode) else OTHER)
            call.send(frame(ENTRIES, entry(
                name, kind, st.st_size if kind == FILE else 0,
                st.st_mtime_ns)))

    @staticmethod
    def send_fd(call, data, fd):
        try:
            socket.send_fds(call.sock, [data], [fd])
        finally:
            os.close(fd)

    def do_write(self, call, q):
        path = self.path(q)
        folder = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        fd = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        try:
            self.send_fd(call, frame(INFO, info(os.fstat(fd))), os.dup(fd))
            got = call.read_frame()
            if got is None:
                return
            kind, payload = got
            assert kind == WS_COMMIT
            size, = struct.unpack("<Q", payload)
            assert os.fstat(fd).st_size == size
            temporary = b"%s/%d" % (self.base.encode(), threading.get_ident())
            with open(temporary, "wb") as f:
                f.write(os.pread(fd, size, 0))
            os.replace(temporary, path)
            call.send(frame(INFO, info(os.stat(path))))
        finally:
            os.close(fd)

    def do_delete(self, call, q):
        path = self.path(q)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def do_zip(self, call, q):
        path = self.path(q)
        if not os.path.stat.S_ISDIR(os.stat(path).st_mode):
            raise Refusal("invalid_request", 0, "not a folder")
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as z:
            for folder, _, names in os.walk(path):
                for name in names:
                    full = os.path.join(folder, name)
                    z.write(full.decode(), os.path.relpath(
                        full, path).decode())
        call.send(frame(INFO, info(os.stat(path))))
        call.send(frame(DATA, out.getvalue()))
