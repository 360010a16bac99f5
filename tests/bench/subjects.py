# SPDX-License-Identifier: Apache-2.0
"""What `make bench` measures: the service through its front servers, by the
client load.c, and what is beside it."""

import collections
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import time

import front
import harness
from harness import BUILD, REPO, RUNNER_USER, Service

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(BUILD, "bench")
LANGUAGE = "python-slim"
FRONTS = ("caddy", "lighttpd", "nginx", "apache")
TICKS = os.sysconf("SC_CLK_TCK")

# Times in milliseconds; warm: None where the answer does not say.
Answer = collections.namedtuple(
    "Answer", "begun took status right warm queue boot run")


def compile_programs():
    os.makedirs(FOLDER, exist_ok=True)
    b = os.environ.get("B", "build")
    subprocess.run(["make", "-s", b + "/lib.a", b + "/runner/bundle.o",
                    b + "/runner/runsc.o"], cwd=REPO, check=True)
    cc = ["cc", "-O2", "-std=c17", "-D_GNU_SOURCE", "-pthread", "-I", REPO]
    for name, libraries in (
            ("trivial", ["-lfcgi"]), ("load", []),
            ("bundle", [BUILD + "/runner/bundle.o", BUILD + "/runner/runsc.o",
                        BUILD + "/lib.a"])):
        subprocess.run([*cc, "-o", os.path.join(FOLDER, name),
                        os.path.join(HERE, name + ".c"), *libraries],
                       check=True)


