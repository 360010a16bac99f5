# SPDX-License-Identifier: Apache-2.0
"""Speaks the runner's side of lib/proto.h on a unix socket, and does what a test
tells it: a script is a function of one Call."""

import select
import socket
import struct
import threading
import time

RUN, STATUS, WS, KERNEL = 1, 2, 3, 5
STATUS_REPLY, STARTED, STDOUT, STDERR, DONE, FAIL = 16, 17, 18, 19, 20, 21
KERNEL_INFO, ARTIFACT, ARTIFACT_DATA = 27, 28, 29

# enum kernel_op, kernel_state and run_kernel
CREATE, INTERRUPT, FORK, STAT = 1, 2, 3, 4
STARTING, RESIDENT, HIBERNATED, DEAD = 1, 2, 3, 4
NONE, ALIVE, KILLED = 0, 1, 2

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


def frame(kind, payload=b""):
    return struct.pack("<IB3x", len(payload), kind) + payload


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<I", len(s)) + s


def result(exit_code=0, signal=0, timed_out=False, oom=False, cut_out=False,
           cut_err=False, network=True, duration_us=214000, cpu_us=30000,
           peak=-1, queue_us=0, boot_us=0, warm=False, kernel=NONE,
           raised=False, interrupted=False, dropped=False):
    return struct.pack("<II5BQQqQQB4B", exit_code, signal, timed_out, oom,
                       cut_out, cut_err, network, duration_us, cpu_us, peak,
                       queue_us, boot_us, warm, kernel, raised, interrupted,
                       dropped)


def kernel_info(state=RESIDENT, busy=False, reason="", memory=40 << 20,
                checkpoint=0, steps=0, network=True, network_reason=""):
    return (bytes([state, busy]) + text(reason) +
            struct.pack("<qQQB", memory, checkpoint, steps, network) +
            text(network_reason))


def status(ready=True, reason="", backend="gvisor", slots=4, running=1,
           queued=2, totals=range(10, 17), pool=range(30, 40),
           egress=(2, "", 50, 51), kernels=range(60, 82), driver=""):
    """totals: six counters and the CPU time of boots; each histogram has one
    duration in each bucket; egress: up, reason, two counters."""
    return (bytes([ready]) + text(reason) + text(backend) + text(driver) +
            struct.pack("<III", slots, running, queued) +
            struct.pack("<7Q", *totals) +
            struct.pack("<18Q", *[1] * 17, 2000000) * 5 +
            struct.pack("<II8Q", *pool) + struct.pack("<5I17Q", *kernels) +
            bytes([egress[0]]) +
            text(egress[1]) + struct.pack("<QQ", *egress[2:]))


class Reader:
    def __init__(self, data):
        self.data = data

    def take(self, n):
        assert len(self.data) >= n, "payload cut short"
        out, self.data = self.data[:n], self.data[n:]
        return out

    def u8(self):
        return self.take(1)[0]

    def u32(self):
        return struct.unpack("<I", self.take(4))[0]

    def u64(self):
        return struct.unpack("<Q", self.take(8))[0]

    def text(self):
        return self.take(self.u32())


def decode_job(payload):
    """struct job of lib/job.h as a dict."""
    r = Reader(payload)
    job = {"request_id": r.text(), "runtime": r.text(), "version": r.text(),
           "memory_bytes": r.u64(), "cpus_milli": r.u32(), "pids": r.u32(),
           "output_bytes": r.u32(), "wall_time_ms": r.u32(),
           "network": bool(r.u8()), "entry": r.u32()}
    job["files"] = [(r.text(), r.text()) for _ in range(r.u32())]
    job["args"] = [r.text() for _ in range(r.u32())]
    job["stdin"] = r.text()
    job["session"] = r.text()
    job["volume"] = r.text()
    job["allow"] = [r.text() for _ in range(r.u32())]
    job["kernel"] = bool(r.u8())
    job["display"] = bool(r.u8())
    assert not r.data, "payload too long"
    return job


def decode_kernel(payload):
    """struct kernel_request of lib/kernelproto.h as a dict."""
    r = Reader(payload)
    q = {"op": r.u8(), "request_id": r.text().decode(),
         "id": r.text().decode(), "new_id": r.text().decode(),
         "runtime": r.text(), "version": r.text(), "volume": r.text(),
         "network": bool(r.u8())}
    q["allow"] = [r.text() for _ in range(r.u32())]
    q["tenant"] = r.u64()
    assert not r.data, "payload too long"
    return q


