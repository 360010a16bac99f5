#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs as root in the guest of tests/vm/run. A line for each check, and at last
`VERDICT N passed, N failed`; an error of this program itself ends without it.
"""

import glob
import os
import pwd
import re
import signal
import subprocess
import sys
import threading
import time
import traceback

from client import Client

PROGRAM = "/usr/local/lib/isobox-vm/cgroup_live"
RUNNER = "isobox-runner.service"
UNITS = (RUNNER, "isobox-fcgi.socket", "isobox-vm-front.service")
LANGUAGE = "python-slim"
CG = "/sys/fs/cgroup"
client = Client(("127.0.0.1", 8090), timeout=120)
impatient = Client(("127.0.0.1", 8090), timeout=10)
reason = "not asked"

HOG = "b = b'x' * (%d << 20)\nprint('survived')"
FORKS = """
import errno, os, time
n = 0
try:
    while n < 1000:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        n += 1
except OSError as e:
    print(n, errno.errorcode[e.errno])
"""


def command(*argv, check=True):
    done = subprocess.run(argv, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if check and done.returncode:
        raise AssertionError("%s: exit status %d\n%s" % (
            " ".join(argv), done.returncode, done.stdout))
    return done.stdout


def show(unit, what):
    return command("systemctl", "show", "-P", what, unit).strip()


def wait_for(what, check, seconds=90):
    until = time.monotonic() + seconds
    while not check():
        if time.monotonic() > until:
            raise AssertionError("after %d s still no %s; /readyz: %s" % (
                seconds, what, reason))
        time.sleep(0.2)


def logs():
    return command("journalctl", "-b", "-o", "cat", "-n", "40",
                   "--unit=isobox-*", check=False)


def read(*parts):
    with open(os.path.join(*parts)) as f:
        return f.read()


def equal(got, want):
    if got != want:
        raise AssertionError("%r is not %r" % (got, want))


def is_in(part, text):
    if part not in text:
        raise AssertionError("%r is not in %r" % (part, text))


def group():
    return CG + show(RUNNER, "ControlGroup")


def leaves():
    return glob.glob(group() + "/run-*")


def members(path):
    return {int(p) for file in glob.glob(path + "/**/cgroup.procs",
                                         recursive=True)
            for p in read(file).split()}


def of_user(name):
    uid = pwd.getpwnam(name).pw_uid
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat("/proc/" + pid).st_uid == uid:
                found.append(read("/proc", pid, "cmdline").replace("\0", " "))
        except OSError:
            continue
    return found


def ready():
    global reason
    try:
        r = impatient.get("/readyz")
    except OSError as e:
        reason = str(e)
        return False
    reason = r.body.decode()
    return r.status == 200


# ---- the cgroup layer, under units of its own ------------------------------

def live(arguments, *properties):
    argv = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect"]
    for p in ("User=isobox", "Delegate=yes", "RuntimeMaxSec=100") + properties:
        argv += ["-p", p]
    out = ""
    with subprocess.Popen([*argv, PROGRAM, *arguments], text=True,
                          stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            out += line
            if not re.match(r"\[ +(RUN|OK) +\]", line):
                print("    " + line, end="", flush=True)
    equal(process.returncode, 0)
    is_in("[  PASSED  ]", out)


def only_v2():
    kinds = {line.split(" - ")[1].split(" ")[0]
             for line in read("/proc/self/mountinfo").splitlines()}
    equal(kinds & {"cgroup", "cgroup2"}, {"cgroup2"})


def cgroups_capped():
    live(["512"], "MemoryMax=512M", "MemorySwapMax=0")


def cgroups_without_a_cap():
    live(["none", "*cap*"])


# ---- a network that leads nowhere, for egress -------------------------------

REFUSED = """
import socket
for a in ("169.254.169.254", "84.200.10.10", "10.0.0.1"):
    s = socket.socket()
    s.settimeout(10)
    try:
        s.connect((a, 8090))
        print("open", a)
    except OSError as e:
        print(type(e).__name__)
"""


def pretend_network():
    """The guest has no network card: a pair of links, and a route into it."""
    command("modprobe", "tun")
    command("ip", "link", "add", "eth9", "type", "veth", "peer", "name",
            "eth10")
    for link in ("eth9", "eth10"):
        command("ip", "link", "set", link, "up")
    command("ip", "addr", "add", "84.200.10.10/24", "dev", "eth9")
    command("ip", "route", "add", "default", "via", "84.200.10.1")


def egress():
    """Under the unit's hardening, and with a kernel before 6.11."""
    print("    " + os.uname().release)
    run = run_code(REFUSED)
    equal((run["network"], run["stdout"]),
          (True, "ConnectionRefusedError\n" * 3))


# ---- the service, as examples/systemd starts it ----------------------------

def units_start():
    command("systemctl", "start", *UNITS)
    for unit in UNITS:
        wait_for(unit, lambda u=unit: show(u, "ActiveState") == "active", 20)


def host_check():
    out = command("isobox-check", "--user", "isobox")
    print("\n".join("    " + line for line in out.splitlines()))


def becomes_ready():
    wait_for("ready service", ready)


def runner_is_confined():
    pid = show(RUNNER, "MainPID")
    equal(read("/proc", pid, "cgroup"),
          "0::%s/main\n" % show(RUNNER, "ControlGroup"))
    equal(os.stat("/proc/" + pid).st_uid, pwd.getpwnam("isobox").pw_uid)
    status = dict(line.split(":\t", 1)
                  for line in read("/proc", pid, "status").splitlines())
    for what in ("CapEff", "CapPrm", "CapBnd", "CapAmb"):
        equal((what, int(status[what], 16)), (what, 0))
    equal(status["NoNewPrivs"], "1")
    if read(group(), "memory.max") == "max\n":
        raise AssertionError("the unit has no MemoryMax")


