# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that wait: each is used once, nothing of them is left, whatever
happens to them no client notices, and a run in one has the limits of any other.
What a program sees in them is test_warm_semantics."""

import os
import re
import signal
import subprocess
import threading
import time
import unittest

import world
from again import again
from cgroups import children
from harness import Service, command_line, signal_each, wait_for

LANGUAGE = "python-slim"
MARK = ("import os\n"
        "seen = os.path.exists('/tmp/mark'), os.path.exists('/box/mark')\n"
        "open('/tmp/mark', 'w').close(); open('/box/mark', 'w').close()\n"
        "print(*seen)\n")


def only(service, *names):
    """Takes all other languages out of a service that is not yet started."""
    for name in os.listdir(service.path("registry")):
        if name.endswith(".yaml") and name[:-5] not in names:
            os.unlink(service.path("registry", name))


def phases(answer):
    """Server-Timing as {name: (milliseconds, description)}."""
    found = {}
    for part in answer.header("server-timing").split(", "):
        name, *members = part.split(";")
        values = dict(m.split("=") for m in members)
        found[name] = float(values["dur"]), values.get("desc", "").strip('"')
    return found


def is_warm(answer):
    return phases(answer)["boot"][1] == "warm"


class Warm(unittest.TestCase):
    settings = {"warm_max": 3}
    languages = (LANGUAGE,)

    @classmethod
    def setUpClass(cls):
        cls.service = Service("caddy", **cls.settings)
        cls.addClassCleanup(cls.service.stop)
        only(cls.service, *cls.languages)
        cls.service.start()
        cls.client = cls.service.client()

    def execute(self, code, status=200, language=LANGUAGE, **members):
        r = self.client.execute(language, code, **members)
        self.assertEqual(r.status, status, r)
        return r

    def pool(self, key):
        return self.client.metrics()["isobox_pool_" + key]

    def fill(self, number=3):
        """Seats follow requests; until they do, and all are booted."""
        for _ in range(number + 1):
            self.execute("pass")
        self.service.wait_pool(number)

    def supervisors(self):
        return children(self.service.runner.pid)

    def sentries(self):
        return [p for p in self.service.subtree.pids()
                if "runsc-sandbox" in command_line(p)
                or " boot " in command_line(p)]


class TestPool(Warm):
    def test_hit_and_miss(self):
        self.fill()
        hits, misses = self.pool("hits_total"), self.pool("misses_total")
        r = self.execute("print('x')")
        self.assertEqual(r.json()["run"]["stdout"], "x\n")
        self.assertTrue(is_warm(r))
        self.assertEqual(self.pool("hits_total"), hits + 1)
        # One more than wait or boot: it boots its own.
        streams = []
        for _ in range(4):
            streams.append(self.client.open_stream(
                LANGUAGE, "import time; time.sleep(5)"))
        wait_for("a miss", lambda: self.pool("misses_total") > misses
                 or self.pool("adopted_total"))
        for c in streams:
            c.close()

    def test_used_once(self):
        """Twenty in a row, most of them warm: none finds what another left,
        and each has its own randomness."""
        self.fill()
        hits = self.pool("hits_total")
        seen = set()
        for i in range(20):
            if i % 4 == 0:
                self.service.wait_pool(1)
            r = self.execute(MARK + "import uuid, random\n"
                             "print(uuid.uuid4(), random.random(), "
                             "hash('x'), os.urandom(8).hex(), id(object()))")
            first, second = r.json()["run"]["stdout"].splitlines()
            self.assertEqual(first, "False False")
            seen.update(second.split()[:4])
        self.assertEqual(len(seen), 80)
        self.assertGreaterEqual(self.pool("hits_total"), hits + 5)

    def test_stream_and_result(self):
        self.fill()
        events = self.client.stream(LANGUAGE, "print('a'); exit(3)")
        self.assertEqual([e.name for e in events], ["stdout", "done"])
        self.assertEqual(events[-1].data["run"]["exitCode"], 3)
        self.assertEqual(events[0].data, {"chunk": "a\n"})

    def time_of_the_head(self):
        self.fill()
        with self.client.open_stream(
                LANGUAGE, "import time; time.sleep(5)") as c:
            begun = time.monotonic()
            self.assertEqual(c.read_head()[0], 200)
            return time.monotonic() - begun

    def test_silent_program_starts_the_stream(self):
        took = again(self.time_of_the_head, lambda took: took < 4)
        self.assertLess(took, 4)

    def test_client_that_leaves(self):
        self.fill()
        c = self.client.open_stream(
            LANGUAGE, "import time\nprint(1, flush=True)\ntime.sleep(20)")
        next(e for e in c.events() if e.name)
        c.close()
        wait_for("the end of the run", lambda: self.client.metrics()[
            "isobox_runner_running"] == 0, 5)
        self.service.assert_clean()

    def test_large_job(self):
        """As large as a request may be, over a pipe and a mapping."""
        self.fill()
        text = "x" * 200000
        r = self.execute("import sys\nprint(len(sys.stdin.read()), "
                         "len(open('big').read()))", stdin=text[:30000],
                         files=[{"name": "big", "content": text}])
        self.assertEqual(r.json()["run"]["stdout"], "30000 200000\n")

    def test_output(self):
        self.fill()
        r = self.execute("import sys\n"
                         "print('x' * 300000)\nsys.stderr.write('y' * 70000)",
                         limits={"outputBytes": 262144})
        run = r.json()["run"]
        self.assertEqual((len(run["stdout"]), len(run["stderr"])),
                         (262144, 70000))
        self.assertTrue(run["truncated"])

    def test_a_burst_is_served_from_the_pool(self):
        self.fill()
        hits = self.pool("hits_total")
        gate = threading.Barrier(3)
        answers = []

        def work(i):
            gate.wait()
            answers.append(self.client.execute(LANGUAGE, "print(%d)" % i))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(
            sorted(r.json()["run"]["stdout"] for r in answers),
            ["0\n", "1\n", "2\n"])
        self.assertEqual(self.pool("hits_total"), hits + 3)

    def test_idle_memory(self):
        self.fill()
        each = self.pool("memory_bytes") / self.pool(
            'sandboxes{state="waiting"}')
        print("waiting: %.1f MB each" % (each / 1e6))
        self.assertLess(each, 50e6)

    def test_ready_is_not_asked_of_the_pool(self):
        self.assertEqual(self.client.get("/readyz").status, 200)

    def tearDown(self):
        self.service.assert_clean(30)


class TestNetwork(Warm):
    """With and without network are two kinds."""

    @classmethod
    def setUpClass(cls):
        cls.world = world.World()
        cls.addClassCleanup(cls.world.close)
        cls.settings = {"warm_max": 3, "world": cls.world}
        super().setUpClass()

    def test_it_is_part_of_the_kind(self):
        self.fill()
        misses = self.pool("misses_total")
        r = self.execute("print('y')", network=False)
        self.assertEqual(r.json()["run"]["stdout"], "y\n")
        self.assertFalse(is_warm(r))
        self.assertFalse(r.json()["run"]["network"])
        self.assertEqual(self.pool("misses_total"), misses + 1)

        def hit(network):
            r = self.execute("pass", network=network)
            self.assertEqual(r.json()["run"]["network"], network)
            return is_warm(r)
        wait_for("one without network that waits", lambda: hit(False), 20, .3)
        wait_for("one with a network that waits", lambda: hit(True), 20, .3)
        self.service.assert_clean(30)


class TestLimits(Warm):
    """The same program under the same limits, warm and in a sandbox of its
    own."""
    settings = {"warm_max": 3}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cold = Service("caddy", warm=False)
        cls.addClassCleanup(cls.cold.stop)
        only(cls.cold, LANGUAGE)
        cls.cold.start()

    def both(self, code, **members):
        self.fill()
        warm = self.execute(code, **members)
        self.assertTrue(is_warm(warm), warm)
        cold = self.cold.client().execute(LANGUAGE, code, **members)
        self.assertFalse(is_warm(cold))
        return warm.json()["run"], cold.json()["run"]

    def largest(self, client, memory):
        """How many MiB a program can use of that limit, by halving."""
        low, high = 0, 96
        while high - low > 1:
            middle = (low + high) // 2
            run = client.run(
                LANGUAGE, "b = bytearray(%d << 20)\n"
                "b[::4096] = b'x' * len(b[::4096])\nprint(1)" % middle,
                limits={"memoryBytes": memory << 20})
            if run["stdout"] == "1\n":
                low = middle
            else:
                self.assertTrue(run["oomKilled"], run)
                high = middle
        return low

    def test_memory(self):
        self.fill()
        warm = self.largest(self.client, 64)
        cold = self.largest(self.cold.client(), 64)
        print("of 64 MiB: %d warm, %d cold" % (warm, cold))
        self.assertGreaterEqual(warm, cold - 1)
        self.assertLessEqual(warm, cold + 16)

    def test_least_memory(self):
        for run in self.both("print(1)", limits={"memoryBytes": 8 << 20}):
            self.assertEqual(run["stdout"], "1\n", run)

    def test_out_of_memory(self):
        for run in self.both("b = b'x' * (300 << 20)",
                             limits={"memoryBytes": 64 << 20}):
            self.assertEqual((run["exitCode"], run["oomKilled"],
                              run["timedOut"]), (137, True, False), run)

    def test_peak(self):
        warm, cold = self.both("b = b'x' * (50 << 20)")
        for run in (warm, cold):
            self.assertGreater(run["memoryPeakBytes"], 50 << 20)
        self.assertLess(abs(warm["memoryPeakBytes"] -
                            cold["memoryPeakBytes"]), 16 << 20)

    def test_wall_time(self):
        for run in self.both("while True: pass",
                             limits={"wallTimeMs": 500}):
            self.assertEqual((run["exitCode"], run["timedOut"]), (137, True))
            self.assertGreaterEqual(run["durationMs"], 490)

    def test_cpus(self):
        """A tenth of a CPU is a tenth in both."""
        code = ("import time\nend = time.monotonic() + 1.5\nn = 0\n"
                "while time.monotonic() < end: n += 1\nprint(n)")
        warm, cold = self.both(code, limits={"cpus": 0.1})
        most = max(int(run["stdout"]) for run in (warm, cold))

        def full():
            return int(self.both(code, limits={"cpus": 1.0})[0]["stdout"])
        self.assertLess(most, again(full, lambda n: most < n / 2) / 2)

    def test_pids(self):
        code = ("import os, time\nn = 0\n"
                "try:\n"
                "    while n < 60:\n"
                "        if os.fork() == 0: time.sleep(5); os._exit(0)\n"
                "        n += 1\n"
                "except OSError as e: print(e.errno)\n"
                "print(n)")
        for limit in (1, 5, 20):
            with self.subTest(limit):
                for run in self.both(code, limits={"pids": limit}):
                    self.assertEqual(run["stdout"], "11\n%d\n" % (limit - 1))


class TestDeath(Warm):
    """Whatever dies in the pool is replaced and no client sees it."""

    def assert_serves(self):
        for i in range(6):
            r = self.execute("print(%d)" % i)
            self.assertEqual(r.json()["run"]["stdout"], "%d\n" % i)

    def kill(self, pids):
        self.assertTrue(pids)
        signal_each(pids, signal.SIGKILL)

    def test_sentries(self):
        self.fill()
        failures = self.client.metrics()["isobox_run_failures_total"]
        for _ in range(3):
            self.service.wait_pool(1)
            self.kill(self.sentries())
            self.assert_serves()
        self.assertEqual(self.client.metrics()["isobox_run_failures_total"],
                         failures)
        self.service.assert_clean(30)

    def test_dead_ones_are_replaced(self):
        self.fill()
        lost = self.pool("boot_failures_total")
        self.kill(self.sentries())
        wait_for("notice", lambda: self.pool("boot_failures_total") > lost, 10)
        self.service.wait_pool(3)
        self.service.assert_clean(30)

    def test_supervisors(self):
        self.fill()
        self.kill(self.supervisors())
        self.service.assert_clean(30)
        wait_for("replacements", lambda: self.pool(
            'sandboxes{state="waiting"}') >= 1, 30)
        self.assert_serves()

    def test_out_of_memory_while_it_waits(self):
        self.fill()
        # What is over at once is of the leaf: nobody else notices.
        for leaf in self.service.subtree.leaves():
            for name, value in (("memory.max", "1000000"),
                                ("memory.limit_in_bytes", "1000000")):
                path = os.path.join(leaf, name)
                if os.path.exists(path):
                    try:
                        with open(path, "w") as f:
                            f.write(value)
                    except OSError:
                        pass  # v1 refuses what is less than in use
        self.assert_serves()
        self.service.assert_clean(30)

    def test_runner(self):
        self.fill()
        self.service.runner.kill()
        self.service.runner.wait()
        wait_for("the end of all that waited",
                 lambda: not self.service.subtree.pids(), 15)
        # Supervisors remove their leaves; the next start finds the rest.
        self.service.start_runner()
        self.service.wait_ready()
        self.service.wait_pool(1)
        self.service.baseline |= {"process %d %s" % (
            self.service.runner.pid, command_line(self.service.runner.pid))}
        self.service.assert_clean(30)
        self.assert_serves()

    def test_runner_and_its_supervisors(self):
        self.fill()
        self.kill([self.service.runner.pid, *self.supervisors()])
        self.service.runner.wait()
        wait_for("the end of all sandboxes",
                 lambda: not self.service.subtree.pids(), 15)
        self.service.start_runner()
        self.service.wait_ready()
        self.service.baseline |= {"process %d %s" % (
            self.service.runner.pid, command_line(self.service.runner.pid))}
        self.service.assert_clean(30)
        self.assert_serves()

    def test_stopped_sandbox(self):
        """One that does not answer is the host's failure in bounded time."""
        self.fill()
        stopped = self.sentries()
        signal_each(stopped, signal.SIGSTOP)
        try:
            r = self.client.execute(LANGUAGE, "print(1)")
            self.assertIn(r.status, (200, 503), r)
        finally:
            signal_each(stopped, signal.SIGCONT)
        self.service.assert_clean(40)


