# SPDX-License-Identifier: Apache-2.0
"""Live-kernel sessions by HTTP, with a fake runner."""

import base64
import json
import os
import threading
import unittest

import fake_runner
import fcgi_client
from again import again
from fake_runner import (ALIVE, ARTIFACT, ARTIFACT_DATA, CREATE, DEAD, FORK,
                         INTERRUPT, KILLED, NONE, frame, run_ok, step_ok,
                         text)
from session_case import NOT_FOUND, Session, SessionCase

SSE = {"Accept": "text/event-stream"}
MIB = 1 << 20
WARNING = ("network requested but currently unavailable (egress firewall not "
           "verified); ran with network OFF")
NO_KERNEL = {"error": "kernel_unsupported", "detail":
             'the session has no kernel; its type is "filesystem"'}


def error(word, detail=None):
    return {"error": word} if detail is None else {"error": word,
                                                   "detail": detail}


class KernelCase(SessionCase):
    def setUp(self):
        super().setUp()
        self.kernels = self.service.kernels
        self.kernels.clear()
        self.runner.on_run = step_ok

    def kernel(self, headers=(), **members):
        return self.create(headers, **{"runtime": "live", "type": "kernel",
                                       **members})

    def refuse(self, *answer):
        """The runner does that to whatever is asked of kernels."""
        self.runner.on_kernel = lambda call: call.fail(*answer)

    def live(self):
        """(id,) of each record that has not ended."""
        return self.sql("SELECT id FROM sessions WHERE ending_ms = 0")

    def asked_of(self, op):
        return [q for q in self.kernels.asked if q["op"] == op]


