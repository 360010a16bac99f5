# SPDX-License-Identifier: Apache-2.0
"""kill -9 of our own processes at random moments during load. Afterwards, with
what died started again as an init system would, everything works and nothing of
the old life is left.

ISOBOX_KILL_SEED repeats a sequence (the seed is printed), ISOBOX_KILLS sets how
many kills there are of each kind in turn (50 in all by default)."""

import fcntl
import os
import random
import signal
import threading
import time
import unittest

import cgroups
from cgroups import children
from client import Broken
from harness import Service, command_line, end, signal_each, wait_for

KILLS = int(os.environ.get("ISOBOX_KILLS", "50"))
SEED = int(os.environ.get("ISOBOX_KILL_SEED", time.time_ns() % 1000000))
VICTIMS = ("fcgi", "runner", "supervisor", "sentry")

# Programs of the load: short, long, talkative, with children.
LOAD = (
    "print(1)",
    "import time\nfor i in range(20): print(i, flush=True); time.sleep(0.05)",
    "import os, time\nfor i in range(5): os.fork()\ntime.sleep(1)",
    "b = b'x' * (40 << 20)\nimport time; time.sleep(0.5)",
    "while True: print('x' * 1000)",
)


def setUpModule():
    global service
    service = Service("caddy").start()
    print("seed %d" % SEED, flush=True)


def tearDownModule():
    service.stop()


class Load:
    """Clients that go on whatever happens to the service. What they are
    told must still be an answer: a whole one, or none."""

    def __init__(self, clients):
        self.stopping = threading.Event()
        self.wrong = []
        self.statuses = {}
        self.threads = [threading.Thread(target=self.work, args=(i,))
                        for i in range(clients)]
        for t in self.threads:
            t.start()

    def work(self, number):
        client = service.client(timeout=40)
        rng = random.Random(number)
        while not self.stopping.is_set():
            code = rng.choice(LOAD)
            try:
                if rng.random() < 0.5:
                    r = client.execute("python-slim", code,
                                       limits={"wallTimeMs": 3000})
                    self.count(r.status)
                    self.judge(code, r)
                else:
                    client.stream("python-slim", code,
                                  limits={"wallTimeMs": 3000})
            except (OSError, Broken, AssertionError):
                # Nobody there, or cut off in the middle of an answer.
                self.count("broken")
                time.sleep(0.05)

    def count(self, what):
        self.statuses[what] = self.statuses.get(what, 0) + 1

    def judge(self, code, r):
        """No made-up answers: a run that was cut short is no result."""
        if r.status == 200:
            try:
                run = r.json()["run"]
            except ValueError:
                self.wrong.append("half an answer: %r" % r)
                return
            if code == LOAD[0] and (run["stdout"], run["exitCode"]) != (
                    "1\n", 0):
                self.wrong.append("made up: %r" % run)
        elif r.status not in (429, 500, 502, 503, 504):
            self.wrong.append("status %d: %r" % (r.status, r))

    def stop(self):
        self.stopping.set()
        for t in self.threads:
            t.join(60)
            if t.is_alive():
                self.wrong.append("a client hangs")


def victims(kind):
    """Pids of processes of that kind, now."""
    if kind in ("fcgi", "runner"):
        return [getattr(service, kind).pid]
    found = []
    for pid in service.subtree.pids():
        line = command_line(pid)
        if kind == "sentry":
            if "runsc-sandbox" in line or " boot " in line:
                found.append(pid)
        elif pid != service.runner.pid and "runsc" not in line and \
                line.strip() and "isobox" in line:
            found.append(pid)
    return found


