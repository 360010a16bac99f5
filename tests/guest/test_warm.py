# SPDX-License-Identifier: Apache-2.0
"""What waits for its job, whatever it does: a job is run once, as if nobody had
waited. test_warm_semantics has the interpreters."""

import os
import time
import unittest

import isoproto
import sandbox
from again import again
from sandbox import Failed, Sandbox, setUpModule, tearDownModule

assert setUpModule and tearDownModule  # unittest finds them here

FILES = [("main.x", "content\n"), ("pkg/other", "")]


def warmer(how):
    return ["/bin/warmer", how, "main.x"]


class TestWarm(unittest.TestCase):
    def said(self, r, code=7):
        self.assertEqual((r.code, r.signal, r.err), (code, 0, b""))
        return dict(line.split(" ", 1) if " " in line else (line, "")
                    for line in r.out.decode().splitlines())

    def check(self, how, waits=True, warm=None, args=(), code=7, **job):
        """A job after GUEST_WARM; what its program found."""
        with Sandbox() as box:
            waiting, missing, why = box.warm(warmer(how), "main.x")
            self.assertEqual(waiting, waits, why)
            job.setdefault("files", FILES)
            r = box.run(warmer(how) + list(args), **job)
            self.assertEqual(box.ended(), 0)
        said = self.said(r, code)
        self.assertIn("warm" if (waits if warm is None else warm)
                      else "plain", said)
        self.assertEqual(said["file"], "content")
        self.assertEqual(said["open"], "0 1 2")
        self.why = why
        return said

    def test_claimed(self):
        said = self.check("good", pids=33, file_bytes=4096)
        self.assertEqual(said["limits"], "33 33 4096")
        self.assertEqual(said["ids"], "2 1 65534")
        self.assertEqual(bytes.fromhex(said["args"]),
                         b"0\0main.x\0pkg/other\0")
        self.assertEqual(self.check("good", pids=256)["limits"], "256 256 -1")

    def test_arguments(self):
        said = self.check("good", args=["", "a b", b"\xff\n", "x" * 1000])
        self.assertEqual(bytes.fromhex(said["args"]), b"4\0\0a b\0\xff\n\0" +
                         b"x" * 1000 + b"\0main.x\0pkg/other\0")

    def test_many_arguments(self):
        """More than a socket holds at once."""
        self.check("good", args=["y" * 2000] * 200)

    def test_same_as_plain(self):
        with Sandbox() as box:
            r = box.run(warmer("good"), files=FILES, pids=33, file_bytes=4096)
        plain = self.said(r)
        warm = self.check("good", pids=33, file_bytes=4096)
        for key in ("file", "limits", "open", "ids"):
            self.assertEqual(plain[key], warm[key])

    def test_does_not_wait(self):
        for how in "dies", "junk", "leaves", "endless", "other":
            with self.subTest(how):
                self.check(how, waits=False)
                self.assertIn("does not wait", self.why)
        self.check("dies", waits=False)
        self.assertIn("a reason", self.why)

    def test_declines_or_dies_when_claimed(self):
        for how in "no", "late":
            with self.subTest(how):
                self.check(how, warm=False)

    def test_says_more_than_it_may(self):
        self.check("lies")

    def test_tells_its_end(self):
        """It is believed at once, and nobody else is."""
        begun = time.monotonic()
        self.assertIn("still", self.check("ends", code=9))
        self.assertLess(time.monotonic() - begun, 20)

    def test_tells_nonsense(self):
        self.check("babbles")

    def test_dies_while_it_waits(self):
        with Sandbox() as box:
            self.assertTrue(box.warm(warmer("naps"), "main.x")[0])
            time.sleep(3)
            self.assertIn("plain", self.said(box.run(warmer("naps"),
                                                     files=FILES)))

    def test_cannot_be_run(self):
        with Sandbox() as box:
            waiting, _, why = box.warm(["/nosuch", "main.x"], "main.x")
            self.assertFalse(waiting)
            self.assertIn("No such file", why)
            self.said(box.run(warmer("good"), files=FILES))

    def test_missing(self):
        with Sandbox() as box:
            self.assertEqual(
                box.warm(warmer("missing"), "main.x", ["b", "a"]),
                (True, ["a"], ""))
        with Sandbox() as box:
            self.assertFalse(box.warm(warmer("missing"), "main.x")[0])

    def test_for_another_job(self):
        """Another command, environment, folder or entry: started plainly."""
        other = {"env": sandbox.ENV + ["A=b"], "cwd": "/tmp"}
        for key, value in other.items():
            with self.subTest(key):
                with Sandbox() as box:
                    self.assertTrue(box.warm(warmer("good"), "main.x")[0])
                    r = box.run(["/bin/warmer", "good", "/box/main.x"]
                                if key == "cwd" else warmer("good"),
                                files=FILES, **{key: value})
                self.assertIn("plain", self.said(r))
        with Sandbox() as box:
            self.assertTrue(box.warm(warmer("good"), "main.x")[0])
            r = box.run(["/bin/warmer", "good", "else.x"],
                        files=[("else.x", "content")])
        self.assertIn("plain", self.said(r))

    def test_placeholder(self):
        """The entry's file that was there is gone, its folder as well."""
        with Sandbox() as box:
            self.assertTrue(box.warm(warmer("good"), "d/e/main.x")[0])
            r = box.run(["snoop", "tree", "/box"], files=[("d", "a file")])
        self.assertNotIn(b"main.x", r.out)
        self.assertIn(b"/box/d 65534", r.out)

    def test_compile_first(self):
        with Sandbox() as box:
            self.assertTrue(box.warm(warmer("good"), "main.x")[0])
            r = box.run(warmer("good"), compile=["badguy", "exit", "0"],
                        files=FILES)
        self.assertIn("plain", self.said(r))

    def test_compiler(self):
        """What waits is the compile step; then the program is started."""
        with Sandbox() as box:
            waiting, _, why = box.warm(warmer("compiler"), "main.x",
                                       compiles=True)
            self.assertTrue(waiting, why)
            r = box.run(warmer("x"), compile=warmer("compiler"), files=FILES)
        self.assertTrue(r.compile_failed)
        self.assertEqual((r.code, r.out), (7, b""))
        self.assertIn(b"warm\nfile content", r.err)

    def test_job_comes_first(self):
        """Before there is an answer: started plainly, no answer."""
        for how in "dumb", "good":
            with self.subTest(how), Sandbox(ready=False) as box:
                box.send(isoproto.frame(
                    isoproto.GUEST_WARM, isoproto.guest_warm(
                        warmer(how), "main.x", env=sandbox.ENV)))
                if how == "dumb":
                    box.expect(isoproto.GUEST_READY)
                    time.sleep(0.2)
                box.job(warmer(how), files=FILES)
                if how == "good":
                    box.expect(isoproto.GUEST_READY)
                self.assertIn("plain", self.said(box.finish()))

    def test_two_orders(self):
        order = isoproto.frame(isoproto.GUEST_WARM, isoproto.guest_warm(
            warmer("good"), "main.x", env=sandbox.ENV))
        with Sandbox() as box, self.assertRaisesRegex(Failed, "not one job"):
            box.send(order)
            box.expect(isoproto.GUEST_WARMED)
            box.send(order)
            box.next()

    def test_bad_order(self):
        for payload in (b"", b"\0" * 9, isoproto.guest_warm(
                warmer("good"), "../x")):
            with Sandbox() as box, self.assertRaises(Failed):
                box.send(isoproto.frame(isoproto.GUEST_WARM, payload))
                box.next()

    def test_supervisor_leaves(self):
        with Sandbox() as box:
            self.assertTrue(box.warm(warmer("good"), "main.x")[0])
            os.close(box.input)
            box.input = None
            self.assertNotEqual(box.ended(), None)

    def test_cpu_time_before_is_not_the_program_s(self):
        def used():
            with Sandbox() as box:
                self.assertTrue(box.warm(warmer("spins"), "main.x")[0])
                return box.run(warmer("spins"), files=FILES).cpu_us
        self.assertLess(again(used, lambda us: us < 400000), 400000)


if __name__ == "__main__":
    unittest.main()
