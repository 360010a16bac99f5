# SPDX-License-Identifier: Apache-2.0
"""The sandbox of a session's next step, booted when the last one has ended: it
finds what is in the workspace now, keeps the quota, goes with its session, and
takes nobody's place."""

import os
import signal
import threading
import unittest

import harness
import world
from harness import Service, wait_for
from test_sessions import MIB, Session, SessionCase
from test_warm import LANGUAGE, is_warm, only


class AheadCase(SessionCase):
    settings = {"warm_max": 4}
    languages = (LANGUAGE,)

    @classmethod
    def setUpClass(cls):
        cls.service = Service(cls.kind, **cls.settings)
        cls.addClassCleanup(cls.service.stop)
        only(cls.service, *cls.languages)
        cls.service.start()
        cls.client = cls.service.client()

    def tearDown(self):
        self.doCleanups()
        self.service.assert_clean(30)

    def mounted(self, s):
        """Whether a sandbox has the session's workspace."""
        for pid in self.service.subtree.pids():
            try:
                with open("/proc/%d/mountinfo" % pid) as f:
                    if "/sessions/%s /workspace " % s.id in f.read():
                        return True
            except OSError:
                pass  # it has just ended
        return False

    def quiet(self):
        values = self.client.metrics()
        return not values['isobox_pool_sandboxes{state="booting"}'] and \
            not values["isobox_runner_running"]

    def waits(self, *sessions):
        """Quiet before: what is mounted then is not the last step's sandbox.
        And afterwards: it is not one that boots."""
        wait_for("sandboxes for sessions", lambda: self.quiet() and all(
            self.mounted(s) for s in sessions) and self.quiet(), 30)

    def gone(self, *sessions):
        wait_for("an end of their sandboxes", lambda: not any(
            self.mounted(s) for s in sessions), 10)

    def first(self, **members):
        s = self.session(**members)
        self.check(s.run("print(1)"), "1\n")
        self.waits(s)
        return s

    def warm(self, s, code, **members):
        r = s.step(code, **members)
        self.assertEqual(r.status, 200, r)
        self.assertTrue(is_warm(r), r)
        return r.json()["run"]


