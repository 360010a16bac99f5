# SPDX-License-Identifier: Apache-2.0
"""What Python does to wait for a program: run by the hook in the image
(registry/images/python.pth) while `site` is being imported, `control` being the
socket to init.  See guest/warm.c for what is said.

Modules that are loaded ahead are hidden from the program until it imports them:
they leave sys.modules and their packages, and what their import did elsewhere is
undone.  An import that would load one puts it back instead, with what it needs
and with what it did; `sys.path` is looked at first, as always.  What cannot be
undone (a thread, say) is reported, and nobody waits.

Here `os` and `sys` are the only modules that can be used without being loaded,
and so seen: what else is imported is hidden like the rest.
"""
import os
import sys

CONTROL = 1023
ENDING = 1021
HIGH_FD = 1000
# The end record of a zip file and the longest comment after it.
ARCHIVE_END = 22 + 65535
SCRATCH = ("/box", "/dev/shm", "/tmp")
# Dicts that modules put themselves into: in which module, called what.
TABLES = (("copyreg", "dispatch_table"), ("linecache", "cache"))


def words():
    text = control.read(int(control.readline()))
    return os.fsdecode(text).split("\0")[:-1]


def start_anew(args):
    """The program as it would be without us, in this process."""
    import _signal
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    os.close(CONTROL)
    os.execv(sys.orig_argv[0], sys.orig_argv + args)


# --- what importing may change -----------------------------------------------

def filters():
    """The list of filters of warnings."""
    import _warnings
    module = sys.modules.get("warnings")
    return getattr(module, "filters", _warnings.filters)


def filters_changed():
    import _warnings
    _warnings._acquire_lock()
    _warnings._filters_mutated_lock_held()
    _warnings._release_lock()


def tree():
    """{path: content, or None of a folder} of what is in the scratch folders."""
    found = {}
    for top in SCRATCH:
        for folder, folders, names in os.walk(top):
            for name in folders:
                found[os.path.join(folder, name)] = None
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    found[path] = f.read()
    return found


def descriptors():
    """{number: what it is of} of what is open."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass  # what listdir() had open
    return found


def open_again(path, number):
    os.dup2(os.open(path, os.O_RDONLY), number, inheritable=False)


def logger_dict():
    root = getattr(sys.modules.get("logging"), "root", None)
    return root.manager.loggerDict if hasattr(root, "manager") else {}


def settings():
    """What an import must leave as it is, by name."""
    import _locale
    import _signal
    import gc
    import itertools
    return {
        "threads": len(os.listdir("/proc/self/task")),
        "children": open("/proc/self/task/%d/children" % os.getpid()).read()
        if os.path.exists("/proc/self/task/%d/children" % os.getpid())
        else "",
        "descriptors": descriptors(),
        "directory": os.getcwd(),
        "signals": [_signal.getsignal(n) for n in _signal.valid_signals()],
        "blocked signals": _signal.pthread_sigmask(0, ()),
        "locale": _locale.setlocale(_locale.LC_ALL),
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_debug(),
               list(gc.callbacks)),
        "recursion": sys.getrecursionlimit(),
        "switching": sys.getswitchinterval(),
        "tracing": (sys.gettrace(), sys.getprofile()),
        "hooks": (sys.excepthook, sys.displayhook, sys.unraisablehook,
                  sys.breakpointhook),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "import": (list(sys.path), list(sys.meta_path), list(sys.path_hooks),
                   sys.dont_write_bytecode),
        "arguments": (list(sys.argv), list(sys.orig_argv)),
        "digits": sys.get_int_max_str_digits(),
        "builtins": sorted(vars(sys.modules["builtins"])),
        "sys": sorted(vars(sys)),
    }


def handler_list():
    return getattr(sys.modules.get("logging"), "_handlerList", [])


def table(where):
    return getattr(sys.modules.get(where[0]), where[1], {})


def restart_clock(logging):
    """For a record's age, which is that of logging."""
    import time
    logging._startTime = time.time_ns()


