# SPDX-License-Identifier: Apache-2.0
"""The Python kernel: runs one step after another in one namespace.

isobox-init starts it as the program, the files of this directory as one on its
standard input, with the program's pipes and a socket to init: it reads steps from there and tells how they
ended (docs/guest-protocol.md). What a step writes goes through the pipes. The same
process runs code that nobody trusts: init believes nothing that it says. But that
code may also be careless, and replace or close what the kernel uses. So:

- the kernel's functions have a copy of the builtins, and what they need of other
  modules is bound when it starts;
- its descriptors lie high, out of the way, and are put back after each step,
  and before one where somebody may have been at work since;
- whatever comes from the user, reprs and flushes included, runs in guarded():
  no exception and no interrupt gets further, and no signal handler of the
  user's runs elsewhere, which might raise between any two lines of the kernel.
"""

import ast
import asyncio
import contextvars
import fcntl
import importlib
import io
import linecache
import os
import site
import struct
import sys
import traceback
import types
import warnings
from _signal import (NSIG, SIGINT, SIGKILL, SIGSTOP, getsignal as _get_signal,
                     raise_signal as _raise_signal, signal as _signal)
from base64 import b64decode as _b64decode
from importlib.machinery import PathFinder
from _thread import _count as _threads
from json import dumps as _dumps
from os import (SEEK_SET, _exit, close as _close, dup2 as _dup2,
                fstat as _fstat, getpid as _getpid, lseek as _lseek,
                read as _read, urandom as _urandom, write as _write)
from re import compile as _regex
from sys import (getrecursionlimit as _get_recursion, gettrace as _get_trace,
                 getprofile as _get_profile, modules as _modules,
                 setprofile as _set_profile,
                 setrecursionlimit as _set_recursion, settrace as _set_trace)
from time import monotonic as _clock
import builtins

# Of all functions below, which look them up when they are made.
__builtins__ = dict(vars(builtins))

KERNEL, STEP, RESTORED = 40, 41, 43
READY, ARTIFACT, ARTIFACT_DATA, STEP_DONE = 64, 65, 66, 67
LINK = 1022  # guest/child.h
SIGNALS = tuple(set(range(1, NSIG)) - {SIGKILL, SIGSTOP, 32, 33})
HEADER = struct.Struct("<IB3x")
U32 = struct.Struct("<I")
CHUNK = 65536
HIGH = 1000  # descriptors from here on, where few programs have any
BOX = "/box"
LINES, LINES_SECONDS = 200, 0.05
RECURSION_MIN = 1000  # for the kernel's own work
SOURCES_MAX = 4 << 20  # bytes of steps' sources that are kept

TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FUTURES = 0
for _name in __import__("__future__").all_feature_names:
    FUTURES |= getattr(__import__("__future__"), _name).compiler_flag
CO_COROUTINE = 0x80
THIS = sys._getframe().f_code.co_filename

# What a value may be shown as, in this order; text but for the pictures.
METHODS = (("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"),
           ("_repr_svg_", "image/svg+xml"), ("_repr_png_", "image/png"),
           ("_repr_latex_", "text/latex"), ("_repr_json_", "application/json"))
TYPE = _regex(r"[a-z]{1,31}/[a-z0-9][a-z0-9.+_-]{0,63}")  # LIMIT_MIME_TYPE


class Link:
    """The socket to init."""

    def __init__(self, fd):
        self.fd = fd
        os.set_inheritable(fd, False)
        self.input = b""

    def send(self, data):
        view = memoryview(data)
        while view:
            view = view[_write(self.fd, view[:CHUNK]):]

    def receive(self):
        """(type, payload) of the next frame."""
        while True:
            if len(self.input) >= HEADER.size:
                size, kind = HEADER.unpack_from(self.input)
                size += HEADER.size
                if len(self.input) >= size:
                    payload = self.input[HEADER.size:size]
                    self.input = self.input[size:]
                    return kind, payload
            # A buffer of a megabyte would be mapped, cut and unmapped for each
            # step: with gVisor that takes longer than all the rest.
            data = _read(self.fd, CHUNK)
            if not data:
                raise EOFError
            self.input += data


def frame(kind, *parts):
    payload = b"".join(parts)
    return HEADER.pack(len(payload), kind) + payload


def string(data):
    return U32.pack(len(data)) + data


class Reader:
    """Of a payload; init has checked what it sends."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def u8(self):
        self.at += 1
        return self.data[self.at - 1]

    def u32(self):
        self.at += 4
        return U32.unpack_from(self.data, self.at - 4)[0]

    def string(self):
        size = self.u32()
        self.at += size
        return self.data[self.at - size:self.at]
