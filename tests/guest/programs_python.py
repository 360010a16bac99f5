# SPDX-License-Identifier: Apache-2.0
"""Python programs that tell what they find: {name: source, or (source, {further
arguments of Sandbox.run, or "args": [...]})}. What they print must be the same
in every run, but for addresses.

GENERAL needs the standard library only, LIBRARIES the packages of the image
python-agent as well.
"""

import base64
import os
import subprocess
import tempfile


def load_library(source, *flags):
    """A program that loads what this C source makes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.so")
        subprocess.run(["cc", "-s", "-shared", "-fPIC", "-o", path, "-xc", "-",
                        *flags], input=source, check=True, text=True)
        with open(path, "rb") as f:
            library = base64.b64encode(f.read()).decode()
    return """import base64, ctypes, os
f = os.memfd_create('x')
os.write(f, base64.b64decode('%s'))
ctypes.CDLL('/proc/self/fd/%%d' %% f)
print('main')""" % library


DESTRUCTOR = """#include <unistd.h>
static void end(void) __attribute__((destructor));
static void end(void) { usleep(20000); (void)!write(1, "unloaded\\n", 9); }
"""

MOD = "def f():\n    raise ValueError('in a module')\n"

GENERAL = {
    # What the interpreter was started with.
    "argv": "import sys; print(sys.argv, sys.orig_argv)",
    "argv_more": ("import sys; print(sys.argv, sys.orig_argv)",
                  {"args": ["", "-x", "a b", "\u00e4\u4e2d", "--", "\n"]}),
    "argparse": ("""import argparse
p = argparse.ArgumentParser()
p.add_argument("--n", type=int)
p.add_argument("rest", nargs="*")
print(p.prog, p.parse_args())""", {"args": ["--n", "3", "a", "b"]}),
    "argparse_error": ("""import argparse
p = argparse.ArgumentParser()
p.add_argument("--n", type=int)
p.parse_args()""", {"args": ["--n", "x"]}),
    "flags": "import sys; print(sys.flags, sys._xoptions, sys.warnoptions)",
    "sys": """import sys
print([(n, repr(getattr(sys, n))) for n in sorted(dir(sys))
       if n not in ("modules", "stdin", "stdout", "stderr", "__stdin__",
                    "__stdout__", "__stderr__", "path_importer_cache",
                    "_git", "stdlib_module_names")])
print(sorted(sys.stdlib_module_names))""",
    "path": "import sys; print(sys.path, sys.meta_path, sys.path_hooks)",
    "modules": "import sys; print(list(sys.modules))",
    "module_attributes": """import sys
for name, module in sorted(sys.modules.items()):
    print(name, sorted(vars(module)))""",
    "importer_cache": "import sys; print(sys.path_importer_cache)",
    "globals": "print(globals()); print(locals() is globals())",
    "main_module": """import __main__, sys
print(__name__, __file__, __spec__, __loader__, __package__, __doc__)
print(__main__ is sys.modules['__main__'], vars(__main__) is globals())
print(getattr(__main__, '__cached__', 'none'), __builtins__)""",
    "builtins": "import builtins; print(sorted(vars(builtins).items(), key=str))",
    "site": "import site; print(site.ENABLE_USER_SITE, site.getsitepackages(),"
            " site.PREFIXES, sorted(vars(site)))",
    "environment": """import os
print(sorted(os.environ.items()), os.getcwd(), os.getpid(), os.getppid(),
      os.getuid(), os.getgid(), os.umask(0), os.getpgrp() == os.getpid(),
      os.getsid(0) == os.getpid(), os.getgroups())""",
    "proc_environ": "print(open('/proc/self/environ').read())\n"
                    "print(open('/proc/self/cmdline').read())",
    "descriptors": """import os
print([(f, os.readlink('/proc/self/fd/' + f))
       for f in os.listdir('/proc/self/fd') if f != '3'])
print(open('/dev/null').fileno(), os.dup(0))
import fcntl
print([(fcntl.fcntl(f, fcntl.F_GETFD), fcntl.fcntl(f, fcntl.F_GETFL))
       for f in range(3)])""",
    "limits": """import resource
print([(n, resource.getrlimit(getattr(resource, n)))
       for n in sorted(dir(resource)) if n.startswith('RLIMIT')])""",
    "status": """keys = ('Name', 'State', 'Threads', 'Uid', 'Gid', 'Groups',
        'NSpid', 'SigBlk', 'SigIgn', 'SigCgt', 'CapEff', 'CapPrm', 'CapInh',
        'CapBnd', 'NoNewPrivs', 'Seccomp')
for line in open('/proc/self/status'):
    if line.split(':')[0] in keys:
        print(line.strip())""",
    "dumpable": """import ctypes