class Effects:
    """What one module's import did, besides making modules."""

    def __init__(self):
        self.needs = {}  # names of modules, as an ordered set
        self.in_front = []  # filters of warnings, the oldest first
        self.at_end = []
        self.calls = []  # (function, args, kwargs)
        self.environment = {}  # name: value, or None if removed
        self.files = {}
        self.loggers = []
        self.entries = {}  # of TABLES
        self.handlers = []  # known to logging
        self.attributes = {}  # (module, name): value, of modules seen before


class Recorder:
    """Loads modules and notes what each import does.  Its methods stand in
    for functions of Python meanwhile; some code keeps those for later."""

    def __init__(self, seen):
        import _frozen_importlib
        import atexit
        self.seen = {name: vars(sys.modules[name]) for name in seen}
        self.bootstrap = _frozen_importlib
        self.modules = {}  # name: Effects
        self.loading = [Effects()]
        self.active = False
        self.replaced = []
        self.times = None
        self.own = {}  # what a module itself puts into its table
        self.load = self.bootstrap._load_unlocked
        self.real_import = __import__
        self.replace(self.bootstrap, "_load_unlocked", self.load_unlocked)
        self.replace(sys.modules["builtins"], "__import__", self.import_)
        self.replace(atexit, "register", self.later(atexit.register))
        self.replace(os, "register_at_fork", self.later(os.register_at_fork))

    def replace(self, where, name, value):
        self.replaced.append((where, name, getattr(where, name)))
        setattr(where, name, value)

    def restore(self):
        self.active = False
        for where, name, value in self.replaced:
            setattr(where, name, value)

    def need(self, name):
        """The module that is being loaded needs another, and its packages."""
        while name:
            self.loading[-1].needs[name] = True
            name = name.rpartition(".")[0]

    def import_(self, name, globals=None, locals=None, fromlist=(), level=0):
        module = self.real_import(name, globals, locals, fromlist, level)
        if self.active:
            if level:
                package = self.bootstrap._calc___package__(globals)
                name = self.bootstrap._resolve_name(name, package, level)
            self.need(name)
            for item in fromlist or ():
                if f"{name}.{item}" in sys.modules:
                    self.need(f"{name}.{item}")
        return module

    def load_unlocked(self, spec):
        if not self.active:
            return self.load(spec)
        self.need(spec.name)
        effects = self.modules[spec.name] = Effects()
        self.loading.append(effects)
        before = list(filters())
        environment = dict(os.environ)
        loggers = set(logger_dict())
        known = set(sys.modules)
        tables = [dict(table(where)) for where in TABLES]
        handlers = list(handler_list())
        attributes = self.attributes()
        files = self.look()
        try:
            if spec.name == "_ctypes":
                return self.load_ctypes(spec, effects)
            return self.load(spec)
        finally:
            self.note_filters(effects, before)
            self.note_environment(effects, environment)
            effects.loggers = [name for name in logger_dict()
                               if name not in loggers]
            effects.handlers = [handler for handler in handler_list()
                                if handler not in handlers]
            effects.attributes = self.new_attributes(attributes)
            for where in TABLES:
                if where[0] == spec.name:  # stays with it
                    self.own[where] = dict(table(where))
            effects.entries = {
                where: {key: value for key, value in table(where).items()
                        if before.get(key) is not value and
                        self.own.get(where, {}).get(key) is not value}
                for where, before in zip(TABLES, tables)}
            # Compiled modules make some that nobody imports.
            effects.needs |= dict.fromkeys(sys.modules.keys() - known)
            effects.files = {path: content
                             for path, content in self.look().items()
                             if path not in files}
            self.loading.pop()

    def load_ctypes(self, spec, effects):
        """libffi opens its own file, for good, and remembers the number.  So
        that gets one that nobody has, and is opened when the program would
        have it opened, once more where that would be."""
        fill = [os.open("/dev/null", os.O_RDONLY)]
        while fill[-1] < HIGH_FD:
            fill.append(os.dup(fill[-1]))
        before = descriptors()
        try:
            return self.load(spec)
        finally:
            for fd, path in descriptors().items():
                if fd not in before:
                    effects.calls.append((open_again, (path, fd), {}))
                    os.close(fd)
            for fd in fill:
                os.close(fd)

    def look(self):
        """The scratch folders' tree, read when there is news."""
        times = [os.stat(top).st_mtime_ns for top in SCRATCH]
        if times != self.times:
            self.times = times
            self.files = tree()
        return self.files

    def attributes(self):
        return [len(names) for names in self.seen.values()]

    def new_attributes(self, before):
        """Those of modules that were there; but not their parts."""
        if self.attributes() == before:
            return {}
        return {(name, key): value
                for (name, names), old in zip(self.seen.items(), before)
                for key, value in list(names.items())[old:]
                if sys.modules.get(f"{name}.{key}") is not value}

    def note_filters(self, effects, before):
        after = filters()
        old = [i for i, item in enumerate(after) if item in before]
        first_old = old[0] if old else len(after)
        new = [(i, item) for i, item in enumerate(after)
               if item not in before]
        effects.in_front = [item for i, item in new if i < first_old][::-1]
        effects.at_end = [item for i, item in new if i >= first_old]

    def note_environment(self, effects, before):
        for name in before.keys() | os.environ.keys():
            if before.get(name) != os.environ.get(name):
                effects.environment[name] = os.environ.get(name)

    def later(self, function):
        """A function whose calls wait until the program imports the module
        that the called function is from."""
        def wait(*args, **kwargs):
            if not self.active:
                return function(*args, **kwargs)
            owner = self.loading[-1]
            for value in (*args[:1], *kwargs.values()):
                name = getattr(value, "__module__", None)
                owner = self.modules.get(name, owner)
            owner.calls.append((function, args, kwargs))
            return args[0] if args else None
        return wait

    def run(self, names):
        """Loads them all; returns those that could not be."""
        missing = []
        self.active = True
        for name in names:
            try:
                __import__(name)
            except Exception:
                missing.append(name)
        self.active = False
        return missing


