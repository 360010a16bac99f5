# SPDX-License-Identifier: Apache-2.0
"""The Python kernel: runs one step after another in one namespace.

isobox-init starts it as the program, this file on its standard input, with the
program's pipes and a socket to init: it reads steps from there and tells how they
ended (docs/guest-protocol.md). What a step writes goes through the pipes. The same
process runs code that nobody trusts: init believes nothing that it says. But that
code may also be careless, and replace or close what the kernel uses. So:

- the kernel's functions have a copy of the builtins, and what they need of other
  modules is bound when it starts;
- its descriptors lie high, out of the way, and are put back before each step;
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
from json import dumps as _dumps
from os import (_exit, close as _close, dup2 as _dup2, fstat as _fstat,
                getpid as _getpid, read as _read, urandom as _urandom,
                write as _write)
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
LINK = 1023  # guest/child.h
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
TYPE = _regex(r"[a-z]+/[a-z0-9][a-z0-9.+_-]{0,63}")


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
            data = _read(self.fd, 1 << 20)
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


class Artifacts:
    """What the current step shows; from its end on, what the next one does."""

    def __init__(self):
        self.begin(8, 2 << 20)
        self.items = []

    def begin(self, count, size):
        self.count = count
        self.size = size
        self.dropped = False

    def add(self, kind, data):
        text = isinstance(data, str)
        if text:
            data = data.encode("utf-8", "replace")
            size = len(data)
        else:
            data = bytes(data)
            size = (len(data) + 2) // 3 * 4
        if size > self.size or len(self.items) >= self.count:
            self.dropped = True
        elif TYPE.fullmatch(kind):
            self.items.append((kind.encode(), text, data))

    def take(self):
        """The frames of all that was shown."""
        items, self.items = self.items, []
        for kind, text, data in items:
            yield frame(ARTIFACT, string(kind), bytes([text]),
                        U32.pack(len(data)))
            for i in range(0, len(data), CHUNK):
                yield frame(ARTIFACT_DATA, data[i:i + CHUNK])


def add_typed(artifacts, kind, data):
    """One entry of a MIME bundle, whatever form its author gave it."""
    kind = str(kind)
    if data is None:
        return False
    if kind == "application/json" or kind.endswith("+json"):
        if not isinstance(data, str):
            data = _dumps(data, ensure_ascii=False)
    elif kind.startswith("image/") and kind != "image/svg+xml":
        if isinstance(data, str):
            data = _b64decode(data, validate=False)
    elif isinstance(data, bytes):
        data = data.decode("utf-8", "replace")
    elif isinstance(data, list):
        data = "".join(data)
    if not isinstance(data, (str, bytes, bytearray, memoryview)):
        return False
    artifacts.add(kind, data)
    return True


def add_bundle(artifacts, bundle, plain):
    found = False
    for kind, data in dict(bundle).items():
        if kind != "text/plain" or plain:
            found |= add_typed(artifacts, kind, data)
    return found


def show_value(artifacts, value, plain):
    """True if there was more to show than a repr; with plain, that as well."""
    cls = type(value)
    found = False
    if hasattr(cls, "_repr_mimebundle_") and not isinstance(value, type):
        bundle = value._repr_mimebundle_(include=None, exclude=None)
        if isinstance(bundle, tuple):  # (bundle, metadata)
            bundle = bundle[0]
        rest = {k: v for k, v in (bundle or {}).items() if k != "text/plain"}
        found = add_bundle(artifacts, rest, False)
    for name, kind in METHODS:
        if found and kind == METHODS[0][1]:
            break
        if hasattr(cls, name) and not isinstance(value, type):
            data = getattr(value, name)()
            if isinstance(data, tuple):
                data = data[0]
            found |= add_typed(artifacts, kind, data)
    if plain:
        artifacts.add("text/plain", repr(value))
    return found


class Figures:
    """matplotlib's pictures: those that are open when a step ends, and those
    that plt.show() is called for. Both are closed."""

    def __init__(self, artifacts):
        self.artifacts = artifacts
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        """An import hook, for the one module that has show()."""
        if name != "matplotlib.pyplot":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                self.hook(module)
            spec.loader.exec_module = exec_module
        return spec

    def hook(self, pyplot):
        show = pyplot.show

        def show_and_close(*args, **kw):
            result = show(*args, **kw)
            self.capture()
            return result
        show_and_close.__doc__ = show.__doc__
        show_and_close.__name__ = show_and_close.__qualname__ = "show"
        pyplot.show = show_and_close

    def capture(self):
        helpers = _modules.get("matplotlib._pylab_helpers")
        if helpers is None:
            return
        managers = helpers.Gcf.get_all_fig_managers()
        try:
            for manager in sorted(managers, key=lambda m: m.num):
                figure = manager.canvas.figure
                if len(figure.get_children()) > 1:  # its background is one
                    self.draw(figure)
        finally:
            if managers:
                helpers.Gcf.destroy_all()

    def draw(self, figure):
        if len(self.artifacts.items) >= self.artifacts.count:
            self.artifacts.dropped = True
            return
        data = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            figure.savefig(data, format="png", bbox_inches="tight")
        self.artifacts.add("image/png", data.getvalue())


class Sources:
    """Of the steps, for tracebacks and inspect; the oldest are forgotten."""

    def __init__(self):
        self.entries = {}
        self.size = 0

    def add(self, name, text):
        lines = text.splitlines(True)
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        self.entries.pop(name, None)
        self.entries[name] = (len(text), None, lines, name)
        self.size += len(text) + 200
        while self.size > SOURCES_MAX and len(self.entries) > 1:
            oldest = next(iter(self.entries))
            self.size -= self.entries.pop(oldest)[0] + 200
            linecache.cache.pop(oldest, None)
        self.publish()

    def publish(self):
        """Again when a traceback is made: the user may have cleared it."""
        linecache.cache.update(self.entries)


NAMES = "stdin", "stdout", "stderr"
ERRORS = "surrogateescape", "surrogateescape", "backslashreplace"


class Output(io.TextIOWrapper):
    """Flushed at each line: what is printed before a child process starts comes
    before what that writes, and whoever watches sees it at once. When there
    are many lines, some of them together."""

    lines = 0  # in this step
    due = 0.0  # the next flush

    def write(self, text):
        n = super(Output, self).write(text)
        if "\n" in text:
            self.lines += 1
            if self.lines < LINES or _clock() > self.due:
                self.flush()
                self.due = _clock() + LINES_SECONDS
        return n


class Streams:
    """Descriptors 0, 1, 2 and their Python objects, whole before each step."""

    def __init__(self):
        self.saved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
                      for fd in (0, 1, 2)]
        self.same = [(st.st_dev, st.st_ino) for st in map(_fstat, self.saved)]
        self.had_input = False
        self.objects = [sys.stdin, sys.stdout, sys.stderr]
        for fd in (1, 2):
            self.renew(fd)
        self.flush_stdio = self.find_stdio()

    @staticmethod
    def find_stdio():
        """fflush(stdout), for C code."""
        try:
            import ctypes
            libc = ctypes.CDLL(None)
            stdout = ctypes.c_void_p.in_dll(libc, "stdout")
            return lambda: libc.fflush(stdout)
        except Exception:
            return lambda: None

    def begin(self):
        has_input = False
        for fd in (0, 1, 2):
            try:
                st = _fstat(fd)
                if (st.st_dev, st.st_ino) != self.same[fd]:
                    st = None
            except OSError:
                st = None
            if st is None:
                _dup2(self.saved[fd], fd, True)
                st = _fstat(fd)
            if fd == 0:
                has_input = st.st_size > 0
        for fd, name in enumerate(NAMES):
            if fd == 0 and (has_input or self.had_input) and \
                    sys.stdin is self.objects[0]:
                self.renew(0)
                continue
            current = getattr(sys, name, None)
            if current is None or self.is_closed(current) or \
                    self.is_closed(self.objects[fd]):
                self.renew(fd)
        for f in self.objects[1:]:
            f.lines = 0
        self.had_input = has_input

    @staticmethod
    def is_closed(f):
        try:
            return f.closed is True
        except Exception:
            return False

    def renew(self, fd):
        mode = "w" if fd else "r"
        buffer = io.open(fd, mode + "b", closefd=False)
        f = (Output if fd else io.TextIOWrapper)(
            buffer, "utf-8", ERRORS[fd])
        f.mode = mode
        self.objects[fd] = f
        setattr(sys, NAMES[fd], f)
        setattr(sys, "__%s__" % NAMES[fd], f)

    def flush(self):
        for f in (sys.stdout, sys.stderr, *self.objects[1:]):
            try:
                f.flush()
            except Exception:
                pass
        self.flush_stdio()

    def complain(self, text):
        """To stderr, whatever has become of sys.stderr."""
        view = memoryview(text.encode("utf-8", "backslashreplace"))
        while view:
            view = view[_write(self.saved[2], view):]


class Kernel:
    def __init__(self):
        self.pid = _getpid()
        self.link = Link(LINK)
        self.streams = Streams()
        self.artifacts = Artifacts()
        self.figures = Figures(self.artifacts)
        self.sources = Sources()
        self.live = False  # an interrupt is an exception now
        self.received = self.handled = 0  # interrupts
        self.handlers = {}  # the user's, while they must not run
        self.deferred = set()  # signals that came meanwhile
        self.trace = self.profile = None
        self.recursion = _get_recursion()
        self.flags = 0
        self.loop = None
        self.context = contextvars.copy_context()
        self.module = types.ModuleType("__main__")
        self.names = vars(self.module)
        self.names["__builtins__"] = builtins
        self.last = None

    def prepare(self):
        """What a program that is run plainly would find."""
        os.register_at_fork(after_in_child=self.forked)
        sys.argv = [""]
        sys.path[0:1] = [BOX, ""]
        if not sys.flags.no_user_site and hasattr(site, "getusersitepackages"):
            self.find_user_site(site.getusersitepackages())
        _modules["__main__"] = self.module
        builtins.display = self.display
        self.handler, self.defer = self.on_interrupt, self.on_other
        self.shield()

    def find_user_site(self, path):
        """What pip installs there is found, though at this time there may be no
        such directory: a finder that the import system made would not look
        again."""
        if path not in sys.path:
            at = next((i for i, p in enumerate(sys.path)
                       if p.endswith("-packages")), len(sys.path))
            sys.path.insert(at, path)
        machinery = importlib.machinery
        sys.path_importer_cache[path] = machinery.FileFinder(
            path,
            (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
            (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
            (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES))

    def forked(self):
        """A child process has nothing to tell to init."""
        try:
            _close(self.link.fd)
        except OSError:
            pass

    def on_interrupt(self, *_):
        self.received += 1
        if self.live:
            self.handled = self.received
            raise KeyboardInterrupt

    def guarded(self, function, *args):
        """(result, None) or (None, exception) of the user's code. An interrupt
        that came just before is raised in it. No call follows the last store to
        live: only calls and loops look for signals."""
        result = error = None
        try:
            self.live = True
            if self.handlers:
                self.unshield()
            if self.received > self.handled:
                self.handled = self.received
                raise KeyboardInterrupt
            result = function(*args)
            self.live = False
        except BaseException as e:
            self.live = False
            error = e
        while True:
            try:
                self.shield()
                return result, error
            except BaseException as e:
                error = e

    def on_other(self, number, _):
        self.deferred.add(number)

    def shield(self):
        """Sets the user's signal handlers aside, and SIGINT's to ours. May be
        cut short by one of them and called again."""
        for number in SIGNALS:
            handler = _get_signal(number)
            if number == SIGINT:
                if handler is not self.handler:
                    _signal(SIGINT, self.handler)
            elif callable(handler) and handler is not self.defer:
                self.handlers[number] = handler
                _signal(number, self.defer)

    def unshield(self):
        while self.handlers:
            number, handler = self.handlers.popitem()
            _signal(number, handler)
        while self.deferred:
            _raise_signal(self.deferred.pop())

    def unhook(self):
        """Tracers and limits of the user's are for the user's code."""
        _set_trace(None)
        _set_profile(None)
        self.recursion = _get_recursion()
        if self.recursion < RECURSION_MIN:
            _set_recursion(RECURSION_MIN)

    def hook(self):
        if self.recursion < RECURSION_MIN:
            _set_recursion(self.recursion)
        if self.profile is not None:
            _set_profile(self.profile)
        if self.trace is not None:
            _set_trace(self.trace)

    # Code

    def compile(self, name, source):
        """(code of all but the last expression, code of that one or None)."""
        text = source.decode("utf-8-sig")
        self.sources.add(name, text)
        tree = compile(text, name, "exec",
                       ast.PyCF_ONLY_AST | TOP_LEVEL_AWAIT | self.flags, True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        body = compile(tree, name, "exec", TOP_LEVEL_AWAIT | self.flags, True)
        flags = self.flags | body.co_flags & FUTURES
        if last is not None:
            last = compile(last, name, "eval", TOP_LEVEL_AWAIT | flags, True)
        self.flags = flags
        return body if tree.body else None, last

    def run(self, name, source):
        body, last = self.compile(name, source)
        value = None
        parts = [code for code in (body, last) if code is not None]
        waits = any(code.co_flags & CO_COROUTINE for code in parts)
        self.hook()
        try:
            if waits:
                value = self.wait_for(self.evaluate(parts))
            else:
                for code in parts:
                    value = self.context.run(eval, code, self.names)
        finally:  # here, and by no function that a tracer would see
            self.trace, self.profile = _get_trace(), _get_profile()
            _set_trace(None)
            _set_profile(None)
        return value if last is not None else None

    async def evaluate(self, parts):
        for code in parts:
            value = eval(code, self.names)
            if code.co_flags & CO_COROUTINE:
                value = await value
        return value

    def wait_for(self, coroutine):
        """In one event loop for all steps: what was started goes on."""
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        loop = self.loop
        asyncio.set_event_loop(loop)
        task = loop.create_task(coroutine, context=self.context)
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # interrupted elsewhere: let it clean up
                task.cancel()
                loop.run_until_complete(asyncio.wait([task]))
            if not task.cancelled():
                task.exception()  # was seen
            raise

    # Errors

    @staticmethod
    def is_users(filename):
        return filename.startswith("<step ") or \
            filename.startswith(BOX + "/")

    def trim(self, seen, said):
        """Only what the user wrote and what that called, of all of a chain."""
        if said is None or id(said) in seen:
            return
        seen.add(id(said))
        frames = [f for f in said.stack or () if f.filename != THIS]
        for i, f in enumerate(frames):
            if self.is_users(f.filename):
                frames = frames[i:]
                break
        said.stack = traceback.StackSummary.from_list(frames) \
            if frames else None
        for other in (said.__cause__, said.__context__,
                      *(said.exceptions or ())):
            self.trim(seen, other)

    def describe(self, e):
        self.sources.publish()
        said = traceback.TracebackException(
            type(e), e, e.__traceback__, compact=True)
        self.trim(set(), said)
        return "".join(said.format())

    def report(self, e):
        hook = sys.excepthook
        if hook is not sys.__excepthook__:
            tb = e.__traceback__
            while tb is not None and not self.is_users(
                    tb.tb_frame.f_code.co_filename):
                tb = tb.tb_next
            try:
                hook(type(e), e, tb)
                return
            except Exception as mistake:
                self.streams.complain("Error in sys.excepthook:\n" +
                                      self.describe(mistake) +
                                      "\nOriginal exception was:\n")
        self.streams.complain(self.describe(e))

    def exit_code(self, e):
        """As the interpreter's own at sys.exit()."""
        code = e.code
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xff
        self.streams.complain("%s\n" % (code,))
        return 1

    # Steps

    def write_files(self, files):
        for name, content in files:
            path = os.path.join(BOX, os.fsdecode(name))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(content)
        importlib.invalidate_caches()

    def show_last(self, value, plain):
        if self.names.get("_", self.last) is self.last:
            self.names["_"] = self.last = value
        show_value(self.artifacts, value, plain)

    def display(self, *values, raw=False, **_):
        """display(value, ...) shows values as artifacts, in the richest form
        they have. raw=True: they are {MIME type: data}."""
        for value in values:
            if raw:
                add_bundle(self.artifacts, value, True)
            elif not show_value(self.artifacts, value, False):
                self.artifacts.add("text/plain", repr(value))

    def begin(self):
        self.streams.begin()
        _modules["__main__"] = self.module
        self.names.pop("__warningregistry__", None)

    def step(self, r):
        number, sent, display = r.u32(), r.u32(), r.u8()
        self.artifacts.begin(r.u32(), r.u32())
        name, source = r.string(), r.string()
        files = [(r.string(), r.string()) for _ in range(r.u32())]
        # Signals that init had sent before this step: more is for this one.
        self.handled = sent - 1 if self.received > sent else sent
        self.received = sent
        done = self.perform("<step %d>" % number, source, files, display)
        for data in self.artifacts.take():
            self.link.send(data)
        self.link.send(frame(STEP_DONE, U32.pack(number), U32.pack(done[0]),
                             bytes([*done[1:], self.artifacts.dropped]),
                             bytes(8)))

    def perform(self, name, source, files, display):
        """(exit code, an exception ended it, an interrupt did)."""
        error = self.guarded(self.begin)[1]
        value = None
        if error is None and files:
            error = self.guarded(self.write_files, files)[1]
        if error is None:
            value, error = self.guarded(self.run, name, source)
            self.guarded(self.unhook)
        if _getpid() != self.pid:
            self.leave_child(error)
        self.guarded(self.streams.flush)
        if error is None and value is not None:
            failed = self.guarded(self.show_last, value, display)[1]
            if isinstance(failed, KeyboardInterrupt):
                error = failed
        self.guarded(self.figures.capture)
        code = 0
        raised = interrupted = False
        if isinstance(error, SystemExit):
            code = self.guarded(self.exit_code, error)[0]
            if code is None:
                code = 1
        elif error is not None:
            code = 1
            raised = True
            interrupted = isinstance(error, KeyboardInterrupt)
            if self.guarded(self.report, error)[1] is not None:
                self.guarded(self.streams.complain, "%s: cannot be shown\n" % (
                    type(error).__name__))
        self.guarded(self.streams.flush)
        return code, raised, interrupted

    def leave_child(self, error):
        """A forked process that came to the end of the step's code ends as it
        would at the end of a program."""
        code = 0
        if isinstance(error, SystemExit):
            code = self.guarded(self.exit_code, error)[0] or 0
        elif error is not None:
            code = 1
            self.guarded(self.report, error)
        self.guarded(self.streams.flush)
        _exit(code)

    # Life

    def reseed(self):
        """This process may be one of several that were restored from one. What
        the user has taken away need not be seeded."""
        for name, seed in (
                ("random", lambda m: m._inst.seed()),
                ("numpy.random", lambda m: m.seed()),
                ("_ssl", lambda m: m.RAND_add(_urandom(32), 32.0)),
                ("tempfile", lambda m: setattr(m, "_name_sequence", None))):
            if name in _modules:
                self.guarded(seed, _modules[name])

    def preload(self, r):
        missing = []
        for name in [r.string() for _ in range(r.u32())]:
            if self.guarded(importlib.import_module, name.decode())[1]:
                missing.append(name)
        self.guarded(self.streams.flush)
        self.ready(missing)

    def ready(self, missing=()):
        self.link.send(frame(READY, U32.pack(len(missing)),
                             *map(string, missing)))

    def idle(self):
        """While the user's tasks go on: until init sends something."""
        self.loop.add_reader(self.link.fd, self.loop.stop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.remove_reader(self.link.fd)

    def serve(self):
        while True:
            if self.loop is not None and not self.loop.is_closed():
                self.guarded(self.idle)
            kind, payload = self.link.receive()
            if kind == STEP:
                self.step(Reader(payload))
            elif kind == RESTORED:
                self.reseed()
                self.ready()
            elif kind == KERNEL:
                self.preload(Reader(payload))


def default_to_fork():
    """Functions and classes of the steps exist in this process only, so that is
    what child processes are made of; set_start_method() works as ever."""
    import multiprocessing.context as mp
    mp._default_context._default_context = mp._concrete_contexts["fork"]


def main():
    kernel = Kernel()
    default_to_fork()
    kernel.prepare()
    try:
        kernel.serve()
    except BaseException:
        _exit(70)


main()