class TestKill(unittest.TestCase):
    def test_kill_at_random_moments(self):
        rng = random.Random(SEED)
        load = Load(6)
        killed = dict.fromkeys(VICTIMS, 0)
        try:
            for number in range(KILLS):
                kind = VICTIMS[number % len(VICTIMS)]
                time.sleep(rng.uniform(0.05, 0.6))
                pids = wait_for("a %s to kill" % kind,
                                lambda: victims(kind), 30)
                try:
                    os.kill(rng.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue  # it had just ended
                killed[kind] += 1
                if kind in ("fcgi", "runner"):
                    getattr(service, kind).wait(10)
                    getattr(service, "start_" + kind)()
                    self.assert_serves("kill %d: %s" % (number + 1, kind))
        finally:
            load.stop()
        print("killed %r, answers %r" % (killed, load.statuses), flush=True)
        self.assertEqual(load.wrong, [])
        self.assertGreaterEqual(sum(killed.values()), KILLS * 9 // 10)
        self.assert_serves("the end")
        # The runner and fcgi are other processes than at the start.
        self.assert_nothing_old()

    def assert_serves(self, when):
        """A run gets through within the time that a slot may take."""
        client = service.client(timeout=30)

        def answered():
            try:
                r = client.execute("python-slim", "print('up')")
            except (OSError, Broken):
                return False
            return r.status == 200 and r.json()["run"]["stdout"] == "up\n"
        try:
            wait_for("a run that succeeds", answered, 60, 0.1)
        except AssertionError as e:
            self.fail("%s: %s\n%s" % (when, e, service.logs()))

    def assert_nothing_old(self):
        mine = {service.runner.pid, service.fcgi.pid}
        service.baseline = {
            line for line in service.baseline
            if not line.startswith("process ")}
        service.baseline |= {"process %d %s" % (p, command_line(p))
                             for p in mine}
        service.assert_clean(30)

    def test_all_killed_at_once(self):
        """Nobody is left to clean up but the next life."""
        load = Load(6)
        time.sleep(1.5)
        try:
            for process in (service.fcgi, service.runner):
                process.kill()
                process.wait()
            self.assertTrue(wait_for("sandboxes to die with their runner",
                                     lambda: not service.subtree.pids(), 15))
        finally:
            load.stop()
        service.start_runner()
        service.start_fcgi()
        self.assert_serves("after both were killed")
        self.assert_nothing_old()

    def test_stopped_supervisor_of_a_killed_runner(self):
        """It cannot see that its runner is gone: the next one ends it."""
        def run():
            try:
                service.client().execute(
                    "python-slim", "import time\ntime.sleep(8)")
            except (OSError, Broken):
                pass
        t = threading.Thread(target=run)
        t.start()
        stopped = wait_for("a supervisor", lambda: victims("supervisor"), 10)
        signal_each(stopped, signal.SIGSTOP)
        service.runner.kill()
        service.runner.wait()
        service.start_runner()
        wait_for("its end", lambda: not any(map(cgroups.alive, stopped)), 15)
        t.join(20)
        self.assert_serves("after the start")
        self.assert_nothing_old()

    def test_locks_of_a_runner_that_was_killed(self):
        """A child that it had just forked has its locks for a moment longer:
        the next runner waits for that."""
        service.runner.kill()
        service.runner.wait()
        places = [service.settings["runner_socket"] + ".lock",
                  service.settings["workspaces_dir"], *service.subtree.tops()]
        held = [os.open(place, os.O_RDONLY) for place in places]
        try:
            for fd in held:
                fcntl.flock(fd, fcntl.LOCK_EX)
            service.start_runner()
            time.sleep(0.5)
            self.assertIsNone(service.runner.poll())
        finally:
            for fd in held:
                os.close(fd)
        self.assert_serves("after the locks were free")
        r = service.client().post("/v1/sessions", {"runtime": "python-slim"})
        self.assertEqual(r.status, 201, r)
        session = r.json()
        self.assertEqual(service.client().request(
            "DELETE", "/v1/sessions/" + session["id"],
            headers=[("X-Session-Token", session["token"])]).status, 204)
        self.assert_nothing_old()

    def test_sentry_killed_is_no_result(self):
        """The host's failure is not dressed up as the program's."""
        answer = {}

        def run():
            answer["r"] = service.client().execute(
                "python-slim", "import time\ntime.sleep(8)")
        t = threading.Thread(target=run)
        t.start()
        wait_for("a sentry", lambda: victims("sentry"), 10)
        time.sleep(1)

        # Again: one that was not ready has another sandbox after the first kill.
        def ended():
            signal_each(victims("sentry"), signal.SIGKILL)
            return not t.is_alive()
        wait_for("an answer", ended, 20, 0.5)
        r = answer["r"]
        self.assertEqual((r.status, r.json()["error"]),
                         (503, "sandbox_failed"), r)
        self.assertTrue(r.header("x-request-id"))
        self.assert_nothing_old()

    def test_janitor_killed(self):
        """Who cleans up after a supervisor may be killed, too."""
        other = Service("caddy", warm=False)
        try:
            other.start()
            self.kill_janitor(other)
        finally:
            other.stop()

    def kill_janitor(self, other):
        run = threading.Thread(target=other.client().execute, args=(
            "python-slim", "import time\ntime.sleep(15)"))
        run.start()
        wait_for("a sandbox", lambda: len(other.subtree.pids()) > 4, 10)
        supervisor, = children(other.runner.pid)
        # What is somebody else's in a leaf keeps the janitor there.
        extra = [os.path.join(leaf, "x") for leaf in other.subtree.leaves()]
        for path in extra:
            os.mkdir(path)
        try:
            os.kill(supervisor, signal.SIGKILL)
            run.join()
            wait_for("a janitor, and nobody else", lambda: len(
                children(other.runner.pid) - {supervisor}) == 1)
            janitor, = children(other.runner.pid)
            # How long what was killed had booted and run is not known.
            for phase in ("boot", "run"):
                self.assertEqual(other.client().metrics()[
                    'isobox_phase_seconds_count{phase="%s"}' % phase], 0)
            os.kill(janitor, signal.SIGKILL)
            wait_for("a free slot", lambda: other.client().metrics()[
                "isobox_runner_running"] == 0)
        finally:
            for path in extra:
                os.rmdir(path)
        wait_for("the end of the leaf", lambda: not other.subtree.leaves())

    def test_terminate_drains(self):
        """SIGTERM: what runs is finished, then both end with 0."""
        answer = {}

        def run():
            answer["run"] = service.client().run(
                "python-slim", "import time\ntime.sleep(2)\nprint('done')")
        t = threading.Thread(target=run)
        t.start()
        wait_for("the run", lambda: service.client().metrics()[
            "isobox_runner_running"] == 1, 10)
        self.assertEqual(end(service.fcgi), 0)
        t.join(20)
        self.assertEqual(answer["run"]["stdout"], "done\n")
        self.assertEqual(end(service.runner), 0)
        self.assertEqual(service.subtree.leaves(), [])
        service.start_runner()
        service.start_fcgi()
        self.assert_serves("after SIGTERM")
        self.assert_nothing_old()

    def test_hangup_goes_on(self):
        for process in (service.fcgi, service.runner):
            process.send_signal(signal.SIGHUP)
        self.assert_serves("after SIGHUP")
        for process in (service.fcgi, service.runner):
            self.assertIsNone(process.poll())