libc = ctypes.CDLL(None)
print([libc.prctl(n, 0, 0, 0, 0) for n in (2, 3, 7, 39)])""",
    "tree": """import os
for top in ('/box', '/tmp', '/dev/shm'):
    for folder, folders, names in os.walk(top):
        s = os.stat(folder)
        print(folder, oct(s.st_mode), s.st_uid, s.st_gid)
        for n in names:
            s = os.stat(os.path.join(folder, n))
            print(n, oct(s.st_mode), s.st_uid, s.st_size, s.st_nlink)""",
    "source_of_itself": "print(open(__file__).read())",
    "files": ("""import os, pkg.mod, other
print(other.__file__, pkg.mod.__file__, pkg.__path__, other.x)
print(sorted(os.listdir()), open('data/a.txt').read())""",
              {"files": [("pkg/__init__.py", ""), ("pkg/mod.py", "y = 1"),
                         ("other.py", "x = 2"), ("data/a.txt", "text")]}),
    "isolation_of_names": "print([n for n in dir() if n[:2] != '__'], dir())",

    # Standard streams.
    "streams": """import sys
for f in sys.stdin, sys.stdout, sys.stderr:
    print(f, f.isatty(), f.encoding, f.errors, f.line_buffering,
          f.write_through, f.newlines, f.fileno(), type(f.buffer),
          f.name, f.mode, f.closed)""",
    "stdin_read": ("import sys; print(repr(sys.stdin.read()))",
                   {"stdin": b"one\r\ntwo\n\xff"}),
    "stdin_lines": ("for line in open(0): print(repr(line))",
                    {"stdin": b"one\ntwo\nthree"}),
    "stdin_input": ("print(input('> ')); print(input()); input()",
                    {"stdin": b"a\nb\n"}),
    "stdin_empty": "import sys; print(repr(sys.stdin.buffer.read()))",
    "stdin_input_at_end": "input('what? ')",
    "stdin_large": ("import sys; d = sys.stdin.buffer.read();"
                    "print(len(d), hash(d) is not None)",
                    {"stdin": b"x" * 300000}),
    "stdin_unread": ("print('never looked')", {"stdin": b"x" * 300000}),
    "buffering": """import sys, os
sys.stdout.write('buffered ')
os.write(1, b'first\\n')
sys.stderr.write('unbuffered\\n')
sys.stdout.flush()
os._exit(3)""",
    "encodings": """import sys, locale
print(sys.getdefaultencoding(), sys.getfilesystemencoding(),
      locale.getpreferredencoding(False), locale.getlocale(),
      locale.setlocale(locale.LC_ALL), locale.localeconv())
print('\u00e4\u4e2d\U0001f600', ascii('\u00e4'))""",
    "unencodable": "print('\\ud800')",
    "closed_stdout": "import sys; sys.stdout.close(); print('x')",
    "closed_descriptor": "import os; os.close(1); print('x')",
    "sigpipe": """import os, signal
print(signal.getsignal(signal.SIGPIPE), flush=True)
r, w = os.pipe()
os.close(r)
os.write(w, b'x')""",

    # Ends.
    "exit_code": "import sys; sys.exit(7)",
    "exit_text": "import sys; sys.exit('a reason')",
    "exit_none": "import sys; sys.exit(None)",
    "exit_large": "import sys; sys.exit(256 + 9)",
    "exit_object": "import sys; sys.exit([1, 2])",
    "exit_builtin": "exit(5)",
    "exit_in_thread": """import threading, sys
t = threading.Thread(target=lambda: (t_.wait(), print('thread')))
t_ = threading.Event()
t.start(); threading.Timer(.2, t_.set).start()
print('main'); sys.exit(3)""",
    "exit_of_a_child": """import os, sys, time
if os.fork() == 0:
    print('child'); sys.exit(9)
os.wait(); time.sleep(.2)
print('parent'); sys.exit(3)""",
    "exit_unflushed": """import ctypes
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.fputs(b'of C\\n', ctypes.c_void_p(libc.fdopen(1, b'w')))
print('of Python')""",
    "exit_behind_a_filter": """import ctypes, struct
libc = ctypes.CDLL(None)
libc.prctl(38, 1, 0, 0, 0)
def word(code, jt, jf, k):
    return struct.pack('HBBI', code, jt, jf, k)
# socket(2) kills.
code = (word(0x20, 0, 0, 0) + word(0x15, 0, 1, %d) +
        word(6, 0, 0, 0x80000000) + word(6, 0, 0, 0x7fff0000))
code = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(
    struct.pack('HxxxxxxQ', 4, ctypes.addressof(code)))