def load(port, target, clients=1, count=None, seconds=None, body=None,
         expected="", header=None):
    """The Answers to what load.c asks."""
    argv = [os.path.join(FOLDER, "load"), "-c", str(clients), "-x", expected]
    if count:
        argv += ["-n", str(count)]
    if seconds:
        argv += ["-t", str(seconds)]
    if header:
        argv += ["-H", header]
    if body is not None:
        name = os.path.join(FOLDER, "body.json")
        with open(name, "w") as f:
            json.dump(body, f)
        argv += ["-b", name]
    out = subprocess.run([*argv, str(port), target], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    answers = []
    for line in out.splitlines():
        begun, took, status, right, warm, *phases = map(int, line.split())
        answers.append(Answer(
            begun / 1000, took / 1000, status, right == 1,
            None if warm < 0 else warm == 1, *(p / 1000 for p in phases)))
    return answers


def request(language, code):
    return {"language": language, "code": code, "network": False}


PRINT = request(LANGUAGE, "print(1)")
PRINTED = '"stdout":"1\\n"'


def must(answers, what):
    """These answers, which all have to be right."""
    for a in answers:
        if not a.right:
            sys.exit("bench: %s: %r" % (what, a))
    return answers


class Site:
    """A service behind all the front servers at once. only: the language
    that it has, if not all."""

    def __init__(self, warm, only=None, **settings):
        self.warm = warm
        self.service = Service("caddy", warm=warm, **settings)
        registry = self.service.path("registry")
        for name in os.listdir(registry):
            if only and name.endswith(".yaml") and name[:-5] != only:
                os.unlink(os.path.join(registry, name))
        self.group = None
        self.ports = {"caddy": self.service.port}

    def start(self):
        s = self.service.start()
        if self._subtree_cpu_ms() is None:
            self.group = CpuGroup(s.subtree.name + "-cpu")
            self.group.add(s.runner.pid)
        for kind in FRONTS:
            if kind not in self.ports and \
                    shutil.which(front.FRONTS[kind][1][0]):
                self._add(kind)
        s.baseline = s.snapshot()
        return self

    def _add(self, kind):
        s = self.service
        port = harness.free_port()
        s.own_directory(kind, harness.FRONT_USER)
        s.extra.append(s.spawn_front(kind, port, s.fcgi_socket, kind))
        client = harness.Client(("127.0.0.1", port))
        harness.wait_for(kind, lambda: harness.answers(client), 15, 0.05)
        self.ports[kind] = port

    def stop(self):
        self.service.stop()
        if self.group:
            self.group.remove()

    def _subtree_cpu_ms(self):
        s = self.service.subtree
        for group in s.groups():
            if os.path.basename(group).removesuffix(".scope") == s.name:
                ms = read_cpu_stat(group)
                if ms is not None:
                    return ms
        return self.group.ms() if self.group else None

    def execute(self, front_kind="caddy", body=PRINT, expected=PRINTED, **kw):
        return load(self.ports[front_kind], "/execute", body=body,
                    expected=expected, **kw)

    def healthz(self, front_kind="caddy", **kw):
        return load(self.ports[front_kind], "/healthz", **kw)

    def metrics(self):
        """{name with labels: value}"""
        text = self.service.client().get("/metrics").body.decode()
        return {name: float(value) for name, value in
                re.findall(r"^([^#\s]\S*) (\S+)$", text, re.M)}

    def quiet(self, timeout=30.0):
        """Waits until nothing runs, is cleaned up or is booted ahead; how
        many sandboxes wait then."""
        until = time.monotonic() + timeout
        seen = []
        while time.monotonic() < until:
            m = self.metrics()
            waiting = m.get('isobox_pool_sandboxes{state="waiting"}', 0)
            busy = m.get('isobox_pool_sandboxes{state="booting"}', 0)
            leaves = len(self.service.subtree.leaves())
            seen = (seen + [(waiting, busy, leaves)])[-3:]
            if busy == 0 and len(seen) == 3 and len(set(seen)) == 1:
                return int(waiting)
            time.sleep(0.03)
        sys.exit("bench: the service does not come to rest: %r" % (seen,))

    def prime(self, body, expected, clients=1, tries=8):
        """Runs until sandboxes wait for such runs. Whether they do."""
        for _ in range(tries):
            answers = self.execute(body=body, expected=expected,
                                   clients=clients)
            must(answers, "to prime the pool")
            self.quiet()
            if all(a.warm for a in answers):
                return True
        return False

    def cpu_ms(self):
        """CPU time of all that is the service's so far: (sandboxes and
        runner, isobox.fcgi, front servers)."""
        s = self.service
        fronts = {s.front.pid, *(p.pid for p in s.extra)}
        for pid in list(fronts):
            fronts |= harness.descendants(pid)
        return (self._subtree_cpu_ms() or 0, process_cpu_ms(s.fcgi.pid),
                sum(process_cpu_ms(pid) for pid in fronts))


def process_cpu_ms(pid):
    with open("/proc/%d/stat" % pid) as f:
        words = f.read().rsplit(")", 1)[1].split()
    return sum(map(int, words[11:15])) * 1000 / TICKS


class CpuGroup:
    """A cgroup in which CPU time is counted and nothing else happens. It has
    to be in the tree of version 2, which a host of version 1 has beside its
    own; where there is none, nothing is counted."""

    def __init__(self, name):
        self.path = None
        with open("/proc/mounts") as f:
            for line in f:
                _, where, kind = line.split()[:3]
                if kind == "cgroup2":
                    self.path = os.path.join(where, name)
        if self.path:
            os.makedirs(self.path, exist_ok=True)

    def add(self, pid):
        if self.path:
            with open(self.path + "/cgroup.procs", "w") as f:
                f.write(str(pid))

    def ms(self):
        """So far; None when nothing is counted."""
        return self.path and read_cpu_stat(self.path)

    def remove(self):
        if self.path:
            harness.wait_for("empty group", self._try_remove)

    def _try_remove(self):
        try:
            os.rmdir(self.path)
        except OSError:
            return False
        return True


def read_cpu_stat(group):
    """CPU milliseconds of a group of version 2. (Version 1 has another file
    of that name.)"""
    try:
        with open(group + "/cpu.stat") as f:
            found = re.search(r"^usage_usec (\d+)", f.read(), re.M)
    except OSError:
        return None
    return found and int(found[1]) / 1000


class BareRunsc:
    """`runsc run` with the arguments and the config.json of isobox-runner,
    as the same user in a user namespace of its own, but for the first process:
    there is no isobox-init."""

    def __init__(self, service, name, image, command, expected, env=()):
        self.expected = expected
        out = subprocess.run([os.path.join(FOLDER, "bundle")], check=True,
                             capture_output=True, text=True).stdout
        arguments, config = out.split("\n\n", 1)
        config = json.loads(config)
        config["root"]["path"] = os.path.join(
            service.settings["images_dir"], image)
        config["process"]["args"] = command
        config["process"]["env"] += env
        for mount in config["mounts"]:
            # What the runner does for compiled languages.
            if mount["destination"] in ("/tmp", "/box"):
                mount["options"].remove("noexec")
        folder = service.path(name)
        for part in (name, name + "/bundle", name + "/state"):
            service.own_directory(part, RUNNER_USER)
        with open(folder + "/bundle/config.json", "w") as f:
            json.dump(config, f)
        changes = {"/runsc": service.settings["runsc"],
                   "--root=/state": "--root=%s/state" % folder,
                   "--bundle=/bundle": "--bundle=%s/bundle" % folder}
        self.argv = ["setpriv", "--reuid", RUNNER_USER, "--regid",
                     RUNNER_USER, "--init-groups", "--", "unshare",
                     "--map-root-user", "--mount", "--"]
        self.argv += [changes.get(a, a) for a in arguments.split("\n")]

    def run(self, group=None):
        """Milliseconds. group: a CpuGroup that it is counted in."""
        begun = time.monotonic()
        done = subprocess.run(
            self.argv, stdin=subprocess.DEVNULL, capture_output=True, cwd="/",
            preexec_fn=group and (lambda: group.add(os.getpid())))
        took = time.monotonic() - begun
        if self.expected not in done.stdout:
            sys.exit("bench: bare runsc: %r" % done)
        return took * 1000


def image_of(language):
    with open(os.path.join(REPO, "registry", language + ".yaml")) as f:
        return re.search(r"^image:\s*(\S+)", f.read(), re.M)[1]


def bare_python(service):
    return BareRunsc(service, "bare", image_of(LANGUAGE),
                     ["python3", "-c", "print(1)"], b"1\n")


def native_python():
    """Milliseconds of python3 on this machine, as the runner's user."""
    who = pwd.getpwnam(RUNNER_USER)
    begun = time.monotonic()
    out = subprocess.run(["python3", "-c", "print(1)"], cwd="/", check=True,
                         stdout=subprocess.PIPE, user=who.pw_uid,
                         group=who.pw_gid, env={"PATH": "/usr/bin:/bin"},
                         stdin=subprocess.DEVNULL).stdout
    took = time.monotonic() - begun
    if out != b"1\n":
        sys.exit("bench: native python3: %r" % out)
    return took * 1000
