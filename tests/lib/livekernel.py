# SPDX-License-Identifier: Apache-2.0
"""Live kernels by the runner's socket, as isobox.fcgi asks for them:
lib/kernelproto.h, and steps as lib/job.h has them."""

import collections
import re
import secrets
import struct

import workspaces
from isoproto import guest_artifact, string, strings, u32
from workspaces import Connection, Refused, Workspace

KERNEL, INFO, ARTIFACT, ARTIFACT_DATA = 5, 27, 28, 29
CREATE, INTERRUPT, FORK, STAT = range(1, 5)
STATES = {1: "starting", 2: "resident", 3: "hibernated", 4: "dead"}
ALIVE, DEAD = 1, 2
DEATHS = ("exit", "timeout", "oom", "failed", "idle", "life", "restore")
# memory, cpus, pids, output, wall time
LIMITS = (256 << 20, 1000, 64, 65536, 10000)

Info = collections.namedtuple(
    "Info", "state busy reason memory checkpoint steps network network_reason")
Result = collections.namedtuple(
    "Result", "code signal timed_out oom out_cut err_cut network duration_us "
    "cpu_us peak queue_us boot_us warm kernel raised interrupted dropped")
Step = collections.namedtuple("Step", "out err artifacts result")


def text(payload, at):
    size, = struct.unpack_from("<I", payload, at)
    return payload[at + 4:at + 4 + size].decode(), at + 4 + size


def info(payload):
    state, busy = payload[0], bool(payload[1])
    reason, at = text(payload, 2)
    memory, checkpoint, steps, network = struct.unpack_from(
        "<qQQB", payload, at)
    network_reason, at = text(payload, at + 25)
    assert at == len(payload)
    return Info(STATES[state], busy, reason, memory, checkpoint, steps,
                bool(network), network_reason)


def result(payload):
    return Result(*struct.unpack("<II?????QQqQQ?B???", payload))


def versions(service):
    """{runtime: version} of a service's registry."""
    found = {}
    for name in ("python", "python-slim", "javascript"):
        with open(service.path("registry", name + ".yaml")) as f:
            found[name] = re.search(
                r'^version: "?([^"\n]*)', f.read(), re.M)[1]
    return found


class Kernel:
    """A session with a kernel, at the socket of a runner."""

    def __init__(self, path, runtime, version, network=False, volume="",
                 allow=(), create=True, name=None, timeout=60.0, tenant=1):
        self.path = path
        self.name = name or secrets.token_hex(16)
        self.runtime, self.version = runtime, version
        self.network, self.volume, self.allow = network, volume, allow
        self.tenant = tenant
        self.workspace = Workspace(path, self.name)
        if create:
            self.created = self.create(timeout)

    def ask_on(self, c, op, new=""):
        create = op == CREATE
        c.send(KERNEL, b"".join([
            bytes([op]), string("test"), string(self.name), string(new),
            string(self.runtime if create else ""),
            string(self.version if create else ""),
            string(self.volume if create else ""),
            bytes([create and self.network]),
            strings(self.allow if create else ()),
            struct.pack("<Q", self.tenant if create else 0)]))

    def ask(self, op, new="", timeout=60.0):
        with Connection(self.path, timeout) as c:
            self.ask_on(c, op, new)
            return info(c.expect(INFO))

    def create(self, timeout=60.0):
        return self.ask(CREATE, timeout=timeout)

    def stat(self):
        return self.ask(STAT)

    def interrupt(self):
        return self.ask(INTERRUPT)

    def fork(self):
        """(the new kernel, its info)"""
        other = Kernel(self.path, self.runtime, self.version, self.network,
                       self.volume, self.allow, create=False)
        return other, self.ask(FORK, other.name)

    def remove(self):
        self.workspace.remove()

    def begin(self, code, stdin=b"", display=False, limits=LIMITS,
              files=(), wall_ms=None, timeout=90.0):
        """The connection of a step that has been asked for."""
        c = Connection(self.path, timeout)
        if wall_ms is not None:
            limits = limits[:4] + (wall_ms,)
        files = [("main.py", code)] + list(files)
        c.send(workspaces.RUN, b"".join([
            string("test"), string(self.runtime), string(self.version),
            struct.pack("<QIIII", *limits),
            struct.pack("<BI", self.network, 0), u32(len(files)),
            *[string(n) + string(d) for n, d in files], strings(()),
            string(stdin), string(self.name), string(self.volume),
            strings(self.allow), bytes([True, display])]))
        return c

    def end(self, c):
        streams = {workspaces.STDOUT: b"", workspaces.STDERR: b""}
        artifacts = []
        with c:
            while True:
                kind, payload = c.next()
                if kind == workspaces.DONE:
                    break
                if kind == ARTIFACT:
                    mime, is_text, size = guest_artifact(payload)
                    artifacts.append([mime, is_text, size, b""])
                elif kind == ARTIFACT_DATA:
                    artifacts[-1][3] += payload
                elif kind in streams:
                    streams[kind] += payload
        for mime, is_text, size, data in artifacts:
            assert len(data) == size, (mime, size, len(data))
        return Step(streams[workspaces.STDOUT].decode(),
                    streams[workspaces.STDERR].decode(),
                    [(a[0], a[3].decode() if a[1] else a[3])
                     for a in artifacts], result(payload))

    def step(self, code, **more):
        return self.end(self.begin(code, **more))


KernelStatus = collections.namedtuple(
    "KernelStatus", "used max hibernated pinned waiting checkpoint_bytes "
    "created steps forks hibernations hibernation_us restores restore_us "
    "refused evictions deaths")


def status(path):
    """The kernels' part of PROTO_STATUS_REPLY: behind all but the egress."""
    with Connection(path) as c:
        c.send(workspaces.STATUS)
        payload = c.expect(workspaces.STATUS_REPLY)
    size = struct.calcsize("<5I10Q7Q")
    # u8, string, two figures follow
    for at in range(len(payload) - size - 21 - 256, len(payload) - size + 1):
        rest = payload[at + size:] if at >= 0 else b""
        if len(rest) >= 21 and struct.unpack_from("<I", rest, 1)[0] == \
                len(rest) - 21:
            values = struct.unpack_from("<5I10Q7Q", payload, at)
            return KernelStatus(*values[:15], dict(zip(DEATHS, values[15:])))
    raise AssertionError("no status: %r" % payload)


assert Refused  # for who uses this module
