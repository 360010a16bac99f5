# SPDX-License-Identifier: Apache-2.0
# Running the steps.

def is_a(error, kind):
    """isinstance() would ask the error's own __class__, which may raise."""
    return issubclass(type(error), kind)


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
        self.settled = False  # the streams; by the end of the last step
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

    def users(self, function, *args):
        """guarded(), with the user's signal handlers in their places."""
        if not self.handlers and not self.deferred:
            return self.guarded(function, *args)
        return self.guarded(self.unshielded, function, *args)

    def unshielded(self, function, *args):
        self.unshield()
        return function(*args)

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
            return int.__and__(code, 0xff)
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
        self.streams.begin(self.settled and not _threads() and
                           self.loop is None)
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
        self.settled = self.guarded(self.streams.settle)[1] is None

    def perform(self, name, source, files, display):
        """(exit code, an exception ended it, an interrupt did)."""
        error = self.guarded(self.begin)[1]
        value = None
        if error is None and files:
            error = self.guarded(self.write_files, files)[1]
        if self.deferred:  # what the user's handlers missed is not the step's
            late = self.users(int)[1]
            if late is not None:
                self.guarded(self.report, late)
        if error is None:
            value, error = self.users(self.run, name, source)
            self.guarded(self.unhook)
        if _getpid() != self.pid:
            self.leave_child(error)
        self.guarded(self.streams.flush)
        if error is None and value is not None:
            failed = self.users(self.show_last, value, display)[1]
            if is_a(failed, KeyboardInterrupt):
                error = failed
        self.users(self.figures.capture)
        code = 0
        raised = interrupted = False
        if is_a(error, SystemExit):
            code = self.guarded(self.exit_code, error)[0]
            if code is None:
                code = 1
        elif error is not None:
            code = 1
            raised = True
            interrupted = is_a(error, KeyboardInterrupt)
            if self.guarded(self.report, error)[1] is not None:
                self.guarded(self.streams.complain, "%s: cannot be shown\n" % (
                    type(error).__name__))
        self.guarded(self.streams.flush)
        return code, raised, interrupted

    def leave_child(self, error):
        """A forked process that came to the end of the step's code ends as it
        would at the end of a program."""
        code = 0
        if is_a(error, SystemExit):
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
                self.users(self.idle)
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