# --- hiding and finding --------------------------------------------------------

class Hidden:
    """The modules that the program has not imported yet."""

    def __init__(self, recorder, seen):
        import _frozen_importlib
        import _frozen_importlib_external
        import _thread
        self.bootstrap = _frozen_importlib
        self.external = _frozen_importlib_external
        self.lock = _thread.RLock()
        self.effects = recorder.modules
        self.known_path = list(sys.path)
        self.modules = {}  # name: module, in the order of their loading
        self.shown = {}
        self.bound = set()
        self.loggers = None
        self.environment = dict(os.environ)
        self.configured = matplotlib_files()
        self.folders = {}  # of sys.path_importer_cache
        self.hide(seen)

    # Hiding.

    def hide(self, seen):
        for name in [name for name in sys.modules if name not in seen]:
            self.modules[name] = sys.modules.pop(name)
        for name, module in self.modules.items():
            holder, child = self.holder(name)
            if getattr(holder, "__dict__", {}).get(child) is module:
                self.bound.add(name)
                delattr(holder, child)
        for effects in self.effects.values():
            for name, key in effects.attributes:
                vars(sys.modules[name]).pop(key, None)
            for (holder, name), entries in effects.entries.items():
                module = self.modules.get(holder) or sys.modules.get(holder)
                for key in entries:
                    getattr(module, name).pop(key, None)
        if "logging" in self.modules:
            logging = self.modules["logging"]
            born = self.effects["logging"]
            logging._handlerList[:] = born.handlers
            born.handlers = []
            born.calls.append((restart_clock, (logging,), {}))
            self.loggers = Loggers(logging)
        self.release_streams()

    def release_streams(self):
        """Functions that write there by default, and objects, keep streams, and
        frozen they would never let go of them: nobody would flush what the
        program writes at its very end."""
        referrers = self.modules["gc"].get_referrers
        for name in "__stdout__", "__stderr__":
            stream = getattr(sys, name)
            for user in referrers(stream):
                if type(user) is tuple:
                    self.release_defaults(user, name, referrers(user))
                elif user is not vars(sys):
                    self.release_attributes(user, name)

    def release_defaults(self, values, name, users):
        stream = getattr(sys, name)

        def restore(function, kept):
            function.__defaults__ = tuple(
                getattr(sys, name) if value is Hidden else value
                for value in kept)
        for function in users:
            if getattr(function, "__defaults__", None) is values:
                function.__defaults__ = None
                self.effects[function.__module__].calls.append((restore, (
                    function, [Hidden if value is stream else value
                               for value in values]), {}))

    def release_attributes(self, user, name):
        stream = getattr(sys, name)

        def restore(key):
            vars(user)[key] = getattr(sys, name)
        for key, value in list(getattr(user, "__dict__", {}).items()):
            if value is stream:
                vars(user)[key] = None
                self.effects[type(user).__module__].calls.append(
                    (restore, (key,), {}))

    def holder(self, name):
        """The package that a module is an attribute of; the attribute."""
        package, _, child = name.rpartition(".")
        return self.modules.get(package) or sys.modules.get(package), child

    # Finding.

    def find(self, real):
        """What BuiltinImporter, the first finder, does from now on."""
        importing = self.bootstrap._find_and_load_unlocked.__code__
        getframe = sys._getframe

        def find_spec(cls, fullname, path=None, target=None):
            if fullname in self.modules and \
                    getframe(2).f_code is importing:
                with self.lock:
                    spec = self.show(fullname, path)
                if spec is not None:
                    return spec
            return real(cls, fullname, path, target)
        return find_spec

    def elsewhere(self):
        """The folders that the program has put in front of ours."""
        return [folder for folder in sys.path
                if folder not in self.known_path]

    def show(self, name, path):
        """The spec of what is hidden as name, after all that it needs was
        shown; None if the program would get something else."""
        sys.path_importer_cache.update(self.folders)
        self.folders.clear()
        if name not in self.modules:  # another thread was first
            return self.spec(name) if name in self.shown else None
        package = name.rpartition(".")[0]
        if package and sys.modules[package] is not self.shown.get(
                package, sys.modules[package]):
            return None
        if name == "matplotlib" and not self.same_matplotlib():
            self.forget_matplotlib()
            return None
        others = self.elsewhere()
        if not package and others:
            spec = self.external.PathFinder.find_spec(name, others)
            if spec is not None and spec.loader is not None:
                del self.modules[name]
                return spec
        taken = taken_by(others)
        wanted = self.needed(name)
        for other in list(self.modules):
            if other in wanted and other != name and \
                    other.partition(".")[0] not in taken:
                self.show_one(other)
        self.shown[name] = self.modules.pop(name)
        self.apply(self.effects.get(name))
        return self.spec(name)

    def same_matplotlib(self):
        """Whether it would be configured as it was ahead."""
        now = os.environ
        names = [name for name in now.keys() | self.environment.keys()
                 if name.startswith(("MPL", "MATPLOTLIB", "XDG_"))]
        return all(now.get(name) == self.environment.get(name)
                   for name in (*names, "HOME")) and \
            not self.configured and not matplotlib_files()

    def forget_matplotlib(self):
        """Compiled modules stay: they can be loaded once, and know nothing of
        its configuration."""
        suffixes = tuple(self.external.EXTENSION_SUFFIXES)
        for name in list(self.modules):
            file = getattr(self.modules[name], "__file__", None) or ""
            if name.partition(".")[0] in ("matplotlib", "mpl_toolkits",
                                          "pylab") and \
                    not file.endswith(suffixes):
                del self.modules[name]

    def needed(self, name):
        wanted, todo = set(), [name]
        while todo:
            name = todo.pop()
            if name not in wanted and name in self.modules:
                wanted.add(name)
                effects = self.effects.get(name)
                todo += effects.needs if effects else ()
        return wanted

    def show_one(self, name):
        holder, child = self.holder(name)
        module = self.modules.pop(name)
        self.shown[name] = sys.modules[name] = module
        if name in self.bound and holder is not None:
            setattr(holder, child, module)
        self.apply(self.effects.get(name))

    def spec(self, name):
        """A spec that leads the import system to the module as it is."""
        module = self.shown[name]
        return self.bootstrap.ModuleSpec(name, Shower(module))

    def apply(self, effects):
        if effects is None:
            return
        if effects.in_front or effects.at_end:
            current = filters()
            for item in effects.in_front:
                if item in current:
                    current.remove(item)
                current.insert(0, item)
            current += [i for i in effects.at_end if i not in current]
            filters_changed()
        for function, args, kwargs in effects.calls:
            function(*args, **kwargs)
        for name in effects.loggers:
            self.loggers.show(name, True)
        for (name, key), value in effects.attributes.items():
            vars(sys.modules[name])[key] = value
        handler_list().extend(effects.handlers)
        for where, entries in effects.entries.items():
            table(where).update(entries)
        for name, value in effects.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for path, content in effects.files.items():
            if content is None:
                os.makedirs(path, 0o700, exist_ok=True)
            elif not os.path.exists(path):
                with open(path, "wb") as f:
                    f.write(content)