print(libc.prctl(22, 2, program, 0, 0))""" % (
        198 if os.uname().machine == "aarch64" else 41),
    "exit_in_a_thread_of_c": """import ctypes, threading, time
threading.Thread(target=ctypes.CDLL(None).exit, args=(6,)).start()
time.sleep(60)""",
    "exit_own_end": load_library(
        """#include <unistd.h>
void _fini(void);
void _fini(void) { usleep(20000); (void)!write(1, "unloaded\\n", 9); }
""", "-nostartfiles"),
    "exit_handler_of_c": """import ctypes, sys
libc = ctypes.CDLL(None)
libc.strerror.restype = ctypes.c_void_p
libc.on_exit(libc.psignal, ctypes.c_void_p(libc.strerror(2)))
sys.exit(11)""",
    "exit_destructor": load_library(DESTRUCTOR),
    "exit_destructor_alone": load_library(DESTRUCTOR, "-nostartfiles"),
    "quit_repr": "print(exit, quit, copyright); quit()",
    "os_exit": "import os; print('lost'); os._exit(4)",
    "system_exit_raised": "raise SystemExit(3)",
    "abort": "import os; os.abort()",
    "killed": "import os, signal; print(1, flush=True);"
              "os.kill(os.getpid(), signal.SIGKILL)",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "sigterm": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "interrupt": "import os, signal, time\n"
                 "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)",
    "interrupt_raised": "raise KeyboardInterrupt",
    "atexit": """import atexit
atexit.register(print, 'first')
@atexit.register
def second():
    print('second')
    raise ValueError('in atexit')
print(atexit._ncallbacks())""",
    "del_at_exit": """class A:
    def __del__(self):
        print('deleted', A, print)
a = A()
b = A(); b.me = b""",
    "exception_in_del": """class A:
    def __del__(self):
        raise ValueError('in del')
a = A()
del a
b = A()""",
    "faulthandler": "import faulthandler; print(faulthandler.is_enabled())",
    "excepthook": """import sys
def hook(*args): print('hook', args)
sys.excepthook = hook
1 / 0""",

    # Tracebacks.
    "traceback": "def f(n):\n    return 1 / n\n\n\nf(0)\n",
    "traceback_chain": """def f():
    try:
        {}['key']
    except KeyError:
        raise RuntimeError('second')
try:
    f()
except RuntimeError as e:
    e.add_note('a note')
    raise ValueError('third') from e""",
    "traceback_group": """raise ExceptionGroup('group', [
    ValueError(1), ExceptionGroup('inner', [TypeError('t')])])""",
    "traceback_in_module": ("import mod\n\nmod.f()\n",
                            {"files": [("mod.py", MOD)]}),
    "error_importing": ("import mod\n",
                        {"files": [("mod.py", "x = 1\n1 / 0\n")]}),
    "syntax_error": "print(1)\nif True\n    pass\n",
    "syntax_error_indent": "def f():\nreturn 1\n",
    "syntax_error_in_module": ("import mod", {"files": [("mod.py", "x = (")]}),
    "syntax_warning": "x = 1\nprint(x is 1, '\\d')",
    "not_utf8": (b"print('\xe4')\n", {}),
    "encoding_declared": (b"# -*- coding: latin-1 -*-\nprint('\xe4')\n", {}),
    "bom": (b"\xef\xbb\xbfprint('bom')\n", {}),
    "nul": (b"print(1)\n\0\n", {}),
    "empty": "",
    "only_comment": "# nothing",
    "crlf": "print(1)\r\nprint('a\\\r\nb')\r\n",
    "name_error": "import math\nprint(maht.pi)",
    "attribute_error": "import math\nprint(math.sqr)",
    "import_error": "import nosuchmodule",
    "import_error_sub": "import os.nosuch",
    "import_from_error": "from math import nosuch",
    "recursion": "def f(n): return f(n + 1)\nf(0)",
    "recursion_limit": "import sys; print(sys.getrecursionlimit())\n"
                       "def f(n):\n    try:\n        return f(n + 1)\n"
                       "    except RecursionError:\n        return n\n"
                       "print(f(0))",
    "stack": """import inspect, traceback, sys
def f():
    for i in inspect.stack():
        print(i.filename, i.lineno, i.function, i.code_context)
    traceback.print_stack()
    frame = sys._getframe()
    while frame:
        print(frame.f_code.co_name, frame.f_lineno)
        frame = frame.f_back
f()""",
    "stack_at_import": ("import mod\n", {"files": [(
        "mod.py", "import traceback, inspect\ntraceback.print_stack()\n"
        "print([(i.filename, i.lineno) for i in inspect.stack()])\n")]}),
    "linecache": "import linecache; print(linecache.getlines(__file__),"
                 "len(linecache.cache))",
    "trace": """import sys