class Create(KernelCase):
    def test_shape(self):
        r = self.post(runtime="lv", type="kernel")
        self.assertEqual(r.status, 201)
        self.assert_common(r)
        facts = r.json()
        self.assertEqual(list(facts), [
            "id", "token", "runtime", "version", "type", "createdAt",
            "lastUsedAt", "expiresAt", "ttlSec", "volumeId", "kernel"])
        self.assertEqual((facts["runtime"], facts["version"], facts["type"],
                          facts["ttlSec"], facts["volumeId"]),
                         ("live", "2", "kernel", 86400, None))
        self.assertEqual(facts["kernel"], {
            "state": "resident", "steps": 0, "network": True,
            "memoryBytes": 40 << 20, "checkpointBytes": 0})
        self.assertEqual(r.headers["location"], "/v1/sessions/" + facts["id"])
        q, = self.kernels.asked
        self.assertNotEqual(q.pop("tenant"), 0)
        self.assertEqual(q, {
            "op": CREATE, "request_id": r.headers["x-request-id"],
            "id": facts["id"], "new_id": "", "runtime": b"live",
            "version": b"2", "volume": b"", "network": True, "allow": []})
        self.assertEqual([q for q in self.asked() if q.id == facts["id"]], [])

    def test_network(self):
        self.kernel(network=False)
        self.kernel(network={"allow": ["pypi.org", "*.b.c"]})
        self.kernel(network=None)
        self.assertEqual([(q["network"], q["allow"])
                          for q in self.kernels.asked],
                         [(False, []), (True, [b"pypi.org", b"*.b.c"]),
                          (True, [])])
        for bad, why in (
                ({"allow": []}, "network.allow must have 1 to 64 host names; "
                 "without any network: false"),
                ({"allow": ["-"]}, None), ({}, None), (1, None)):
            r = self.post(runtime="live", type="kernel", network=bad)
            self.assertEqual((r.status, r.json()["error"]),
                             (400, "invalid_request"), bad)
            if why:
                self.assertEqual(r.json()["detail"], why)

    def test_network_that_is_not_there(self):
        self.runner.on_kernel = lambda c: c.info(
            network=False, network_reason="no rules")
        facts = self.kernel().facts
        self.assertEqual(facts["warning"], WARNING)
        self.assertFalse(facts["kernel"]["network"])
        self.assertNotIn("warning", self.kernel(network=False).facts)

    def test_volume(self):
        v = self.volume()["id"]
        s = self.kernel(volumeId=v)
        self.assertEqual(s.facts["volumeId"], v)
        self.assertEqual(self.kernels.asked[0]["volume"], v.encode())
        r = self.post(runtime="live", type="kernel", volumeId=v)
        self.assertEqual((r.status, r.json()["error"]), (409, "volume_busy"))
        self.assertEqual(len(self.kernels.asked), 1)

    def test_unsupported(self):
        for name in ("py", "rust"):
            r = self.post(runtime=name, type="kernel")
            self.assertEqual((r.status, r.json()["error"]),
                             (400, "kernel_unsupported"))
        self.assertEqual(self.kernels.asked, [])

    def test_filesystem_is_the_default(self):
        for kind in ("filesystem", None):
            s = self.create(runtime="live", type=kind)
            self.assertEqual(s.facts["type"], "filesystem")
            self.assertNotIn("kernel", s.facts)
            self.assertNotIn("kernel", s.request("GET").json())
        self.assertEqual(self.kernels.asked, [])

    def test_bad_types(self):
        for bad in ("", "Kernel", "kernel ", "x"):
            self.assert_error(self.post(runtime="live", type=bad), 400, error(
                "invalid_request", 'type must be "filesystem" or "kernel"'))
        for bad in (1, True, [], {}):
            self.assert_error(self.post(runtime="live", type=bad), 400, error(
                "invalid_request", "type must be a string"))

    def test_ttl(self):
        """No shorter than a step with its wait, so that none outlives it."""
        for wish, given in ((60, 140), (0, 140), (-1, 140), (141, 141),
                            (10 ** 30, 86400), (None, 86400)):
            self.assertEqual(self.kernel(ttlSec=wish).facts["ttlSec"], given)

    def test_refused(self):
        """Nothing is left of it."""
        before = self.live()
        self.workspaces.asked.clear()
        for kind, status, retry, sent in (
                ("too_many_kernels", 429, 7, "7"),
                ("too_many_kernels", 429, 0, "1"),
                ("storage_full", 507, 0, None),
                ("capacity", 429, 2, "2"),
                ("kernel_unsupported", 400, 0, None),
                ("volume_not_found", 404, 0, None),
                ("sandbox_failed", 503, 0, None),
                ("internal_error", 503, 0, None)):
            self.refuse(kind, retry, "why")
            r = self.post(runtime="live", type="kernel")
            if status == 503:
                kind = "sandbox_failed"
            self.assert_error(r, status, error(kind, "why"))
            self.assertEqual(r.headers.get("retry-after"), sent)
        self.assertEqual(self.live(), before)
        self.assertEqual(len(self.asked("remove")), 8)
        self.assertEqual(self.sql("SELECT count(*) FROM sessions WHERE "
                                  "ending_ms > 0"), [(0,)])

    def test_too_many_kernels_as_the_reference_has_it(self):
        self.refuse("too_many_kernels", 3, "")
        r = self.post(runtime="live", type="kernel")
        self.assert_error(r, 429, {"error": "too_many_kernels"})
        self.assertEqual(r.headers["retry-after"], "3")

    def test_a_runner_that_talks_nonsense(self):
        before = self.live()
        info = fake_runner.kernel_info
        for answer in (
                b"", frame(fake_runner.DONE, b""),
                frame(fake_runner.KERNEL_INFO), b"\xff" * 8,
                frame(fake_runner.KERNEL_INFO, info() + b"x"),
                frame(fake_runner.KERNEL_INFO, info(state=0)),
                frame(fake_runner.KERNEL_INFO, info(state=5)),
                frame(fake_runner.KERNEL_INFO, info(memory=-2)),
                frame(fake_runner.KERNEL_INFO, info(reason="x" * 256)),
                frame(fake_runner.KERNEL_INFO, info(reason="a\0b")),
                frame(26)):
            self.runner.on_kernel = lambda call: call.send(answer)
            r = self.post(runtime="live", type="kernel")
            self.assertEqual((r.status, r.json()["error"]),
                             (503, "sandbox_failed"), answer)
        self.assertEqual(self.live(), before)

    def test_a_reason_that_is_no_utf8(self):
        self.runner.on_kernel = lambda call: call.info(reason=b"\xff\"\n")
        self.assertEqual(self.kernel().facts["kernel"]["reason"],
                         "\ufffd\"\n")

    def test_a_reason_with_a_path_of_the_host(self):
        self.runner.on_kernel = lambda call: call.info(
            reason="the kernel's folder /srv/k/1: gone \xff".encode("latin-1"))
        self.assertEqual(self.kernel().facts["kernel"]["reason"],
                         "the kernel's folder [path]: gone \ufffd")
        self.refuse("kernel_dead", 0, "/srv/k/1: gone")
        self.assert_error(self.post(runtime="live", type="kernel"), 409,
                          error("kernel_dead", "[path]: gone"))


class Off(KernelCase):
    settings = {"kernel_slots": 0}

    def test_off(self):
        self.assert_error(self.post(runtime="live", type="kernel"), 400, error(
            "kernel_unsupported", "this service has kernels turned off"))
        self.assertNotIn("kernels", self.service.request(
            "GET", "/healthz").json())
        self.assertEqual({r["kernel"] for r in self.service.request(
            "GET", "/runtimes").json()}, {False})


class Most(KernelCase):
    settings = {"max_sessions": 1}

    def test_sessions_are_counted_together(self):
        s = self.kernel()
        for members in ({"type": "kernel"}, {}):
            r = self.post(runtime="live", **members)
            self.assertEqual((r.status, r.json()["error"]),
                             (429, "too_many_sessions"))
        r = s.request("POST", "/fork")
        self.assertEqual((r.status, r.json()["error"]),
                         (429, "too_many_sessions"))
        self.assertIn("retry-after", r.headers)
        self.assertEqual(len(self.kernels.asked), 1)