def matplotlib_files():
    """Whether there is one that it would be configured by."""
    return any(os.path.exists(place) for place in (
        "matplotlibrc", os.environ.get("HOME", "") +
        "/.config/matplotlib/matplotlibrc"))


def taken_by(folders):
    """What could be a module of these folders, by name."""
    taken = set()
    for folder in folders:
        try:
            taken.update(entry.partition(".")[0]
                         for entry in os.listdir(folder or "."))
        except OSError:
            pass
    return taken


class Loggers:
    """The loggers of hidden modules: their names are unknown to logging, and
    they are as new.  Who asks for one gets it; what the module's import did to
    it comes with the module."""

    KEYS = ("level", "propagate", "disabled")

    def __init__(self, logging):
        self.logging = logging
        self.manager = logging.root.manager
        self.hidden = dict(self.manager.loggerDict)
        self.changes = {}
        self.manager.loggerDict.clear()
        fresh = vars(logging.Logger("fresh"))
        for name, logger in self.hidden.items():
            if not isinstance(logger, logging.Logger):
                continue
            state = vars(logger)
            self.changes[name] = (
                [(key, state[key]) for key in self.KEYS
                 if state[key] != fresh[key]],
                logger.handlers[:], logger.filters[:])
            state.update((key, fresh[key]) for key in self.KEYS)
            logger.handlers.clear()
            logger.filters.clear()
        manager = type(self.manager)
        real = manager.getLogger

        def getLogger(this, name):
            if name in self.hidden and this is self.manager:
                self.show(name)
            return real(this, name)
        manager.getLogger = getLogger

    def show(self, name, changed=False):
        logger = self.hidden.pop(name, None)
        if isinstance(logger, self.logging.Logger):
            known = self.manager.loggerDict
            holder = known.get(name)
            known[name] = logger
            if holder is not None:
                self.manager._fixupChildren(holder, logger)
            self.manager._fixupParents(logger)
        if changed and name in self.changes:
            logger = self.manager.loggerDict[name]
            values, handlers, filters = self.changes.pop(name)
            vars(logger).update(values)
            logger.handlers += handlers
            logger.filters += filters