class TestChange(Warm):
    """What waits is for the registry and the images that there are."""

    def test_reload_empties(self):
        self.fill()
        before = self.supervisors()
        path = self.service.path("registry", LANGUAGE + ".yaml")
        with open(path) as f:
            old = f.read()
        try:
            with open(path, "w") as f:
                f.write(old.replace("env:\n", "env:\n  NEW: \"1\"\n"))
            self.service.runner.send_signal(signal.SIGHUP)
            wait_for("other sandboxes", lambda: not (
                before & self.supervisors()), 15)
            self.service.wait_pool(1)
            for _ in range(4):
                r = self.execute("import os; print(os.environ.get('NEW'))")
                self.assertEqual(r.json()["run"]["stdout"], "1\n")
        finally:
            with open(path, "w") as f:
                f.write(old)
            self.service.runner.send_signal(signal.SIGHUP)
        self.service.assert_clean(30)

    def test_terminate(self):
        self.fill()
        begun = time.monotonic()
        self.service.runner.terminate()
        self.assertEqual(self.service.runner.wait(20), 0)
        print("ended in %.1f s" % (time.monotonic() - begun))
        self.assertEqual(self.service.subtree.leaves(), [])
        self.service.start_runner()
        self.service.wait_ready()


class TestImage(unittest.TestCase):
    def test_new_image_empties(self):
        folder = subprocess.run(
            ["mktemp", "-d", "/tmp/isobox-images-XXXXXX"], check=True,
            capture_output=True, text=True).stdout.strip()
        self.addCleanup(subprocess.run, ["rm", "-rf", "--one-file-system",
                                         folder], check=True)
        os.chmod(folder, 0o755)
        source = os.environ.get("ISOBOX_IMAGES_DIR", "/var/lib/isobox/images")
        subprocess.run(["cp", "-al", os.path.join(source, "python-slim"),
                        folder], check=True)
        for name in ("images.lock", "python-slim.digest"):
            subprocess.run(["cp", os.path.join(source, name), folder],
                           check=True)
        service = Service("caddy", images=folder, warm_max=2)
        self.addCleanup(service.stop)
        only(service, LANGUAGE)
        service.start()
        service.wait_pool(1)

        before = children(service.runner.pid)
        digest = os.path.join(folder, "python-slim.digest")
        subprocess.run(["cp", digest, digest + ".new"], check=True)
        os.rename(digest + ".new", digest)
        wait_for("other sandboxes", lambda:
                 not before & children(service.runner.pid), 15)
        self.assertEqual(service.client().run(LANGUAGE, "print(1)")["stdout"],
                         "1\n")