def tracer(frame, event, arg):
    print(frame.f_code.co_name, event)
    return tracer
def f(): pass
sys.settrace(tracer)
f()
sys.settrace(None)
print(sys.gettrace(), sys.getprofile())""",
    "warning": "import warnings; warnings.warn('careful')\n"
               "warnings.warn('old', DeprecationWarning)",
    "warning_filters": """import warnings
print(warnings.filters, warnings.defaultaction, warnings.onceregistry)
warnings.simplefilter('error')
warnings.warn('now an error')""",
    "resource_warning": "import warnings; warnings.simplefilter('always')\n"
                        "open('/dev/null')",

    # State of the standard library.
    "signals": """import signal
print([(s.name, signal.getsignal(s)) for s in signal.Signals])
print(signal.pthread_sigmask(0, ()), signal.getitimer(0),
      signal.set_wakeup_fd(-1))""",
    "gc": "import gc; print(gc.isenabled(), gc.get_threshold(),"
          "gc.get_debug(), gc.callbacks, gc.garbage)",
    "threads": """import threading, os
print(threading.enumerate(), threading.active_count(),
      threading.current_thread(), threading.main_thread().is_alive(),
      threading.stack_size(), len(os.listdir('/proc/self/task')))""",
    "thread_exception": """import threading
def f(): raise ValueError('in a thread')
t = threading.Thread(target=f, name='worker')
t.start(); t.join()
print('still there')""",
    "thread_daemon": """import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print('done')""",
    "thread_after_main": """import threading, time
def f():
    time.sleep(0.1)
    print('after main')
threading.Thread(target=f).start()""",
    "thread_limit": ("""import threading, time
made = 0
try:
    for i in range(300):
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
        made += 1
except RuntimeError as e:
    print(e)
print(made)""", {"pids": 20}),
    "process_limit": ("""import os
n = 0
try:
    while True:
        if os.fork() == 0:
            import time; time.sleep(30); os._exit(0)
        n += 1
except OSError as e:
    print(n, e)""", {"pids": 9}),
    "logging": """import logging
print(logging.root.handlers, logging.root.level, logging.lastResort,
      logging.root.manager.loggerDict, logging.getLoggerClass(),
      logging._handlerList)
logging.warning('to stderr')
logging.info('not shown')
logging.getLogger('a.b').error('%s', 1)""",
    "logging_format": """import logging
logging.basicConfig(format='%(levelname)s %(name)s %(module)s %(lineno)d '
    '%(threadName)s %(processName)s %(message)s', level=logging.DEBUG)
logging.debug('x')
try: 1 / 0
except ZeroDivisionError: logging.exception('oops')""",
    "logging_age": """import logging
r = logging.LogRecord('n', 10, 'p', 1, 'm', (), None)
print(r.relativeCreated < 2000)""",
    "random_seeded": """import random
random.seed(1)
print(random.random(), random.randint(0, 99), random.sample(range(9), 3))""",
    "hash_seed": "import sys, os; print(sys.flags.hash_randomization,"
                 "os.environ.get('PYTHONHASHSEED'), hash(1), hash(''))",
    "decimal": "import decimal; print(decimal.getcontext(),"
               "decimal.Decimal(1) / 3)",
    "contextvars": "import contextvars; print(list(contextvars.copy_context()))",
    "int_digits": "import sys; print(sys.get_int_max_str_digits())\n"
                  "print(len(str(10 ** 4299)))\nstr(10 ** 4300)",
    "socket_default": "import socket; print(socket.getdefaulttimeout(),"
                      "socket.gethostname())",
    "time": """import time, os
print(time.tzname, time.timezone, os.environ.get('TZ'))
os.environ['TZ'] = 'America/New_York'
time.tzset()
print(time.tzname, time.strftime('%H', time.localtime(0)))
import datetime
print(datetime.datetime.fromtimestamp(0))""",
    "locale_set": "import locale; locale.setlocale(locale.LC_ALL, '');"
                  "print(locale.setlocale(locale.LC_ALL), f'{1234567:n}')",
    "codecs": "print('a.b'.encode('idna'), 'x'.encode('utf-16'),"
              "b'x'.decode('cp437'))",
    "tempfile": "import tempfile; print(tempfile.gettempdir(),"
                "tempfile.tempdir)",
    "mimetypes": "import mimetypes; print(mimetypes.inited,"
                 "mimetypes.guess_type('a.html'))",
    "platform": "import platform; print(platform.python_version(),"
                "platform.machine(), platform.libc_ver())",
    "sysconfig": "import sysconfig; print(sysconfig.get_paths())",
    "codeop": "import code; code.interact(banner='b', exitmsg='e')",
    "eval_exec": "print(eval('1 + 1')); exec('def f(): 1 / 0'); f()",
    "importlib_metadata": "import importlib.metadata as m\n"
                          "try: print(m.version('nosuch'))\n"
                          "except m.PackageNotFoundError as e: print(e)",
    "resources": ("""import importlib.resources as r