class Shower:
    """Loads a module that is there already, and leaves no trace on it."""

    KEYS = ("__spec__", "__loader__", "__package__")

    def __init__(self, module):
        self.module = module
        self.kept = {key: vars(module)[key] for key in self.KEYS
                     if key in getattr(module, "__dict__", ())}

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        if self.kept:
            vars(module).update(self.kept)


def preload(names):
    """Loads them, and hides them; returns what is hidden."""
    seen = dict.fromkeys(sys.modules)
    import _contextvars
    import gc
    before = settings()
    environment = dict(os.environ)
    shown = list(filters())
    folders = set(sys.path_importer_cache)
    gc.disable()
    recorder = Recorder(seen)
    kept = set(recorder.look())
    # In a context of its own: some set a variable of decimal's.
    missing = _contextvars.Context().run(recorder.run, names)
    recorder.restore()
    for path in sorted(recorder.look().keys() - kept, reverse=True):
        (os.rmdir if recorder.files[path] is None else os.unlink)(path)
    if filters() != shown:
        filters()[:] = shown
        filters_changed()
    if os.environ != environment:
        os.environ.clear()
        os.environ.update(environment)
    gc.enable()
    after = settings()
    changed = [name for name in before if before[name] != after[name]]
    for name in changed:
        sys.stderr.write(f"an import changes {name}: {before[name]!r}, "
                         f"{after[name]!r}\n")
    if changed:
        os._exit(1)
    for name in missing:
        os.write(CONTROL, f"missing {name}\n".encode())
    hidden = Hidden(recorder, seen)
    for folder in sys.path_importer_cache.keys() - folders:
        hidden.folders[folder] = sys.path_importer_cache.pop(folder)
    finder = hidden.bootstrap.BuiltinImporter
    real = finder.find_spec.__func__
    finder.find_spec = classmethod(hidden.find(real))
    return hidden