class Steps(KernelCase):
    def step(self, script, s=None, **kw):
        self.runner.on_run = script
        return (s or self.kernel()).step(**{"code": "", **kw})

    def test_job(self):
        v = self.volume()["id"]
        s = self.kernel(volumeId=v)
        r = s.step(code="x", stdin="in", files=[
            {"name": "pkg/m.py", "content": "y"}], display=True,
            limits={"wallTimeMs": 50000, "outputBytes": 2048,
                    "memoryBytes": 1, "cpus": 9, "pids": 7})
        self.assertEqual(r.status, 200)
        job, = self.runner.calls
        self.assertEqual(job, {
            "request_id": r.headers["x-request-id"].encode(),
            "runtime": b"live", "version": b"2", "memory_bytes": 8 << 20,
            "cpus_milli": 2000, "pids": 7, "output_bytes": 2048,
            "wall_time_ms": 50000, "network": True, "entry": 1,
            "files": [(b"pkg/m.py", b"y"), (b"main.py", b"x")], "args": [],
            "stdin": b"in", "session": s.id.encode(), "volume": v.encode(),
            "allow": [], "kernel": True, "display": True})

    def test_wall_time(self):
        s = self.kernel()
        for wish, given in ((None, 15000), (60000, 60000), (60001, 60000),
                            (10 ** 30, 60000), (99, 100), (-1, 100),
                            (20001, 20001)):
            s.step(code="", limits={"wallTimeMs": wish})
            self.assertEqual(self.runner.calls[-1]["wall_time_ms"], given)

    def test_the_network_is_the_sessions(self):
        for mine in (True, False):
            s = self.kernel(network=mine)
            for wish in (True, False, None, {"allow": ["a.b"]}):
                s.step(code="", network=wish)
                job = self.runner.calls[-1]
                self.assertEqual((job["network"], job["allow"]), (mine, []))
        self.assert_error(s.step(code="", network=1), 400, error(
            "invalid_request", "network must be true or false, or an object "
            "with a list of host names: allow"))

    def test_members(self):
        s = self.kernel()
        self.assertEqual(s.step(code="", args=[]).status, 200)
        self.assertFalse(self.runner.calls[-1]["display"])
        for members, why in (
                ({"display": 1}, "display must be true or false"),
                ({"display": "yes"}, "display must be true or false"),
                ({"args": ["x"]}, "args: a step in a kernel has none"),
                ({"args": "x"}, "args must be an array"),
                ({"code": 1}, "code must be a string"),
                ({"limits": {"wallTimeMs": "1"}},
                 "limits.wallTimeMs must be an integer")):
            r = s.step(**{"code": "", **members})
            self.assertEqual((r.status, r.json()["error"]),
                             (400, "invalid_request"), members)
            self.assertEqual(r.json()["detail"], why)
        self.assert_error(s.step(display=True), 400, error(
            "no_source", "provide `code` or `files`"))
        self.assertEqual(len(self.runner.calls), 1)

    def test_display_is_no_member_of_other_steps(self):
        self.runner.on_run = run_ok
        s = self.create()
        self.assertEqual(s.step(code="", display=7).status, 200)
        self.assertFalse(self.runner.calls[0]["display"])

    def test_answer(self):
        r = self.step(lambda c: step_ok(c, b"out", b"err", exit_code=3,
                                        peak=5))
        self.assertEqual(r.status, 200)
        self.assert_common(r)
        self.assertEqual(r.body.decode(), (
            '{"language":"live","version":"2","backend":"gvisor",'
            '"run":{"stdout":"out","stderr":"err","exitCode":3,'
            '"timedOut":false,"oomKilled":false,"truncated":false,'
            '"durationMs":214,"network":true,"signal":null,"cpuTimeMs":30,'
            '"memoryPeakBytes":5,"interrupted":false},"kernel":"alive"}'))
        self.assertIn("server-timing", r.headers)

    def test_stream(self):
        def script(call):
            call.started()
            call.stdout(b"a")
            call.artifact(b"\x89PNG")
            call.stderr(b"b")
            call.artifact(b"<p>", "text/html", True)
            call.stdout(b"c")
            call.done(kernel=ALIVE, exit_code=1, raised=True)
        s = self.kernel()
        plain = self.step(script, s).json()
        for kw in ({"headers": SSE}, {"query": "?stream=1"}):
            r = self.step(script, s, **kw)
            self.assertEqual(r.headers["content-type"], "text/event-stream")
            events = r.events()
            self.assertEqual([n for n, _ in events],
                             ["stdout", "stderr", "stdout", "done"])
            self.assertEqual(json.loads(events[-1][1]), plain)
        self.assertEqual(list(plain), ["language", "version", "backend",
                                       "run", "artifacts", "kernel"])

    def test_warning(self):
        r = self.step(lambda c: step_ok(c, network=False))
        self.assertEqual(r.json()["warning"], WARNING)
        self.assertFalse(r.json()["run"]["network"])
        r = self.step(lambda c: step_ok(c, network=False),
                      self.kernel(network=False))
        self.assertNotIn("warning", r.json())

    def test_how_it_ended(self):
        for kw, run, kernel in (
                ({"exit_code": 137, "timed_out": True, "interrupted": True},
                 {"exitCode": 137, "timedOut": True, "interrupted": True},
                 "alive"),
                ({"exit_code": 137, "timed_out": True, "kernel": KILLED},
                 {"exitCode": 137, "timedOut": True}, "dead"),
                ({"exit_code": 137, "oom": True, "kernel": KILLED},
                 {"exitCode": 137, "oomKilled": True, "timedOut": False},
                 "dead"),
                ({"exit_code": 134, "signal": 6, "kernel": KILLED},
                 {"exitCode": 134, "signal": "SIGABRT"}, "dead"),
                ({"exit_code": 1, "raised": True, "interrupted": True},
                 {"exitCode": 1, "interrupted": True, "timedOut": False},
                 "alive"),
                ({"exit_code": 127}, {"exitCode": 127}, "alive")):
            r = self.step(lambda c: step_ok(c, **kw))
            self.assertEqual((r.status, r.json()["kernel"]), (200, kernel))
            got = r.json()["run"]
            self.assertEqual({k: got[k] for k in run}, run)

    def test_refused(self):
        s = self.kernel()
        for kind, status, retry in (
                ("kernel_dead", 409, None), ("too_many_kernels", 429, "4"),
                ("session_busy", 429, "4"), ("capacity", 429, "4"),
                ("quota_exceeded", 413, None), ("storage_full", 507, None)):
            self.runner.on_run = lambda c: c.fail(kind, int(retry or 0),
                                                  "its memory limit")
            for headers in ({}, SSE):
                r = s.step(code="", headers=headers)
                self.assertEqual((r.status, r.json()["error"]),
                                 (status, kind))
                self.assertEqual(r.headers.get("retry-after"), retry)
        self.runner.on_run = lambda c: c.fail("kernel_dead", 0, "why")
        self.assert_error(s.step(code=""), 409, error("kernel_dead", "why"))
        # The session is there all the same: its files can be fetched.
        self.assertEqual(s.fs("GET", "").status, 200)

    def test_kinds_that_are_no_steps(self):
        """A one-shot run cannot be refused as if it had a kernel."""
        self.runner.on_run = lambda c: c.fail("session_not_found", 0, "")
        s = self.kernel()
        self.assert_error(s.step(code=""), 404, NOT_FOUND)
        self.runner.reset()
        self.assert_error(s.step(code=""), 404, NOT_FOUND)

    def test_a_bad_end(self):
        for script in (lambda c: run_ok(c, kernel=NONE),
                       lambda c: run_ok(c, kernel=3),
                       lambda c: c.done(kernel=ALIVE)):
            r = self.step(script)
            self.assertEqual((r.status, r.json()["error"]),
                             (503, "sandbox_failed"))
        self.runner.on_run = lambda c: run_ok(c, kernel=ALIVE)
        r = self.service.execute(language="py", code="")
        self.assertEqual(r.status, 503)

    def test_the_client_leaves(self):
        self.assertLess(again(self.leave, lambda took: took < 1), 1)

    def leave(self):
        """Seconds until the runner hears of it."""
        s = self.kernel()
        gone, ready = [], threading.Event()

        def run(call):
            call.started()
            ready.set()
            gone.append(call.gone(5))
        self.runner.on_run = run
        with fcgi_client.Connection(self.service.socket) as c:
            c.send(fcgi_client.message(
                "POST", "/v1/sessions/%s/exec" % s.id, '{"code":""}',
                {"X-Session-Token": s.token}))
            ready.wait(5)
        self.service.wait_for(lambda: gone, "end")
        self.assertIsNotNone(gone[0])
        return gone[0]

    def test_runtime_that_is_gone(self):
        s = self.kernel()
        self.sql("UPDATE sessions SET version = '1' WHERE id = ?", s.id)
        r = s.step(code="")
        self.assertEqual((r.status, r.json()["error"]),
                         (400, "unknown_language"))

    def test_is_use(self):
        s = self.kernel()
        for use in (lambda: s.step(code=""),
                    lambda: s.request("POST", "/interrupt"),
                    lambda: s.request("POST", "/fork")):
            self.sql("UPDATE sessions SET used_ms = used_ms - 100000 "
                     "WHERE id = ?", s.id)
            before = self.used(s)
            self.assertIn(use().status, (200, 201))
            self.service.wait_for(lambda: self.used(s) > before, "use")

    def used(self, s):
        return self.sql("SELECT used_ms FROM sessions WHERE id = ?",
                        s.id)[0][0]