print(r.files('pkg').joinpath('d.txt').read_text())""",
                  {"files": [("pkg/__init__.py", ""), ("pkg/d.txt", "data")]}),
    "namespace_package": ("import ns.m; print(ns.__path__, ns.m.__spec__)",
                          {"files": [("ns/m.py", "")]}),
    "shadow": ("import random, json; print(random.__file__, random.x)",
               {"files": [("random.py", "x = 1")]}),
    "shadow_later": """open('string.py', 'w').write('x = 2')
import string
print(string.__file__, string.x)""",
    "path_insert": """import os, sys
os.mkdir('/tmp/lib')
open('/tmp/lib/json.py', 'w').write('x = 3')
sys.path.insert(0, '/tmp/lib')
import json
print(json.__file__, json.x)""",
    "submodules_unbound": """import xml, concurrent, email, importlib, collections
for module, name in ((xml, 'etree'), (concurrent, 'futures'),
                     (email, 'mime'), (importlib, 'metadata'),
                     (collections, 'abc')):
    print(module.__name__, name, hasattr(module, name))""",
    "find_spec": """import importlib.util
for name in 'json', 'sys', 'zlib', 'nosuch', 'xml.dom':
    print(importlib.util.find_spec(name))""",
    "reload": "import importlib, json; j = importlib.reload(json);"
              "print(j is json, json.dumps([1]), json.__spec__)",
    "import_again": """import sys, json
first = json
del sys.modules['json']
import json
print(first is json, json.__spec__, sys.modules['json'] is json)""",
    "meta_path": """import sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name[:2] == 'no':
            print('asked for', name)
sys.meta_path.insert(0, Finder)
import nosuch""",
    "module_specs": """import json, random, enum, decimal, zlib, _socket
for m in json, random, enum, decimal, zlib, _socket:
    print(m, m.__spec__, m.__loader__, m.__package__,
          getattr(m, '__file__', None))""",
    "import_in_threads": """import threading
names = ['json', 'decimal', 'email.message', 'xml.etree.ElementTree',
         'asyncio', 'http.client', 'unittest.mock', 'sqlite3'] * 3
found = []
def load(name):
    __import__(name)
    import sys
    found.append((name, sys.modules[name].__name__))
ts = [threading.Thread(target=load, args=(n,)) for n in names]
[t.start() for t in ts]; [t.join() for t in ts]
print(sorted(found))""",
    "dont_write_bytecode": ("import mod, os, sys; print(os.listdir(),"
                            "sys.dont_write_bytecode, mod.__spec__.cached)",
                            {"files": [("mod.py", "")]}),

    # Other processes.
    "fork": """import os
print('before', flush=True)
pid = os.fork()
if pid == 0:
    print('child', os.getppid() == pid)
    os._exit(5)
print(os.waitpid(pid, 0)[1])""",
    "subprocess": """import subprocess, sys
r = subprocess.run([sys.executable, '-c', '''
import sys, os
print(sys.argv, list(sys.modules), sys.flags, os.listdir('/proc/self/fd'))
'''], capture_output=True, text=True)
print(r)""",
    "subprocess_stdin": "import subprocess; print(subprocess.run(['cat'],"
                        "input=b'x', capture_output=True))",
    "subprocess_inherits": ("import subprocess, sys; sys.stdout.flush();"
                            "subprocess.run(['cat'])", {"stdin": b"inherited"}),
    "subprocess_signals": """import subprocess
print(subprocess.run(['sh', '-c', 'grep Sig /proc/self/status'],
                     capture_output=True, text=True).stdout)""",
    "exec": "import os; os.execvp('python3', ['python3', '-c', "
            "'import sys; print(sys.argv, list(sys.modules))'])",
    "mp_fork": """import multiprocessing as mp
def f(x): return x * x
if __name__ == '__main__':
    print(mp.get_start_method(), mp.current_process())
    with mp.get_context('fork').Pool(2) as p:
        print(p.map(f, range(5)))""",
    "mp_spawn": """import multiprocessing as mp, sys
print('imported as', __name__, len(sys.argv), flush=True)
def f(q): q.put((__name__, sys.argv, list(sys.modules)[:5]))
if __name__ == '__main__':
    c = mp.get_context('spawn')
    q = c.Queue()
    p = c.Process(target=f, args=(q,))
    p.start(); print(q.get()); p.join(); print(p.exitcode)""",
    "mp_forkserver": """import multiprocessing as mp