class TestOff(unittest.TestCase):
    def test_off(self):
        service = Service("caddy", warm=False)
        self.addCleanup(service.stop)
        service.start()
        client = service.client()
        for _ in range(3):
            self.assertFalse(is_warm(client.execute(LANGUAGE, "print(1)")))
        time.sleep(1)
        metrics = client.metrics()
        for key in ('sandboxes{state="waiting"}', 'sandboxes{state="booting"}',
                    "hits_total", "misses_total", "boots_total"):
            self.assertEqual(metrics["isobox_pool_" + key], 0)
        wait_for("no leaf", lambda: not service.subtree.leaves())


class TestMemory(unittest.TestCase):
    def test_given_up_when_memory_is_short(self):
        """Runs that fill the subtree do not fail because of what waits."""
        service = Service("caddy", concurrency=2, warm_max=8,
                          warm_mem_mb=400)
        service.subtree.memory = 560 << 20
        self.addCleanup(service.stop)
        service.start()
        client = service.client()
        wait_for("a pool", lambda: service.pool_size() >= 3, 30)
        dropped = client.metrics()["isobox_pool_dropped_total"]
        hog = ("import time\nparts = []\nfor i in range(20):\n"
               "    parts.append(b'x' * (11 << 20))\n"
               "    time.sleep(0.15)\n"
               "print('done')")
        answers = []

        def work():
            answers.append(client.execute(
                LANGUAGE, hog, limits={"memoryBytes": 240 << 20,
                                       "wallTimeMs": 15000}))
        threads = [threading.Thread(target=work) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for r in answers:
            self.assertEqual(r.status, 200, r)
            self.assertEqual(r.json()["run"]["stdout"], "done\n", r)
        self.assertGreater(client.metrics()["isobox_pool_dropped_total"],
                           dropped)
        service.assert_clean(30)

    def test_budget(self):
        service = Service("caddy", warm_max=8, warm_mem_mb=64)
        self.addCleanup(service.stop)
        service.start()
        client = service.client()
        for _ in range(5):
            client.run(LANGUAGE, "pass")
        time.sleep(2)
        self.assertLessEqual(client.metrics()["isobox_pool_memory_bytes"],
                             64 << 20)


class TestFailure(unittest.TestCase):
    def test_boots_that_fail_back_off(self):
        """No image any more: some tries, not one after another."""
        service = Service("caddy")
        self.addCleanup(service.stop)
        only(service, LANGUAGE)
        service.start()
        service.wait_pool(1)
        runsc = service.path("bin", "runsc")
        self.assertFalse(os.path.exists(runsc))
        # isobox-init is opened by name for each sandbox.
        os.rename(service.program("isobox-init"),
                  service.program("isobox-init") + ".away")
        client = service.client()
        for _ in range(3):
            client.execute(LANGUAGE, "pass")
            time.sleep(.2)  # the pool is refilled when it is quiet
        time.sleep(4)
        boots = client.metrics()["isobox_pool_boots_total"]
        self.assertLess(boots, 20)
        self.assertEqual(client.get("/readyz").status, 503)
        os.rename(service.program("isobox-init") + ".away",
                  service.program("isobox-init"))
        service.wait_ready(30)
        wait_for("a pool", lambda: client.metrics()[
            'isobox_pool_sandboxes{state="waiting"}'] >= 1, 60)
        log = service.logs()
        self.assertTrue(re.search("is lost", log), log)


if __name__ == "__main__":
    unittest.main()