class TestAhead(AheadCase):
    def test_next_one_is_warm(self):
        s = self.first()
        for i in range(3):
            self.check(self.warm(s, "import os, sys\n"
                                 "open('n', 'a').write('x')\n"
                                 "print(os.getcwd(), os.path.getsize('n'), "
                                 "sys.argv, __file__, sys.path[0])",
                                 args=["a"]),
                       "/workspace %d ['/box/main.py', 'a'] /box/main.py "
                       "/box\n" % (i + 1))
            self.waits(s)

    def test_what_is_written_last(self):
        """Its interpreter is not taken apart any more: mapped pages, and what
        C writes when a program ends, are in the files nevertheless."""
        s = self.first()
        self.warm(s, "import gc, mmap\n"
                  "f = open('mapped', 'wb+'); f.truncate(8192)\n"
                  "m = mmap.mmap(f.fileno(), 8192)\n"
                  "m[5000:5005] = b'hello'\n"
                  "keep = [f, m]; keep.append(keep); gc.freeze()\n"
                  "open('unclosed', 'w').write('buffered')\n"
                  "g = open('global', 'w'); g.write('buffered')")
        self.check(s.run("print(open('mapped', 'rb').read()[5000:5005],"
                         "open('unclosed').read(), open('global').read())"),
                   "b'hello' buffered buffered\n")
        self.assertEqual(s.fs("GET", "mapped").body[5000:5005], b"hello")

    def test_used_once(self):
        s = self.first()
        code = ("import os, random, uuid\n"
                "seen = os.path.exists('/tmp/m'), os.path.exists('/box/m')\n"
                "open('/tmp/m', 'w'); open('/box/m', 'w')\n"
                "print(*seen, random.random(), uuid.uuid4(), hash('x'))")
        words = []
        for _ in range(4):
            words.append(self.warm(s, code)["stdout"].split())
            self.waits(s)
        self.assertEqual({tuple(w[:2]) for w in words}, {("False",) * 2})
        self.assertEqual(len({x for w in words for x in w[2:]}), 12)

    def test_right_after_each_other(self):
        """Whether it waits, boots, or was not thought of yet."""
        s = self.session()
        for i in range(12):
            self.check(s.run("n = open('n', 'a+'); n.write('x'); n.seek(0)\n"
                             "print(len(n.read()))"), "%d\n" % (i + 1))

    def test_two_at_once(self):
        s = self.first()
        said = []

        def work():
            said.append(s.run("n = open('n', 'a+'); n.write('x'); n.seek(0)\n"
                              "print(len(n.read()))")["stdout"])
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(said), ["%d\n" % (i + 1) for i in range(4)])

    def test_files_put_while_it_waits(self):
        """What the file API does is seen, whatever was there at the boot."""
        s = self.session()
        self.check(s.run("import os\nos.makedirs('d/e')\n"
                         "for f in 'a', 'd/b', 'd/e/c':\n"
                         "    open(f, 'w').write('old')\n"
                         "os.symlink('d/e', 'l')\nos.symlink('a', 'f')"), "")
        look = ("import os\nfor at, dirs, files in sorted(os.walk('.')):\n"
                "    print(at, sorted(dirs))\n"
                "    for f in sorted(files):\n"
                "        p = os.path.join(at, f)\n"
                "        if os.path.exists(p): print(p, os.path.getsize(p), open(p).read())\n")
        for change in (
                lambda: s.fs("PUT", "a", b"new"),
                lambda: s.fs("PUT", "a", b"longer than it was"),
                lambda: s.fs("PUT", "d/b", b""),
                lambda: s.fs("PUT", "l/c", b"through a link"),
                lambda: s.fs("PUT", "n/e/w", b"new folders"),
                lambda: s.fs("DELETE", "d/b"),
                lambda: s.fs("DELETE", "a"),
                lambda: s.fs("PUT", "a/is", b"a folder now"),
                lambda: s.fs("DELETE", "d"),
                lambda: s.fs("PUT", "d/e/c", b"again")):
            self.waits(s)
            r = change()
            self.assertLess(r.status, 300, r)
            run = self.warm(s, look)
            self.assertEqual(run["stdout"].splitlines(), self.on_host(s))

    def on_host(self, s):
        """What the program of the test above is to print."""
        top = self.workspace(s)
        lines = []
        for at, dirs, files in sorted(os.walk(top)):
            shown = os.path.join(".", os.path.relpath(at, top)) \
                if at != top else "."
            lines.append("%s %s" % (shown, sorted(dirs)))
            for f in sorted(files):
                p = os.path.join(at, f)
                if os.path.exists(p):
                    with open(p) as file:
                        lines.append("%s/%s %d %s" % (
                            shown, f, os.path.getsize(p), file.read()))
        return lines

    def test_many_puts(self):
        """A file that each step reads and the API then replaces."""
        s = self.session()
        for i in range(8):
            self.assertLess(s.fs("PUT", "x", b"%04d" % i).status, 300)
            r = s.step("print(open('x').read())")
            self.check(r.json()["run"], "%04d\n" % i)
            self.waits(s)

    def test_two_sessions(self):
        one, two = self.session(), self.session()
        for s, word in (one, "one"), (two, "two"):
            s.run("open('w', 'w').write('%s')" % word)
        self.waits(one, two)
        for s, word in (one, "one"), (two, "two"):
            self.check(self.warm(s, "import os\n"
                                 "print(open('w').read(), os.listdir())"),
                       "%s ['w']\n" % word)

    def test_no_more_than_their_share(self):
        """Half of the seats are for sessions; a one-shot run is warm."""
        many = [self.session() for _ in range(5)]
        for s in many * 2:
            self.check(s.run("print(1)"), "1\n")
        self.waits()
        self.assertEqual(sum(self.mounted(s) for s in many), 2)
        r = self.client.execute(LANGUAGE, "print(1)")
        self.assertTrue(is_warm(r), r)

    def test_end_of_the_session(self):
        s = self.first()
        self.assertEqual(s.end(), 204)
        self.gone(s)
        self.assertFalse(os.path.exists(self.workspace(s)))

    def test_end_while_it_boots(self):
        for _ in range(4):
            s = self.session()
            self.check(s.run("print(1)"), "1\n")
            self.assertEqual(s.end(), 204)
            self.assertFalse(os.path.exists(self.workspace(s)))
        self.gone(s)

    def test_end_while_a_step_runs(self):
        s = self.first()
        with s.open_stream("print(1, flush=True)\nimport time; time.sleep(9)"
                           ) as c:
            next(e for e in c.events() if e.name == "stdout")
            self.assertEqual(s.end(), 204)
        self.gone(s)

    def test_volume(self):
        """It goes from session to session, and what waits does not keep it."""
        volume = self.volume()
        self.addCleanup(lambda: self.client.request(
            "DELETE", "/v1/volumes/" + volume))
        for i in range(3):
            s = self.first(volumeId=volume)
            self.check(self.warm(s, "n = open('/memory/n', 'a+')\n"
                                 "n.write('x'); n.seek(0)\n"
                                 "print(len(n.read()))"), "%d\n" % (i + 1))
            self.assertEqual(s.end(), 204)

    def test_it_dies(self):
        s = self.first()
        failures = self.client.metrics()["isobox_run_failures_total"]
        for _ in range(2):
            harness.signal_each(
                [pid for pid in self.service.subtree.pids()
                 if " boot " in harness.command_line(pid)], signal.SIGKILL)
            self.check(s.run("print(2)"), "2\n")
            self.waits(s)
        self.assertEqual(self.client.metrics()["isobox_run_failures_total"],
                         failures)

    def test_workspace_that_may_not_be_entered(self):
        """Who shuts himself out finds the same as in a sandbox of his own, and
        others wait as ever."""
        s = self.session()
        s.run("import os; os.chmod('/workspace', 0)")
        wait_for("an end of boots", lambda: self.client.metrics()[
            'isobox_pool_sandboxes{state="booting"}'] == 0, 20)
        for _ in range(2):
            self.assertIn(s.step("print(1)").status, (200, 503))
        wait_for("a warm run", lambda: is_warm(
            self.client.execute(LANGUAGE, "print(1)")), 10, 0.3)

    def test_reload_and_drain(self):
        s = self.first()
        self.service.runner.send_signal(signal.SIGHUP)
        self.check(s.run("print(3)"), "3\n")
        self.waits(s)