def f(q): q.put(__name__)
if __name__ == '__main__':
    c = mp.get_context('forkserver')
    q = c.Queue()
    p = c.Process(target=f, args=(q,))
    p.start(); print(q.get()); p.join(); print(p.exitcode)""",
    "mp_exception": """import multiprocessing as mp
def f(): raise ValueError('in a process')
if __name__ == '__main__':
    p = mp.get_context('fork').Process(target=f, name='worker')
    p.start(); p.join(); print(p.exitcode)""",
    "process_pool": """from concurrent.futures import ProcessPoolExecutor
import os
def f(x):
    return x + 1
if __name__ == '__main__':
    with ProcessPoolExecutor(2) as p:
        print(list(p.map(f, range(4))))""",
    "thread_pool": """from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as p:
    print(list(p.map(abs, range(-4, 0))))
print(ThreadPoolExecutor()._max_workers)""",
    "interpreters": """from concurrent import interpreters
i = interpreters.create()
i.exec('import sys; print(sys.argv, list(sys.modules))')
i.close()""",

    # Larger pieces.
    "asyncio": """import asyncio
async def f(n):
    await asyncio.sleep(0.01 * n)
    return n
async def main():
    print(await asyncio.gather(f(2), f(1)))
    p = await asyncio.create_subprocess_exec('echo', 'hi',
        stdout=asyncio.subprocess.PIPE)
    print(await p.communicate(), asyncio.get_running_loop().is_running())
asyncio.run(main())""",
    "asyncio_error": """import asyncio
async def f():
    raise ValueError('in a task')
async def main():
    await asyncio.create_task(f())
asyncio.run(main())""",
    "asyncio_never_awaited": """import asyncio
async def f(): pass
f()
print(1)""",
    "pickle_main": """import pickle, dataclasses
@dataclasses.dataclass
class A:
    x: int = 1
d = pickle.dumps(A(3))
print(d, pickle.loads(d), A.__module__, A.__qualname__)""",
    "dataclass_hints": """from __future__ import annotations
import dataclasses, typing
@dataclasses.dataclass(slots=True, order=True)
class A:
    x: int
    y: list[A] = dataclasses.field(default_factory=list)
print(A(1) < A(2), typing.get_type_hints(A), A(1))""",
    "enum_main": "import enum\nclass E(enum.Flag):\n    A = 1\n    B = 2\n"
                 "print(E.A | E.B, repr(E.A), E.__module__)",
    "runpy": ("import runpy; print(sorted(runpy.run_path('x.py')))",
              {"files": [("x.py", "print(__name__, __file__)")]}),
    "unittest": """import unittest, io
class T(unittest.TestCase):
    def test_a(self): self.assertEqual(1, 2)
unittest.main(argv=['x'], testRunner=unittest.TextTestRunner(
    stream=io.StringIO()))""",
    "doctest": '''def f():
    """
    >>> f()
    2
    """
    return 1
import doctest
print(doctest.testmod())''',
    "sqlite": "import sqlite3; c = sqlite3.connect(':memory:');"
              "print(c.execute('select 1 + 1').fetchall())",
    "ctypes_callback": """import ctypes
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int),
                           ctypes.POINTER(ctypes.c_int))
calls = [compare(lambda a, b: a[0] - b[0]) for i in range(600)]
array = (ctypes.c_int * 4)(3, 1, 4, 1)
ctypes.CDLL(None).qsort(array, 4, 4, calls[599])
print(list(array), open('/dev/null').fileno())""",
    "open_before_ctypes": """f = open('/dev/null')
import ctypes
print(f.fileno(), open('/dev/null').fileno())
x = [ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1) for i in range(600)]
print(sum(c() for c in x))""",
    "tracemalloc": "import tracemalloc; print(tracemalloc.is_tracing())",
    "weakref_finalize": """import weakref
class A: pass
a = A()
weakref.finalize(a, print, 'finalized')
print('end')""",
    "generators_at_exit": """def g():
    try:
        yield
    finally:
        print('closed')
x = g(); next(x)""",
    "http_server": """import threading, http.server, urllib.request
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(b'hello')
    def log_message(self, *a): pass