class Artifacts(KernelCase):
    def step(self, *artifacts, **done):
        """artifacts: arguments of Call.artifact()."""
        def script(call):
            call.started()
            for a in artifacts:
                call.artifact(*a)
            call.done(**{"kernel": ALIVE, **done})
        self.runner.on_run = script
        r = self.kernel().step(code="")
        self.assertEqual(r.status, 200, r)
        return r.json()

    def test_as_the_reference_has_them(self):
        png = bytes(range(256)) * 5
        got = self.step((png,), (b"<b>x</b>", "text/html", True))
        self.assertEqual(got["artifacts"], [
            {"type": "image/png",
             "dataB64": base64.b64encode(png).decode()},
            {"type": "text/html", "data": "<b>x</b>"}])
        self.assertFalse(got["run"]["truncated"])

    def test_other_types(self):
        got = self.step((b"<svg/>", "image/svg+xml", True),
                        (b"$x$", "text/latex", True), (b"", "text/plain", True),
                        (b"", "image/jpeg"), (b"{}", "application/json", True))
        self.assertEqual(got["artifacts"], [
            {"type": "image/svg+xml", "data": "<svg/>"},
            {"type": "text/latex", "data": "$x$"},
            {"type": "text/plain", "data": ""},
            {"type": "image/jpeg", "dataB64": ""},
            {"type": "application/json", "data": "{}"}])

    def test_none(self):
        self.assertNotIn("artifacts", self.step())

    def test_text(self):
        """Any bytes become well-formed text."""
        for raw, told in ((b'"\\\n\t\0\x7f', '"\\\n\t\0\x7f'),
                          ("\u4e2d\U0001f600".encode(), "\u4e2d\U0001f600"),
                          (b"a\xffb\xe4\xb8", "a\ufffdb\ufffd"),
                          (b"</script>\xe2\x80\xa8", "</script>\u2028")):
            got = self.step((raw, "text/html", True))
            self.assertEqual(got["artifacts"][0]["data"], told)

    def test_the_largest(self):
        png, html = b"\x89" * (2 * MIB // 4 * 3), b"x" * 2 * MIB
        got = self.step(*[(png,), (html, "text/html", True)] * 4)
        self.assertEqual(len(got["artifacts"]), 8)
        for i, a in enumerate(got["artifacts"]):
            self.assertEqual(len(a["data" if i % 2 else "dataB64"]), 2 * MIB)
        self.assertFalse(got["run"]["truncated"])

    def test_the_largest_in_a_stream(self):
        html = b"x" * 2 * MIB

        def script(call):
            call.started()
            for _ in range(8):
                call.artifact(html, "text/html", True)
            call.done(kernel=ALIVE)
        self.runner.on_run = script
        name, data = self.kernel().step(code="", headers=SSE).events()[-1]
        self.assertEqual((name, len(json.loads(data)["artifacts"])),
                         ("done", 8))

    def test_dropped(self):
        got = self.step((b"x",), dropped=True)
        self.assertEqual(len(got["artifacts"]), 1)
        self.assertTrue(got["run"]["truncated"])

    def test_text_that_grows_in_json(self):
        """2 MiB of NUL are 12 MiB of JSON."""
        got = self.step((b"\0" * 2 * MIB, "text/html", True), (b"x",))
        self.assertEqual(got["artifacts"], [
            {"type": "image/png", "dataB64": "eA=="}])
        self.assertTrue(got["run"]["truncated"])

    def test_half_an_artifact(self):
        """Its kernel was killed."""
        def script(call):
            call.started()
            call.artifact(b"whole")
            call.send(frame(ARTIFACT, text("image/png") + b"\0\5\0\0\0"),
                      frame(ARTIFACT_DATA, b"abc"))
            call.done(kernel=KILLED, exit_code=137, signal=9)
        self.runner.on_run = script
        got = self.kernel().step(code="").json()
        self.assertEqual([a["dataB64"] for a in got["artifacts"]],
                         [base64.b64encode(b"whole").decode()])
        self.assertTrue(got["run"]["truncated"])

    def test_what_the_runner_must_not_send(self):
        def head(size, kind="image/png", is_text=0):
            return frame(ARTIFACT, text(kind) + bytes([is_text]) +
                         size.to_bytes(4, "little"))
        data = frame(ARTIFACT_DATA, b"abc")
        for frames in (data, head(3) + head(3), head(2) + data,
                       head(0) + data, head(3) + frame(ARTIFACT_DATA),
                       head(3) + data + data, head(0) * 9,
                       head(2 * MIB + 1, is_text=1), head(2 * MIB),
                       head(3, ""), head(3, "image"), head(3, "a/b\n"),
                       head(3, "a/" + "b" * 95), head(3, is_text=2),
                       frame(ARTIFACT)):
            def script(call):
                call.started()
                call.send(frames)
                call.done(kernel=ALIVE)
            self.runner.on_run = script
            r = self.kernel().step(code="")
            self.assertEqual((r.status, r.json()["error"]),
                             (503, "sandbox_failed"), frames[:64])

    def test_before_the_start_and_of_no_kernel(self):
        self.runner.on_run = lambda c: (c.artifact(b"x"), step_ok(c))
        self.assertEqual(self.kernel().step(code="").status, 503)

        def script(call):
            call.started()
            call.artifact(b"x")
            call.done()
        self.runner.on_run = script
        self.assertEqual(self.create().step(code="").status, 503)
        self.assertEqual(self.service.execute(
            language="py", code="").status, 503)

    def test_slow_readers_of_large_answers(self):
        """All get their answer; they are not all held at the same time."""
        html = b"x" * MIB

        def script(call):
            call.started()
            call.artifact(html, "text/html", True)
            call.done(kernel=ALIVE)
        self.runner.on_run = script
        s = self.kernel()
        found = []
        threads = [threading.Thread(target=lambda: found.append(
            len(s.step(code="").json()["artifacts"]))) for _ in range(24)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(found, [1] * 24)


class Look(KernelCase):
    def test_shape(self):
        s = self.kernel(ttlSec=600)
        self.kernels.facts[s.id].update(busy=True, steps=5)
        facts = s.request("GET").json()
        self.assertEqual(list(facts), [
            "id", "runtime", "version", "type", "createdAt", "lastUsedAt",
            "expiresAt", "ttlSec", "volumeId", "busy", "disk", "limits",
            "kernel"])
        self.assertTrue(facts["busy"])
        self.assertEqual(facts["limits"], {
            "memoryBytes": 512 << 20, "cpus": 1.5, "pids": 128,
            "outputBytes": 65536, "wallTimeMs": 15000})
        self.assertEqual(facts["kernel"], {
            "state": "resident", "steps": 5, "network": True,
            "memoryBytes": 40 << 20, "checkpointBytes": 0})

    def test_states(self):
        s = self.kernel()
        for state, word, reason in (
                (1, "starting", ""), (2, "resident", "an open connection"),
                (3, "hibernated", ""), (4, "dead", 'os._exit(3) "\n')):
            self.kernels.facts[s.id] = {
                "state": state, "memory": -1, "checkpoint": 7,
                "reason": reason}
            r = s.request("GET")
            self.assertEqual(r.status, 200)
            want = {"state": word, "steps": 0, "network": True,
                    "memoryBytes": None, "checkpointBytes": 7}
            if reason:
                want["reason"] = reason
            self.assertEqual(r.json()["kernel"], want)

    def test_a_dead_one_warns_of_nothing(self):
        s = self.kernel()
        self.kernels.facts[s.id] = {"network": False}
        self.assertEqual(s.request("GET").json()["warning"], WARNING)
        self.kernels.facts[s.id] = {"network": False, "state": DEAD}
        self.assertNotIn("warning", s.request("GET").json())

    def test_head(self):
        r = self.kernel().request("HEAD")
        self.assertEqual((r.status, r.body), (200, b""))

    def test_lost(self):
        for use in (lambda s: s.request("GET"),
                    lambda s: s.request("POST", "/interrupt"),
                    lambda s: s.request("POST", "/fork")):
            s = self.kernel()
            os.rmdir(self.workspaces.root(1, s.id))
            self.assert_error(use(s), 404, NOT_FOUND)
            self.assertNotIn((s.id,), self.live())

    def test_the_runner_is_away(self):
        s = self.kernel()
        self.runner.on_kernel = lambda call: None
        for r in (s.request("GET"), s.request("POST", "/interrupt"),
                  s.request("POST", "/fork")):
            self.assertEqual((r.status, r.json()["error"]),
                             (503, "sandbox_failed"))
        self.assertIn((s.id,), self.live())


class Interrupt(KernelCase):
    def test_answer(self):
        s = self.kernel()
        for busy in (True, False):
            self.kernels.facts[s.id]["busy"] = busy
            r = s.request("POST", "/interrupt")
            self.assertEqual((r.status, r.json()),
                             (200, {"interrupted": busy}))
            self.assert_common(r)
            q = self.kernels.asked[-1]
            self.assertEqual((q["op"], q["id"], q["runtime"], q["network"]),
                             (INTERRUPT, s.id, b"", False))
            self.assertEqual(q["request_id"], r.headers["x-request-id"])

    def test_body_is_nobodys_business(self):
        s = self.kernel()
        for body in (b"", b"{}", b"nonsense"):
            self.assertEqual(s.request("POST", "/interrupt", body).status, 200)

    def test_while_a_step_runs(self):
        s = self.kernel()
        running, stop = threading.Event(), threading.Event()

        def run(call):
            call.started()
            running.set()
            stop.wait(10)
            call.done(kernel=ALIVE, exit_code=1, interrupted=True)

        def interrupt(call):
            stop.set()
            call.info(busy=True)
        self.runner.on_run, self.runner.on_kernel = run, interrupt
        found = []
        t = threading.Thread(target=lambda: found.append(s.step(code="")))
        t.start()
        running.wait(10)
        r = s.request("POST", "/interrupt")
        t.join()
        self.assertEqual(r.json(), {"interrupted": True})
        self.assertTrue(found[0].json()["run"]["interrupted"])

    def test_dead(self):
        s = self.kernel()
        self.refuse("kernel_dead", 0, "it left")
        self.assert_error(s.request("POST", "/interrupt"), 409,
                          error("kernel_dead", "it left"))

    def test_filesystem(self):
        s = self.create()
        for rest in ("/interrupt", "/fork"):
            self.assert_error(s.request("POST", rest), 400, NO_KERNEL)
        self.assertEqual(self.kernels.asked, [])

    def test_methods(self):
        s = self.kernel()
        for rest in ("/interrupt", "/fork"):
            for method in ("GET", "HEAD", "PUT", "DELETE"):
                r = s.request(method, rest)
                self.assertEqual(r.status, 405)
                self.assertEqual(r.headers["allow"], "POST, OPTIONS")
            r = s.request("OPTIONS", rest)
            self.assertEqual((r.status, r.body), (204, b""))
            self.assertEqual(s.request("POST", rest + "/").status, 404)


class Fork(KernelCase):
    def test_answer(self):
        s = self.kernel(ttlSec=700, network=False)
        s.fs("PUT", "a", b"1")
        r = s.request("POST", "/fork")
        self.assertEqual(r.status, 201)
        self.assert_common(r)
        facts = r.json()
        self.assertEqual(list(facts), list(s.facts))
        self.assertEqual(r.headers["location"], "/v1/sessions/" + facts["id"])
        self.assertNotEqual(facts["id"], s.id)
        self.assertNotEqual(facts["token"], s.token)
        for name in ("runtime", "version", "type", "ttlSec", "kernel"):
            self.assertEqual(facts[name], s.facts[name])
        self.assertGreaterEqual(facts["createdAt"], s.facts["createdAt"])
        q = self.kernels.asked[-1]
        self.assertEqual((q["op"], q["id"], q["new_id"], q["network"]),
                         (FORK, s.id, facts["id"], False))
        f = Session(self, facts)
        self.assertEqual(f.fs("GET", "a").body, b"1")
        f.step(code="")
        job = self.runner.calls[-1]
        self.assertEqual((job["session"], job["network"]),
                         (f.id.encode(), False))
        self.assert_error(f.request("GET", "", headers={
            "X-Session-Token": s.token}), 401,
            {"error": "invalid_session_token"})
        self.assertEqual(f.request("DELETE").status, 204)
        self.assertEqual(s.fs("GET", "a").body, b"1")

    def test_body(self):
        s = self.kernel(ttlSec=700)
        for body, ttl in ((b"", 700), (b"{}", 700), (b'{"ttlSec":null}', 700),
                          (b'{"ttlSec":800,"x":1}', 800),
                          (b'{"ttlSec":1}', 140), (b'{"ttlSec":1e30}', None),
                          (b'{"ttlSec":99999999}', 86400)):
            r = s.request("POST", "/fork", body)
            if ttl is None:
                self.assert_error(r, 400, error(
                    "invalid_request", "ttlSec must be an integer"))
            else:
                self.assertEqual((r.status, r.json()["ttlSec"]), (201, ttl))
        for body in (b"{", b"[]", b"x", b" "):
            r = s.request("POST", "/fork", body)
            self.assertEqual((r.status, r.json()["error"]),
                             (400, "invalid_json"))

    def test_refused(self):
        s = self.kernel()
        before = sorted(self.live())
        self.workspaces.asked.clear()
        for kind, status, retry in (
                ("kernel_dead", 409, None), ("session_busy", 429, "1"),
                ("too_many_kernels", 429, "1"), ("quota_exceeded", 413, None),
                ("storage_full", 507, None), ("sandbox_failed", 503, None)):
            self.refuse(kind, 0, "why")
            r = s.request("POST", "/fork")
            self.assert_error(r, status, error(kind, "why"))
            self.assertEqual(r.headers.get("retry-after"), retry)
        self.assertEqual(sorted(self.live()), before)
        self.assertEqual(len(self.asked("remove")), 6)
        self.assertNotIn(s.id, [q.id for q in self.asked("remove")])

    def test_volume(self):
        s = self.kernel(volumeId=self.volume()["id"])
        self.assert_error(s.request("POST", "/fork"), 409, error(
            "volume_busy", "the session holds a volume, which one session at "
            "a time may do: it cannot be forked"))
        self.assertEqual(self.asked_of(FORK), [])

    def test_forks_of_forks(self):
        s = self.kernel()
        for _ in range(3):
            s = Session(self, s.request("POST", "/fork").json())
        self.assertEqual(len(self.asked_of(FORK)), 3)


class End(KernelCase):
    def test_delete(self):
        s = self.kernel()
        r = s.request("DELETE")
        self.assertEqual((r.status, r.body), (204, b""))
        self.assertEqual([q.id for q in self.asked("remove")], [s.id])
        self.assertFalse(os.path.exists(self.workspaces.root(1, s.id)))
        for r in (s.request("GET"), s.step(code=""),
                  s.request("POST", "/interrupt"),
                  s.request("POST", "/fork"), s.request("DELETE")):
            self.assert_error(r, 404, NOT_FOUND)

    def test_delete_of_a_dead_one(self):
        s = self.kernel()
        self.kernels.facts[s.id] = {"state": DEAD, "reason": "x"}
        self.assertEqual(s.request("DELETE").status, 204)

    def test_expired(self):
        s = self.kernel()
        self.sql("UPDATE sessions SET expires_ms = 1 WHERE id = ?", s.id)
        for rest in ("/exec", "/interrupt", "/fork"):
            self.assert_error(s.request("POST", rest, b'{"code":""}'), 404,
                              NOT_FOUND)
        os.utime(self.service.path("state/sweep.lock"), (1, 1))
        self.service.cgi("GET", "/healthz")
        self.assertFalse(os.path.exists(self.workspaces.root(1, s.id)))

    def test_a_step_moves_the_end_before_it_runs(self):
        s = self.kernel(ttlSec=600)
        self.sql("UPDATE sessions SET expires_ms = expires_ms - 470000, "
                 "used_ms = used_ms - 470000 WHERE id = ?", s.id)
        left = []

        def run(call):
            left.append(self.sql("SELECT expires_ms - used_ms, used_ms FROM "
                                 "sessions WHERE id = ?", s.id)[0])
            step_ok(call)
        before = self.sql("SELECT used_ms FROM sessions WHERE id = ?",
                          s.id)[0][0]
        self.runner.on_run = run
        s.step(code="")
        self.assertGreater(left[0][1], before)


class Cgi(KernelCase):
    """The same by plain CGI, a process for each request."""

    def call(self, method, uri, body=None, token=None):
        return self.service.cgi(method, uri, body, {
            "X-Session-Token": token} if token else {})

    def test_all(self):
        r = self.call("POST", "/v1/sessions",
                      '{"runtime":"live","type":"kernel"}')
        self.assertEqual(r.status, 201)
        path = "/v1/sessions/" + r.json()["id"]
        token = r.json()["token"]
        self.runner.on_run = lambda c: (c.started(), c.artifact(b"x"),
                                        c.done(kernel=ALIVE))
        r = self.call("POST", path + "/exec", '{"code":""}', token)
        self.assertEqual((r.json()["kernel"], len(r.json()["artifacts"])),
                         ("alive", 1))
        for rest, status in (("/interrupt", 200), ("/fork", 201)):
            r = self.call("POST", path + rest, None, token)
            self.assertEqual(r.status, status, rest)
        self.assertEqual(self.call("GET", path, None, token).json()[
            "kernel"]["state"], "resident")
        self.assertEqual(self.call("DELETE", path, None, token).status, 204)


class Figures(KernelCase):
    def test_healthz(self):
        found = self.service.request("GET", "/healthz").json()
        self.assertEqual(found["kernels"], {"used": 60, "max": 6})

    def test_metrics(self):
        r = self.service.request("GET", "/metrics").body.decode()
        found = dict(line.rsplit(" ", 1) for line in r.splitlines()
                     if not line.startswith("#"))
        names = ["isobox_kernels_created_total", "isobox_kernel_steps_total",
                 "isobox_kernel_forks_total",
                 "isobox_kernel_hibernations_total",
                 "isobox_kernel_hibernation_seconds_total",
                 "isobox_kernel_restores_total",
                 "isobox_kernel_restore_seconds_total",
                 "isobox_kernel_restores_refused_total",
                 "isobox_kernel_evictions_total"] + [
            'isobox_kernel_deaths_total{reason="%s"}' % w for w in (
                "exit", "timeout", "oom", "failed", "idle", "life",
                "restore")]
        self.assertEqual([found[n] for n in names], [
            "66", "67", "68", "69", "0.000070", "71", "0.000072", "73", "74",
            "75", "76", "77", "78", "79", "80", "81"])
        self.assertEqual([found["isobox_" + n] for n in (
            'kernels{state="resident"}', "kernel_slots",
            'kernels{state="hibernated"}', "kernels_pinned",
            "kernels_waiting", "kernel_checkpoint_bytes")],
            ["60", "61", "62", "63", "64", "65"])
        self.assertIn('route="/v1/sessions/{id}/fork"', r)


class Keys(KernelCase):
    settings = {"api_keys": ["key-a", "key-b"]}
    A, B = {"X-API-Key": "key-a"}, {"X-API-Key": "key-b"}

    def test_tenants(self):
        s = self.kernel(self.A)
        for rest in ("/interrupt", "/fork", "/exec"):
            r = s.request("POST", rest, b'{"code":""}', self.B)
            self.assert_error(r, 404, NOT_FOUND)
            r = s.request("POST", rest, b'{"code":""}', {"X-API-Key": None})
            self.assert_error(r, 401, error("unauthorized"))
        r = s.request("POST", "/fork")
        f = Session(self, r.json(), self.A)
        self.assertEqual(f.request("GET").status, 200)
        self.assert_error(f.request("GET", headers=self.B), 404, NOT_FOUND)

    def test_the_runner_can_tell_them_apart(self):
        for headers in (self.A, self.A, self.B):
            self.kernel(headers)
        one, same, other = [q["tenant"] for q in self.kernels.asked]
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)


class Rates(KernelCase):
    settings = {"rate_per_min": 1, "rate_burst": 3}

    def test_classes(self):
        """Forks count as creations, steps as runs, interrupts as look-ups."""
        s = self.kernel()
        self.assertEqual([s.request("POST", "/fork").status
                          for _ in range(3)], [201, 201, 429])
        self.assertEqual([s.step(code="").status for _ in range(4)],
                         [200, 200, 200, 429])
        self.assertEqual({s.request("POST", "/interrupt").status
                          for _ in range(20)}, {200})


if __name__ == "__main__":
    unittest.main()
