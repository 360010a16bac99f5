# SPDX-License-Identifier: Apache-2.0
# Standard input, output and error, and the sources that tracebacks quote.

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
        linecache.cache[name] = self.entries[name]

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

    def begin(self, settled):
        """settled: nobody has been at work since settle()."""
        if not settled:
            self.settle()
        for f in self.objects[1:]:
            f.lines = 0

    def settle(self):
        """Takes back what a step has done to them. Better after a step than
        before the next: each system call here is a long one, and there nobody
        waits for it."""
        for fd, name in enumerate(NAMES):
            had_input = self.restore(fd) and fd == 0
            current = getattr(sys, name, None)
            if had_input and current is self.objects[0]:
                _lseek(0, 0, SEEK_SET)  # where the next input begins
                self.renew(0)
            elif current is None or self.is_closed(current) or \
                    self.is_closed(self.objects[fd]) or \
                    self.is_detached(current):
                self.renew(fd)

    def restore(self, fd):
        """The descriptor; whether it is a file with something in it."""
        try:
            st = _fstat(fd)
            if (st.st_dev, st.st_ino) == self.same[fd]:
                return st.st_size > 0
        except OSError:
            pass
        _dup2(self.saved[fd], fd, True)
        return _fstat(fd).st_size > 0

    @staticmethod
    def is_closed(f):
        try:
            return f.closed is True
        except Exception:
            return False

    @staticmethod
    def is_detached(f):
        """Asked of the object in its place only: who detached ours may have
        put a new one around its buffer."""
        try:
            f.closed
        except ValueError:
            return True
        except Exception:
            pass
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