s = http.server.HTTPServer(('127.0.0.1', 0), H)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(urllib.request.urlopen('http://127.0.0.1:%d/' % s.server_port).read())
s.shutdown()""",
    "ssl": "import ssl; print(ssl.create_default_context().verify_mode,"
           "ssl.OPENSSL_VERSION[:9])",
    "output_limit": ("print('x' * 200000)", {}),
    "memory": "print(len(bytearray(50 << 20)))",
    "pdb_post_mortem": ("import pdb; pdb.set_trace(); print(1)",
                        {"stdin": b"p 1 + 1\nc\n"}),
    "turtle": "import sys\ntry:\n    import tkinter\nexcept ImportError as e:"
              "\n    print(type(e).__name__, e)",
    "help": "help(len)",
    "version": "import sys; print(sys.version, sys.executable, sys.prefix,"
               "sys.base_prefix, sys.implementation)",
}

LIBRARIES = {
    "numpy": """import numpy as np
print(np.__version__, np.arange(6).reshape(2, 3) @ np.ones(3), np.geterr())
print(np.random.default_rng(1).random(2), np.get_printoptions())
np.random.seed(1); print(np.random.rand(2))""",
    "numpy_unbound": """import numpy
print([n for n in ('ma', 'random', 'linalg', 'fft', 'polynomial', 'testing',
       'lib', 'ctypeslib', 'rec', 'char', 'strings', 'typing', 'f2py')
       if n in vars(numpy)])
print(numpy.testing, numpy.ctypeslib)""",
    "numpy_errors": "import numpy as np\nnp.array([1]) / 0\n"
                    "np.zeros((2, 3)) @ np.zeros((2, 3))",
    "numpy_filters": "import warnings\nprint(warnings.filters)\nimport numpy\n"
                     "print(warnings.filters)",
    "pandas": """import pandas as pd
d = pd.DataFrame({'a': [1, 2, 3], 'b': list('xyx')})
print(d, d.groupby('b').a.sum(), d.describe(), d.dtypes)
print(pd.date_range('2024-01-01', periods=2, tz='Europe/Berlin'))
print(pd.get_option('display.width'))""",
    "pandas_error": "import pandas as pd\npd.DataFrame({'a': [1]})['b']",
    "pandas_csv": ("import pandas as pd, sys; print(pd.read_csv(sys.stdin))",
                   {"stdin": b"a,b\n1,2\n"}),
    "pandas_state": """import sys, warnings, logging, signal, gc, os, threading
import pandas
print(warnings.filters, logging.root.manager.loggerDict, gc.get_threshold(),
      gc.isenabled(), sys.getrecursionlimit(), threading.enumerate(),
      sorted(os.environ.items()), os.listdir('/proc/self/task') != [],
      signal.getsignal(signal.SIGINT), sys.meta_path, sys.path,
      sys.path_hooks, os.listdir('/tmp'), os.listdir('/box'))""",
    "matplotlib": """import matplotlib, os
print(os.listdir('/tmp'), matplotlib.get_backend(),
      matplotlib.rcParams['font.family'][:2], matplotlib.rcParams['savefig.dpi'])
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.title('t'); plt.savefig('x.png'); plt.show()
print(os.path.getsize('x.png') > 1000, plt.get_fignums(), sorted(os.listdir()))
for folder, folders, names in os.walk('/tmp'): print(folder, names)""",
    "matplotlib_backend": """import os
os.environ['MPLBACKEND'] = 'svg'
import matplotlib.pyplot as plt
print(plt.get_backend())
plt.plot([1, 2]); plt.savefig('x.svg')
print(open('x.svg').read(5))""",
    "matplotlib_use": "import matplotlib; matplotlib.use('pdf');"
                      "import matplotlib.pyplot as plt; print(plt.get_backend())",
    "matplotlibrc": ("import matplotlib as m; print(m.rcParams['lines.linewidth'],"
                     "m.matplotlib_fname(), m.get_backend())",
                     {"files": [("matplotlibrc", "lines.linewidth: 7\n"
                                 "backend: svg\n")]}),
    "matplotlib_rc_later": """open('matplotlibrc', 'w').write('lines.linewidth: 9')
import matplotlib.pyplot as plt
print(plt.rcParams['lines.linewidth'])
plt.plot([1]); plt.savefig('x.png')""",
    "requests": """import requests
print(requests.__version__, requests.Session().headers)
try:
    requests.get('http://127.0.0.1:9/')
except requests.ConnectionError as e:
    print(type(e).__name__)
import logging
print(sorted(logging.root.manager.loggerDict),
      logging.getLogger('urllib3').handlers)""",
    "requests_loggers": """import logging