def read_exactly(sock, n):
    data = b""
    while len(data) < n:
        more = sock.recv(n - len(data))
        if not more:
            return None
        data += more
    return data


class Call:
    """A connection of isobox.fcgi with its first frame read."""

    def __init__(self, sock, kind, payload):
        self.sock = sock
        self.kind = kind
        self.job = decode_job(payload) if kind == RUN else None
        self.kernel = decode_kernel(payload) if kind == KERNEL else None
        self.payload = payload

    def send(self, *frames):
        self.sock.sendall(b"".join(frames))

    def started(self):
        self.send(frame(STARTED))

    def stdout(self, data):
        self.send(frame(STDOUT, data))

    def stderr(self, data):
        self.send(frame(STDERR, data))

    def artifact(self, data, kind="image/png", is_text=False, split=1 << 16):
        self.send(frame(ARTIFACT, text(kind) +
                        struct.pack("<BI", is_text, len(data))))
        for i in range(0, len(data), split):
            self.send(frame(ARTIFACT_DATA, data[i:i + split]))

    def info(self, **kw):
        self.send(frame(KERNEL_INFO, kernel_info(**kw)))

    def done(self, **kw):
        self.send(frame(DONE, result(**kw)))

    def fail(self, kind, retry=0, message=""):
        self.send(frame(FAIL, struct.pack("<II", KINDS.index(kind), retry) +
                        text(message)))

    def read_frame(self):
        """(type, payload) of the next one, None at the end."""
        head = read_exactly(self.sock, 8)
        if head is None:
            return None
        size, kind = struct.unpack("<IB3x", head)
        payload = read_exactly(self.sock, size)
        return None if payload is None else (kind, payload)

    def gone(self, timeout):
        """Seconds until isobox.fcgi closed the connection; None: it did not."""
        begun = time.monotonic()
        if not select.select([self.sock], [], [], timeout)[0]:
            return None
        try:
            closed = self.sock.recv(1) == b""
        except ConnectionResetError:
            closed = True
        return time.monotonic() - begun if closed else None


def run_ok(call, out=b"", err=b"", **kw):
    """The usual script: a program that prints and ends."""
    call.started()
    if out:
        call.stdout(out)
    if err:
        call.stderr(err)
    call.done(**kw)


def step_ok(call, out=b"", err=b"", **kw):
    """The same of a step in a kernel."""
    run_ok(call, out, err, **{"kernel": ALIVE, **kw})


def answer_status(call, **kw):
    call.send(frame(STATUS_REPLY, status(**kw)))


class FakeRunner:
    """on_run, on_status, on_ws and on_kernel may be replaced at any time; calls
    has the jobs. serve_ws answers what is asked of workspaces, serve_kernel
    what is asked of kernels."""

    def __init__(self, path, serve_ws, serve_kernel):
        self.path = path
        self.serve_ws = serve_ws
        self.serve_kernel = serve_kernel
        self.calls = []
        self.errors = []
        self.reset()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1024)
        self.stopping = False
        self.lock = threading.Lock()
        self.serving = set()  # threads that have begun
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def reset(self):
        self.on_run = run_ok
        self.on_status = answer_status
        self.on_ws = self.serve_ws
        self.on_kernel = self.serve_kernel

    def stop(self):
        self.stopping = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def _accept(self):
        while not self.stopping:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            t = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            with self.lock:
                t.start()
                self.serving.add(t)

    def settle(self):
        """Until all is done that was asked for before this."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.path)
            s.sendall(frame(STATUS))
            read_exactly(s, 8)  # so whoever came before has a thread
        with self.lock:
            before = list(self.serving)
        for t in before:
            t.join(30)

    def _serve(self, sock):
        try:
            self._serve_one(sock)
        finally:
            with self.lock:
                self.serving.discard(threading.current_thread())

    def _serve_one(self, sock):
        with sock:
            try:
                sock.settimeout(30)
                head = read_exactly(sock, 8)
                if head is None:
                    return
                size, kind, pad = struct.unpack("<IB3s", head)
                payload = read_exactly(sock, size)
                if payload is None:
                    return
                assert pad == b"\0\0\0" and kind in (
                    RUN, STATUS, WS, KERNEL)
                call = Call(sock, kind, payload)
                if kind == RUN:
                    self.calls.append(call.job)
                {RUN: self.on_run, STATUS: self.on_status,
                 WS: self.on_ws, KERNEL: self.on_kernel}[kind](call)
            except (BrokenPipeError, ConnectionResetError):
                pass
            except Exception as e:  # noqa: the test's thread looks at it
                self.errors.append(e)