class TestQuota(AheadCase):
    settings = {"warm_max": 4, "session_disk_mb": 40}

    def test_step_that_waited(self):
        s = self.first()
        r = s.step("open('x', 'wb').write(b'x' * (60 << 20))\n"
                   "import time; time.sleep(5)")
        self.error(r, 413, "quota_exceeded")
        # It may delete, and then go on.
        s.run("import os; os.unlink('x')")
        self.waits(s)
        self.check(self.warm(s, "open('y', 'wb').write(b'x' * (9 << 20))"
                             "\nprint(1)"), "1\n")

    def test_what_was_uploaded_meanwhile_counts(self):
        s = self.first()
        for name in "ab":
            self.assertLess(s.fs("PUT", name, b"x" * (15 * MIB)).status, 300)
        r = s.step("open('x', 'wb').write(b'x' * (20 << 20))\n"
                   "import time; time.sleep(5)")
        self.error(r, 413, "quota_exceeded")


class TestNetwork(AheadCase):
    """A step with another network than the last one."""

    @classmethod
    def setUpClass(cls):
        cls.world = world.World()
        cls.addClassCleanup(cls.world.close)
        cls.settings = {"warm_max": 4, "world": cls.world}
        super().setUpClass()

    def test_it_changes(self):
        s = self.first()
        for network in False, True, True, False:
            run = s.run("print(1)", network=network)
            self.assertEqual((run["stdout"], run["network"]),
                             ("1\n", network))
            self.waits(s)
        r = s.step("print(1)", network=False)
        self.assertTrue(is_warm(r), r)
        self.assertFalse(r.json()["run"]["network"])


@unittest.skipUnless(os.path.exists(os.path.join(
    harness.IMAGES, "python-agent")), "no image python-agent")
class TestLibraries(AheadCase):
    languages = ("python",)
    settings = {"warm_max": 4, "warm_mem_mb": 1024}

    def test_configuration_of_matplotlib(self):
        """It is what lies in the workspace when the program looks."""
        s = self.session(runtime="python")
        code = "import matplotlib.pyplot as p; print(p.rcParams['font.size'])"
        for size in None, b"7", None, b"8", b"9":
            if size is None:
                s.fs("DELETE", "matplotlibrc")
            else:
                s.fs("PUT", "matplotlibrc", b"font.size: %s\n" % size)
            self.check(s.run(code), "%.1f\n" % float(size or b"10"))
            self.waits(s)


del AheadCase, SessionCase  # not tests by themselves

if __name__ == "__main__":
    unittest.main()