logging.basicConfig(level=logging.DEBUG)
logging.getLogger('urllib3').setLevel(logging.ERROR)
print(logging.getLogger('urllib3').handlers, logging.root.manager.loggerDict)
import requests
print(logging.getLogger('urllib3').handlers,
      logging.getLogger('urllib3').level,
      logging.getLogger('urllib3.connectionpool').parent)""",
    "httpx": "import httpx\nprint(httpx.Client().headers)\n"
             "httpx.get('http://127.0.0.1:9/')",
    "bs4": "from bs4 import BeautifulSoup as B\n"
           "print(B('<p>a<b>c', 'lxml'), B('<p>a<b>c', 'html.parser'))",
    "lxml": "import lxml.html as h; print(h.fromstring('<p>x</p>').text_content())",
    "all": """import numpy, pandas, matplotlib.pyplot, requests, httpx, bs4, lxml.html
import sys, warnings, logging, os, atexit
print(warnings.filters)
print(sorted(logging.root.manager.loggerDict), os.listdir('/tmp'))
print(open('/dev/null').fileno(), atexit._ncallbacks())
print(sorted(n for n in sys.modules if '.' not in n))""",
    "shadow_numpy": ("import numpy; print(numpy.__file__, numpy.x)",
                     {"files": [("numpy.py", "x = 1")]}),
    "shadow_dependency": ("import pandas; print('not reached')",
                          {"files": [("six.py", "1 / 0"),
                                     ("random.py", "1 / 0")]}),
    "numpy_fork": """import numpy as np, multiprocessing as mp
def f(n): return float(np.ones((n, n)).sum())
if __name__ == '__main__':
    for method in 'fork', 'spawn', 'forkserver':
        with mp.get_context(method).Pool(2) as p:
            print(method, p.map(f, [10, 20]))""",
    # One that has ended is among the tasks for a moment more.
    "numpy_threads": """import numpy as np, threading, os, time
def f(): a = np.random.rand(100, 100); a @ a
ts = [threading.Thread(target=f) for i in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
def tasks(): time.sleep(.02); return len(os.listdir('/proc/self/task'))
print(min(tasks() for _ in range(20)))""",
    "pickle_numpy": "import pickle, numpy as np; print(pickle.loads("
                    "pickle.dumps(np.arange(3))), pickle.dumps(np.float64(1)))",
    "copyreg_unimported": "import copyreg; print(sorted(map(str,"
                          "copyreg.dispatch_table)))",
    "find_spec_libraries": """import importlib.util as u
for name in 'numpy', 'pandas', 'matplotlib', 'lxml', 'numpy.linalg':
    print(u.find_spec(name))""",
    "specs_libraries": """import numpy, pandas, numpy.linalg, requests.api, six
for m in numpy, pandas, numpy.linalg, requests.api, six:
    print(m, m.__spec__, m.__loader__, m.__package__, m.__file__)""",
    "env_before_numpy": "import os; os.environ['OMP_NUM_THREADS'] = '1'\n"
                        "import numpy; print(numpy.ones(2) @ numpy.ones(2))",
    "inspect_library": "import inspect, pandas\n"
                       "print(inspect.getsourcefile(pandas.DataFrame),"
                       "len(inspect.getsource(pandas.DataFrame)) > 1000)",
    "import_time_frames": "import traceback, builtins\n"
                          "real = builtins.__import__\n"
                          "def imp(*a, **k):\n"
                          "    if a[0] == 'numpy' and not a[1]['__name__']"
                          ".startswith('numpy'): traceback.print_stack()\n"
                          "    return real(*a, **k)\n"
                          "builtins.__import__ = imp\nimport numpy",
    "reload_numpy_part": "import importlib, numpy.version as v\n"
                         "print(importlib.reload(v).version)",
    "user_package": """import os, subprocess, sys
os.makedirs('/tmp/lib/requests')
open('/tmp/lib/requests/__init__.py', 'w').write('x = "mine"')
sys.path.insert(0, '/tmp/lib')
import requests
print(requests.x, requests.__file__)""",
}

# Of GENERAL, what could notice libraries that were loaded ahead.
MAY_SEE_LIBRARIES = """sys path modules importer_cache globals builtins site
environment main_module generators_at_exit descriptors limits status tree
encodings sigpipe atexit del_at_exit traceback_in_module error_importing
recursion_limit stack stack_at_import linecache warning warning_filters signals
gc threads logging logging_format logging_age random_seeded decimal contextvars
socket_default locale_set mimetypes namespace_package shadow shadow_later
path_insert submodules_unbound find_spec reload import_again meta_path
module_specs import_in_threads fork subprocess exec mp_fork mp_spawn
mp_forkserver process_pool thread_pool interpreters asyncio pickle_main
dataclass_hints ctypes_callback open_before_ctypes weakref_finalize http_server
ssl memory unittest doctest argv_more proc_environ import_error empty
module_attributes exit_code exit_unflushed exit_destructor
exit_own_end exit_behind_a_filter""".split()
