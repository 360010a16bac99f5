# SPDX-License-Identifier: Apache-2.0
"""The frames of lib/proto.h and the messages of lib/job.h that go to and from
isobox-init, as Python has them. docs/guest-protocol.md says what they mean."""

import struct

GUEST_JOB, GUEST_WARM = 32, 33
GUEST_READY, GUEST_STARTED, GUEST_STDOUT, GUEST_STDERR = 48, 49, 50, 51
GUEST_EXIT, GUEST_FAIL, GUEST_WARMED = 52, 53, 54
GUEST_KERNEL, GUEST_STEP, GUEST_INTERRUPT, GUEST_RESTORED = 40, 41, 42, 43
GUEST_KERNEL_READY, GUEST_ARTIFACT, GUEST_ARTIFACT_DATA = 64, 65, 66
GUEST_STEP_DONE = 67

HEADER = struct.Struct("<IB3x")
FRAME_MAX = 1024 * 1024


class Broken(Exception):
    """What came is no frame or no message."""


def frame(kind, payload=b""):
    return HEADER.pack(len(payload), kind) + payload


def frames(data):
    """([(type, payload), ...], the bytes of a frame that is not yet whole)."""
    found = []
    while len(data) >= HEADER.size:
        size, kind = HEADER.unpack_from(data)
        if size > FRAME_MAX or data[5:8] != b"\0\0\0":
            raise Broken(data[:8])
        if len(data) < HEADER.size + size:
            break
        found.append((kind, data[HEADER.size:HEADER.size + size]))
        data = data[HEADER.size + size:]
    return found, data


def u32(value):
    return struct.pack("<I", value)


def u64(value):
    return struct.pack("<Q", value)


def string(value):
    value = value if isinstance(value, bytes) else value.encode()
    return u32(len(value)) + value


def strings(values):
    return u32(len(values)) + b"".join(string(v) for v in values)


def guest_job(run, compile=(), env=(), files=(), stdin=b"", cwd="/box",
              pids=64, output_bytes=65536, file_bytes=0):
    """The payload of GUEST_JOB. files: (name, content) pairs."""
    return b"".join([
        string(cwd), strings(compile), strings(run), strings(env),
        u32(len(files)), *[string(n) + string(c) for n, c in files],
        string(stdin), u32(pids), u32(output_bytes), u64(file_bytes)])


def guest_warm(run, entry, env=(), preload=(), cwd="/box", compiles=False):
    """The payload of GUEST_WARM."""
    return b"".join([string(entry), string(cwd), strings(run), strings(env),
                     strings(preload), bytes([compiles])])


def guest_warmed(payload):
    """(waiting, [what could not be preloaded], why not) of GUEST_WARMED."""
    waiting, count = struct.unpack_from("<BI", payload)
    texts, at = [], 5
    for _ in range(count + 1):
        size = struct.unpack_from("<I", payload, at)[0]
        texts.append(payload[at + 4:at + 4 + size].decode())
        at += 4 + size
    if at != len(payload):
        raise Broken(payload)
    return bool(waiting), texts[:-1], texts[-1]


def guest_exit(payload):
    """(exit code, signal, cpu_us, compile_failed) of GUEST_EXIT."""
    code, signal, cpu_us, failed = struct.unpack("<IIQB", payload)
    return code, signal, cpu_us, bool(failed)


def guest_fail(payload):
    """The message of GUEST_FAIL."""
    if struct.unpack_from("<I", payload)[0] != len(payload) - 4:
        raise Broken(payload)
    return payload[4:].decode()


def guest_kernel(language, run, env=(), preload=(), cwd="/workspace", pids=64,
                 file_bytes=0):
    """The payload of GUEST_KERNEL."""
    return b"".join([string(language), string(cwd), strings(run), strings(env),
                     strings(preload), u32(pids), u64(file_bytes)])


def guest_step(number, files, entry=0, stdin=b"", display=False,
               output_bytes=65536):
    """The payload of GUEST_STEP. files: (name, content) pairs."""
    return b"".join([
        u32(number), bytes([display]), u32(output_bytes), u32(entry),
        u32(len(files)), *[string(n) + string(c) for n, c in files],
        string(stdin)])


def guest_strings(payload):
    """The list of GUEST_KERNEL_READY."""
    found, at = [], 4
    for _ in range(struct.unpack_from("<I", payload)[0]):
        size = struct.unpack_from("<I", payload, at)[0]
        found.append(payload[at + 4:at + 4 + size].decode())
        at += 4 + size
    if at != len(payload):
        raise Broken(payload)
    return found


def guest_artifact(payload):
    """(MIME type, is text, bytes) of GUEST_ARTIFACT."""
    size = struct.unpack_from("<I", payload)[0]
    text, total = struct.unpack("<BI", payload[4 + size:])
    return payload[4:4 + size].decode(), bool(text), total


def guest_step_done(payload):
    """(number, exit code, raised, interrupted, dropped, cpu_us)."""
    number, code, raised, interrupted, dropped, cpu_us = struct.unpack(
        "<II???Q", payload)
    return number, code, raised, interrupted, dropped, cpu_us
