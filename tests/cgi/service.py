# SPDX-License-Identifier: Apache-2.0
"""isobox.fcgi for tests, with a fake runner behind it: as a FastCGI service on
its own socket, and as a CGI program. Needs nothing but a built isobox.fcgi."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import fcgi_client
from fake_kernels import Kernels
from fake_runner import FakeRunner
from fake_workspaces import Workspaces

REPO = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
PROGRAM = os.path.join(REPO, os.environ.get("B", "build"), "isobox.fcgi")
DIGEST = "a" * 64

# name: (file, image is there)
REGISTRY = {
    "python": ("name: python\nversion: 3.14-agent\naliases: [py, py3]\n"
               "default: true\nimage: py\nsource_file: main.py\n"
               "run: [python3, \"{source}\"]\n"
               "limits: {memory_bytes: 402653184, cpus: 1.5, "
               "wall_time_ms: 15000}\n", "py"),
    "python-old": ("name: python\nversion: 3.11\nimage: py\n"
                   "source_file: main.py\nrun: [python3, \"{source}\"]\n",
                   "py"),
    "live": ("name: live\nversion: 2\naliases: [lv]\nimage: py\n"
             "source_file: main.py\nrun: [python3, \"{source}\"]\n"
             "kernel: true\nlimits: {memory_bytes: 402653184, cpus: 1.5, "
             "wall_time_ms: 15000}\n", "py"),
    "rust": ("name: rust\nversion: 1-alpine\naliases: [rs]\nimage: rs\n"
             "source_file: main.rs\ncompile: [rustc, \"{source}\"]\n"
             "run: [/box/main]\n", "rs"),
    "lost": ("name: lost\nversion: 1\nimage: gone\nsource_file: main.x\n"
             "run: [x, \"{source}\"]\n", None),
}


class Service:
    """settings: keys of isobox.yaml over the defaults here. env: of the
    program, over an empty one."""

    def __init__(self, env=None, **settings):
        self.base = tempfile.mkdtemp(prefix="isobox-cgi-")
        os.chmod(self.base, 0o755)
        for name in ("registry", "images", "state", "data"):
            os.mkdir(self.path(name))
        self.write_registry()
        self.workspaces = Workspaces(self.path("workspaces"))
        self.kernels = Kernels(self.workspaces)
        self.runner = FakeRunner(self.path("runner.sock"),
                                 self.workspaces.serve, self.kernels.serve)
        self.env = dict(env or {})
        self.process = None
        self.settings = {
            "rate_per_min": 0,
            "registry_dir": self.path("registry"),
            "images_dir": self.path("images"),
            "state_dir": self.path("state"),
            "data_dir": self.path("data"),
            "runner_socket": self.runner.path,
            "access_log": self.path("access.log"),
        }
        self.settings.update(settings)
        self.write_config()

    def path(self, name):
        return os.path.join(self.base, name)

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w") as f:
            f.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def write_registry(self):
        lock = ""
        for name, (content, image) in REGISTRY.items():
            self.write("registry/%s.yaml" % name, content)
            if image is not None and not os.path.exists(
                    self.path("images/" + image)):
                os.mkdir(self.path("images/" + image))
                self.write("images/%s.digest" % image, DIGEST + "\n")
                lock += "%s  %s\n" % (DIGEST, image)
        self.write("images/images.lock", lock)

    def write_config(self):
        self.config = self.write("isobox.yaml", "".join(
            "%s: %s\n" % (k, json.dumps(v))
            for k, v in self.settings.items()))

    @property
    def socket(self):
        return self.path("fcgi.sock")

    def argv(self, *more):
        return [PROGRAM, "--config", self.config, *more]

    def start(self, *more, stdin=subprocess.DEVNULL):
        with open(self.path("log"), "ab") as log:
            self.process = subprocess.Popen(
                self.argv(*(more or ("--listen", self.socket))), stdin=stdin,
                stdout=log, stderr=log, env=self.env)
        if stdin == subprocess.DEVNULL:
            self.wait_for(lambda: os.path.exists(self.socket), "a socket")
        return self

    def wait_for(self, check, what, timeout=20.0):
        until = time.monotonic() + timeout
        while not check():
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError("it ended with %d instead of %s\n%s" % (
                    self.process.returncode, what, self.log()))
            if time.monotonic() > until:
                raise AssertionError("no %s\n%s" % (what, self.log()))
            time.sleep(0.01)

    def log(self):
        try:
            with open(self.path("log"), errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def access_log(self):
        with open(self.path("access.log")) as f:
            return [json.loads(line) for line in f]

    def request(self, method, uri, body=None, headers=(), **kw):
        return fcgi_client.request(self.socket, method, uri, body, headers,
                                   **kw)

    def execute(self, request=None, headers=(), uri="/execute", **members):
        """POST /execute; request: raw body, else members make a JSON one."""
        if request is None:
            request = json.dumps(members, ensure_ascii=False)
        return self.request("POST", uri, request, headers)

    def fds(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self, timeout=40.0):
        """SIGTERM, and the exit status; None when it was not running. Also
        looks for what a sanitizer said."""
        status = None
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                status = self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                status = -9
        self.process = None
        return status

    def close(self):
        status = self.stop()
        log = self.log()
        self.runner.stop()
        shutil.rmtree(self.base)
        if status not in (None, 0) or "Sanitizer" in log or \
                "runtime error" in log or self.runner.errors:
            raise AssertionError("exit status %r, runner %r\n%s" % (
                status, self.runner.errors, log[-8000:]))

    # As a CGI program.

    def cgi(self, method="GET", uri="/healthz", body=None, headers=(),
            extra=(), env=None, argv=(), stdin=None):
        """extra as in fcgi_client.message(). stdin: bytes instead of body."""
        params = dict(fcgi_client.variables(method, uri, body, headers))
        params.update(extra)
        full = {"ISOBOX_CONFIG": self.config, **self.env, **(env or {})}
        full.update((k, str(v)) for k, v in params.items() if v is not None)
        data = fcgi_client.as_bytes(body or b"") if stdin is None else stdin
        done = subprocess.run([PROGRAM, *argv], input=data, env=full,
                              capture_output=True, timeout=60)
        response = fcgi_client.Response(done.stdout)
        response.returncode = done.returncode
        response.stderr = done.stderr.decode("utf-8", "replace")
        return response


class ServiceCase(unittest.TestCase):
    """A test with one running service for the class."""

    settings = {}
    env = {}

    @classmethod
    def setUpClass(cls):
        cls.service = Service(cls.env, **cls.settings)
        try:
            cls.service.start()
        except BaseException:
            cls.service.close()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.service.close()

    def setUp(self):
        self.runner = self.service.runner
        self.runner.reset()
        self.runner.calls.clear()

    def assert_error(self, response, status, body):
        self.assertIsNotNone(response, "closed without an answer")
        self.assertEqual((response.status, response.json()), (status, body))
        self.assertEqual(response.headers["content-type"], "application/json")
        self.assert_common(response)

    def assert_common(self, response):
        """What every answer carries."""
        self.assertTrue(response.whole)
        self.assertRegex(response.headers["x-request-id"],
                         r"\A[A-Za-z0-9_-]{22}\Z")
        self.assertEqual(response.headers["access-control-allow-origin"], "*")
        self.assertEqual(response.headers["cache-control"], "no-store")