def run_code(code, memory_mib=256, pids=128, **members):
    """A run that time does not end: on a busy machine the emulated one needs
    seconds to start Python."""
    limits = {"memoryBytes": memory_mib << 20, "pids": pids, "cpus": 2.0,
              "wallTimeMs": 20000}
    for _ in range(3):
        run = client.run(LANGUAGE, code, limits=limits, **members)
        print("    %d ms, exit code %d" % (run["durationMs"],
                                           run["exitCode"]))
        if not run["timedOut"]:
            break
    return run


def hello():
    run = run_code("import sys; print('hi', sys.stdin.read())", stdin="there")
    equal((run["stdout"], run["stderr"], run["exitCode"]),
          ("hi there\n", "", 0))


def memory_bomb():
    run = run_code(HOG % 200, 32)
    equal((run["oomKilled"], run["timedOut"], run["exitCode"], run["stdout"]),
          (True, False, 137, ""))


def memory_enough():
    run = run_code(HOG % 64, 128)
    equal((run["oomKilled"], run["exitCode"], run["stdout"]),
          (False, 0, "survived\n"))


def endless_loop():
    run = client.run(LANGUAGE, "while True: pass",
                     limits={"wallTimeMs": 2000})
    equal((run["timedOut"], run["oomKilled"], run["exitCode"]),
          (True, False, 137))


def fork_bomb():
    run = run_code(FORKS, pids=8)
    count, error = run["stdout"].split()
    equal(error, "EAGAIN")
    if not 0 < int(count) < 8:
        raise AssertionError("%s forks under pids 8" % count)


def nothing_left():
    wait_for("end of the leaves %r" % leaves(), lambda: not leaves(), 20)


def killed_runner():
    """kill -9 with two runs at work: the next life sweeps and serves."""
    def job():
        try:
            client.execute(LANGUAGE, "import time; time.sleep(20)")
        except Exception:  # it loses its service under it
            pass
    threads = [threading.Thread(target=job) for _ in range(2)]
    for t in threads:
        t.start()
    wait_for("two leaves", lambda: len(leaves()) == 2)
    wait_for("processes in them",
             lambda: all(len(members(leaf)) > 3 for leaf in leaves()))
    old, pids = leaves(), members(group())
    restarts = int(show(RUNNER, "NRestarts"))
    os.kill(int(show(RUNNER, "MainPID")), signal.SIGKILL)
    for t in threads:
        t.join()
    wait_for("restart", lambda: int(show(RUNNER, "NRestarts")) > restarts)
    wait_for("ready service after it", ready)
    left = [leaf for leaf in old if os.path.exists(leaf)]
    equal((left, pids & members(group())), ([], set()))
    hello()


def stopped_runner():
    top = group()
    command("systemctl", "stop", RUNNER)
    equal((os.path.exists(top), of_user("isobox")), (False, []))
    r = client.get("/readyz")
    equal(r.status, 503)


# ---- the same without the cap ----------------------------------------------

def host_check_fails():
    out = command("isobox-check", "--user", "isobox", check=False)
    if not re.search(r"^FAIL +memory cap", out, re.M):
        raise AssertionError(out)


def is_not_ready():
    r = None

    def answered():
        nonlocal r
        r = client.get("/readyz")
        return r.status == 503 and b"memory cap" in r.body
    wait_for("503 with the reason: %r" % r, answered)
    print("    " + r.body.decode().strip())
    equal(r.json()["ready"], False)
    is_in("MemoryMax=", r.json()["reason"])


def runs_nothing():
    before = set(leaves())  # the runner's own probe, which runs nobody's code
    r = client.execute(LANGUAGE, "print(1)")
    equal((r.status, "run" in r.json(), set(leaves()) - before),
          (503, False, set()))
    is_in("memory cap", r.json()["detail"])
    print("    " + r.body.decode().strip())


def capped_again():
    """The way out that the reason names."""
    command("systemctl", "set-property", "--runtime", RUNNER,
            "MemoryMax=2G", "MemorySwapMax=0")
    command("systemctl", "restart", RUNNER)
    wait_for("ready service", ready)
    hello()


CHECKS = {
    "capped": (only_v2, cgroups_capped, cgroups_without_a_cap,
               pretend_network, units_start, becomes_ready, host_check,
               runner_is_confined, hello, egress,
               memory_bomb, memory_enough, endless_loop, fork_bomb,
               nothing_left, killed_runner, nothing_left, stopped_runner),
    "uncapped": (units_start, is_not_ready, runs_nothing, host_check_fails,
                 capped_again),
}


# What all that follows needs.
ESSENTIAL = (units_start, becomes_ready)


def main():
    name = re.search(r"\bisobox\.vm=(\w+)", read("/proc/cmdline"))[1]
    passed = failed = 0
    for check in CHECKS[name]:
        begun = time.monotonic()
        try:
            check()
        except Exception:  # any of them is a failure of that check
            failed += 1
            print("FAILED  %s" % check.__name__)
            traceback.print_exc(file=sys.stdout)
            if check in ESSENTIAL:
                break
        else:
            passed += 1
            print("ok  %s (%.1f s)" % (check.__name__,
                                       time.monotonic() - begun))
        sys.stdout.flush()
    if failed:
        print(logs())
    print("VERDICT %d passed, %d failed" % (passed, failed), flush=True)


main()