def shadowed(hidden, files):
    """Whether a file of the program stands for one of the hidden modules, or
    changes what one is."""
    tops = {name.partition(".")[0] for name in hidden.modules}
    for file in files:
        first, _, rest = file.partition("/")
        stem, _, suffix = first.partition(".")
        if first == "matplotlibrc" or stem in tops and (
                rest or suffix.endswith(("py", "pyc", "so"))):
            return True
    return False


def rehearse(entry):
    """Goes the ways of the start-up that are left once: what code and pages they
    need, and their system calls, cost several times as much the first time."""
    fd = os.open(entry, os.O_RDONLY)
    os.set_inheritable(fd, True)
    os.set_inheritable(fd, False)
    os.isatty(fd)
    os.close(fd)
    os.getcwd()
    try:
        os.readlink(entry)
    except OSError:
        pass
    exec(compile("print(0, file=out, flush=True)", entry, "exec"),
         {"out": open(os.devnull, "w")})


def unseen(name):
    """A module that is part of Python, without a trace in sys.modules."""
    known = name in sys.modules
    module = __import__(name)
    if not known:
        del sys.modules[name]
    return module


def leave_out(gc):
    """What is there now stays to the end: not to look at it again makes that end
    several times as fast, and so the program's own collections. But what the
    program makes is to end as ever, so its names are new."""
    gc.collect()
    gc.freeze()
    main = sys.modules["__main__"]
    sys.modules["__main__"] = type(sys)("__main__")
    vars(sys.modules["__main__"]).update(vars(main))


def load_ending():
    """ending.c, which is no module: that is found out after it."""
    import _imp
    from _frozen_importlib import ModuleSpec
    try:
        _imp.create_dynamic(
            ModuleSpec("ending", None, origin=f"/proc/self/fd/{ENDING}"))
    except (ImportError, SystemError):
        pass


def look_ahead():
    """Does now what the start-up does next: looks for modules of the site's and
    the user's own, for which it reads each folder of sys.path. What it finds it
    loads, when it comes to that; folders that have changed are read again."""
    from _frozen_importlib_external import PathFinder
    for name in ("sitecustomize", "usercustomize"):
        PathFinder.find_spec(name)


def not_an_archive(entry):
    """Python looks whether its program is an archive, by slow code; the mark of
    one is in its last bytes. If it is none, it gets that as the answer."""
    try:
        fd = os.open(entry, os.O_RDONLY)
    except OSError:
        return
    end = os.pread(fd, ARCHIVE_END, max(0, os.fstat(fd).st_size - ARCHIVE_END))
    os.close(fd)
    if b"PK\5\6" not in end:
        sys.path_importer_cache[os.path.join(os.getcwd(), entry)] = None


def wait():
    names = words()
    gc = unseen("gc")  # now, for what preload() needs is hidden after it
    load_ending()
    hidden = preload(names) if names else None
    load_ending()
    os.close(ENDING)
    look_ahead()
    rehearse(sys.argv[0])
    leave_out(gc)
    os.write(CONTROL, b"ready\n")
    count, *rest = words()
    args, files = rest[:int(count)], rest[int(count):]
    os.write(CONTROL, b"go\n")
    if hidden and shadowed(hidden, files):
        start_anew(args)
    os.close(CONTROL)
    not_an_archive(sys.argv[0])
    sys.argv += args
    sys.orig_argv += args


wait()
