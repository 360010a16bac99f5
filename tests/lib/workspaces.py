# SPDX-License-Identifier: Apache-2.0
"""Asks isobox-runner for operations on workspaces, and for steps, as isobox.fcgi
does: lib/wsproto.h, lib/job.h."""

import os
import socket
import struct

from isoproto import frame, string, strings, u32, u64

RUN, STATUS, WS, COMMIT = 1, 2, 3, 4
STATUS_REPLY = 16
STARTED, STDOUT, STDERR, DONE, FAIL = 17, 18, 19, 20, 21
INFO, ENTRIES, IDS, DATA, END = 22, 23, 24, 25, 26
CREATE, REMOVE, STAT, OPEN, WRITE, DELETE, ZIP, LIST = range(1, 9)
SESSION, VOLUME = 1, 2
FILE, DIR, LINK, OTHER = range(1, 5)
UNKNOWN = 2 ** 64 - 1
LIMITS = (256 << 20, 1000, 64, 65536, 10000)

# enum err_kind of lib/err.h
KINDS = ("internal_error", "invalid_json", "invalid_request", "invalid_file",
         "language_required", "unknown_language", "no_source", "unauthorized",
         "not_found", "method_not_allowed", "rate_limited", "capacity",
         "sandbox_failed", "client_gone", "runtime_required",
         "kernel_unsupported", "invalid_path", "invalid_session_token",
         "session_not_found", "volume_not_found", "volume_busy",
         "precondition_failed", "too_large", "value_too_large",
         "quota_exceeded", "range_not_satisfiable", "session_busy",
         "too_many_sessions", "too_many_volumes", "storage_full",
         "storage_failed", "kernel_dead", "too_many_kernels")


class Refused(Exception):
    def __init__(self, kind, retry_after, detail):
        super().__init__("%s: %s" % (kind, detail))
        self.kind = kind
        self.retry_after = retry_after
        self.detail = detail


class Gone(Exception):
    """The connection ended before an END or a FAIL."""


def bytes_of(value):
    return value if isinstance(value, bytes) else os.fsencode(value)


class Connection:
    """One conversation with the runner."""

    def __init__(self, path, timeout=60.0):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(path)
        self.data = b""
        self.fds = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        self.socket.close()

    def send(self, kind, payload=b""):
        try:
            self.socket.sendall(frame(kind, payload))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has answered already

    def receive(self):
        part, fds, _, _ = socket.recv_fds(self.socket, 1 << 17, 4)
        self.fds += fds
        self.data += part
        if not part:
            raise Gone()

    def next(self):
        """(type, payload) of the next frame."""
        while len(self.data) < 8 or len(self.data) < 8 + struct.unpack_from(
                "<I", self.data)[0]:
            self.receive()
        size, kind = struct.unpack_from("<IB", self.data)
        payload = self.data[8:8 + size]
        self.data = self.data[8 + size:]
        if kind == FAIL:
            kind, retry, length = struct.unpack_from("<III", payload)
            raise Refused(KINDS[kind], retry,
                          payload[12:12 + length].decode())
        return kind, payload

    def expect(self, wanted):
        kind, payload = self.next()
        if kind != wanted:
            raise AssertionError("frame %d, not %d" % (kind, wanted))
        return payload

    def take_fd(self):
        return self.fds.pop(0)


def ready(path):
    """Whether there is a runner and it can run something."""
    try:
        with Connection(path) as c:
            c.send(STATUS)
            return c.expect(STATUS_REPLY)[0] == 1
    except (OSError, Gone):
        return False


class Info:
    def __init__(self, payload):
        (self.dir, self.size, self.mtime_ns, self.ctime_ns, self.inode,
         self.used, self.files, self.quota, self.busy) = struct.unpack(
            "<BQqqQQQQB", payload)


def entries(payload):
    """[(name, type, size, mtime_ns)]"""
    found = []
    while payload:
        size, = struct.unpack_from("<I", payload)
        found.append((payload[4:4 + size],
                      *struct.unpack_from("<BQq", payload, 4 + size)))
        payload = payload[4 + size + 17:]
    return found


class Workspace:
    """One session's or volume's, by the runner at a socket."""

    def __init__(self, path, name, kind=SESSION):
        self.path = path
        self.name = name
        self.kind = kind

    def ask(self, op, path=b"", size=0):
        c = Connection(self.path)
        c.send(WS, bytes([op, self.kind]) + string("test") +
               string(b"" if op == LIST else self.name) +
               string(bytes_of(path)) + u64(size))
        return c

    def do(self, op, path=b""):
        with self.ask(op, path) as c:
            c.expect(END)

    def create(self):
        self.do(CREATE)
        return self

    def remove(self):
        self.do(REMOVE)

    def delete(self, path):
        self.do(DELETE, path)

    def stat(self):
        with self.ask(STAT) as c:
            info = Info(c.expect(INFO))
            c.expect(END)
            return info

    def list(self, path=b""):
        """[(name, type, size, mtime_ns)] of a folder."""
        found = []
        with self.ask(OPEN, path) as c:
            info = Info(c.expect(INFO))
            assert info.dir and not c.fds
            while True:
                kind, payload = c.next()
                if kind == END:
                    return found
                assert kind == ENTRIES
                found += entries(payload)

    def names(self, path=b""):
        return [e[0] for e in self.list(path)]

    def read(self, path):
        with self.ask(OPEN, path) as c:
            info = Info(c.expect(INFO))
            assert not info.dir
            c.expect(END)
            with os.fdopen(c.take_fd(), "rb") as f:
                data = f.read()
            return data

    def write(self, path, data, size=None):
        """The Info of what was written."""
        with self.ask(WRITE, path, len(data) if size is None else size) as c:
            c.expect(INFO)
            with os.fdopen(c.take_fd(), "wb", closefd=True) as f:
                f.write(data)
            c.send(COMMIT, u64(len(data)))
            info = Info(c.expect(INFO))
            c.expect(END)
            return info

    def zip(self, path=b""):
        data = []
        with self.ask(ZIP, path) as c:
            assert Info(c.expect(INFO)).dir
            while True:
                kind, payload = c.next()
                if kind == END:
                    return b"".join(data)
                assert kind == DATA
                data.append(payload)

    def ids(self):
        found = []
        with self.ask(LIST) as c:
            while True:
                kind, payload = c.next()
                if kind == END:
                    return found
                assert kind == IDS
                while payload:
                    n, = struct.unpack_from("<I", payload)
                    found.append(payload[4:4 + n].decode())
                    payload = payload[4 + n:]


class Step:
    """A job that runs: its frames as they come."""

    def __init__(self, path, runtime, version, code, session="", volume="",
                 limits=LIMITS, name="main.py", timeout=60.0):
        self.connection = Connection(path, timeout)
        self.stdout = self.stderr = b""
        self.connection.send(RUN, b"".join([
            string("test"), string(runtime), string(version),
            struct.pack("<QIIII", *limits), struct.pack("<BI", 0, 0),
            u32(1), string(name), string(code), strings(()), string(b""),
            string(session), string(volume), strings(()),
            bytes([0, 0])]))

    def until(self, wanted):
        """Goes on to the first frame of that type."""
        while True:
            kind, payload = self.connection.next()
            if kind == STDOUT:
                self.stdout += payload
            elif kind == STDERR:
                self.stderr += payload
            if kind == wanted:
                return payload

    def finish(self):
        """(exit code, timed out) at the end; Refused."""
        with self.connection:
            payload = self.until(DONE)
        return struct.unpack_from("<I", payload)[0], bool(payload[8])
