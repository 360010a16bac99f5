# SPDX-License-Identifier: Apache-2.0
"""POST, GET and DELETE of sessions and their steps, with a fake runner."""

import json
import os
import re
import threading
import time
import unittest

import fake_workspaces
from again import again
from fake_runner import run_ok
from service import Service
from session_case import BAD_TOKEN, NOT_FOUND, Session, SessionCase

ID = r"\A[A-Za-z0-9_-]{22}\Z"
TOKEN = r"\A[A-Za-z0-9_-]{43}\Z"
TIME = r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z"


def error(word, detail=None):
    return {"error": word} if detail is None else {"error": word,
                                                   "detail": detail}


class Create(SessionCase):
    def test_shape(self):
        r = self.post(runtime="py")
        self.assertEqual(r.status, 201)
        self.assert_common(r)
        facts = r.json()
        self.assertEqual(list(facts), [
            "id", "token", "runtime", "version", "type", "createdAt",
            "lastUsedAt", "expiresAt", "ttlSec", "volumeId"])
        self.assertRegex(facts["id"], ID)
        self.assertRegex(facts["token"], TOKEN)
        self.assertEqual(
            [facts[k] for k in ("runtime", "version", "type", "ttlSec",
                                "volumeId")],
            ["python", "3.14-agent", "filesystem", 86400, None])
        for name in ("createdAt", "lastUsedAt", "expiresAt"):
            self.assertRegex(facts[name], TIME)
        self.assertEqual(r.headers["location"], "/v1/sessions/" + facts["id"])
        q, = [q for q in self.asked("create") if q.id == facts["id"]]
        self.assertEqual(q.kind, 1)
        self.assertEqual(q.request_id, r.headers["x-request-id"])

    def test_ids_and_tokens_are_fresh(self):
        found = [self.create().facts for _ in range(20)]
        self.assertEqual(len({f["id"] for f in found}), 20)
        self.assertEqual(len({f["token"] for f in found}), 20)

    def test_the_token_is_stored_nowhere(self):
        s = self.create()
        s.request("GET")
        for folder in ("state", "workspaces"):
            for at, _, names in os.walk(self.service.path(folder)):
                for name in names:
                    with open(os.path.join(at, name), "rb") as f:
                        self.assertNotIn(s.token.encode(), f.read(), name)
        self.assertNotIn(s.token, self.service.log())
        self.assertNotIn(s.token, json.dumps(self.service.access_log()))

    def test_runtime(self):
        for body in ({}, {"runtime": ""}, {"runtime": None}):
            self.assert_error(self.post(**body), 400,
                              error("runtime_required"))
        self.assert_error(self.post(runtime="x"), 400, error(
            "unknown_language",
            '"x" is not a known runtime; see GET /runtimes'))
        self.assert_error(self.post(runtime=7), 400, error(
            "invalid_request", "runtime must be a string"))
        r = self.post(runtime="python", version="2")
        self.assertEqual((r.status, r.json()["error"]),
                         (400, "unknown_language"))
        self.assertEqual(self.create(version="3.11").facts["version"], "3.11")
        self.assert_error(self.post(runtime="lost"), 400, error(
            "unknown_language",
            '"lost" is not a known runtime; see GET /runtimes'))

    def test_type(self):
        self.create(type="filesystem")
        self.create(type=None)
        self.assert_error(self.post(runtime="py", type="kernel"), 400, error(
            "kernel_unsupported", "python has no kernel"))
        for bad in ("", "Kernel", "x"):
            self.assert_error(self.post(runtime="py", type=bad), 400, error(
                "invalid_request",
                'type must be "filesystem" or "kernel"'))
        self.assert_error(self.post(runtime="py", type=1), 400, error(
            "invalid_request", "type must be a string"))

    def test_ttl_is_clamped(self):
        for wish, given in ((60, 60), (59, 60), (0, 60), (-5, 60),
                            (3600, 3600), (86400, 86400), (86401, 86400),
                            (10 ** 30, 86400), (None, 86400)):
            facts = self.create(ttlSec=wish).facts
            self.assertEqual(facts["ttlSec"], given, wish)
        for bad in ("60", 1.5, [], True):
            self.assert_error(self.post(runtime="py", ttlSec=bad), 400, error(
                "invalid_request", "ttlSec must be an integer"))

    def test_json(self):
        for body in (b"", b"{", b"[]", b'{"runtime":"py"}x'):
            r = self.post(body)
            self.assertEqual((r.status, r.json()["error"]),
                             (400, "invalid_json"), body)
        r = self.post(b'{"runtime":"py","x":"' + b"a" * (256 << 10) + b'"}')
        self.assert_error(r, 400, error(
            "invalid_json", "the body is larger than 262144 bytes"))
        self.create(unknown=[{}], network=False)
        self.assert_error(self.post(runtime="py", network="no"), 400, error(
            "invalid_request", "network must be true or false, or an object "
            "with a list of host names: allow"))
        self.assert_error(self.post(runtime="py", network={"allow": ["a.b"]}),
                          400, error(
            "invalid_request",
            "network.allow is of a kernel; here each step says it"))

    def test_methods(self):
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            r = self.service.request(method, "/v1/sessions")
            self.assert_error(r, 405, error("method_not_allowed"))
            self.assertEqual(r.headers["allow"], "POST, OPTIONS")
        r = self.service.request("POST", "/v1/sessions/")
        self.assert_error(r, 404, error("not_found"))

    def test_the_runner_refuses(self):
        def full(call):
            call.fail("storage_full", 0, "all sessions have 10 GiB")
        live = "SELECT count(*) FROM sessions WHERE ending_ms = 0"
        before = self.sql(live)
        self.runner.on_ws = full
        self.assert_error(self.post(runtime="py"), 507, error(
            "storage_full", "all sessions have 10 GiB"))
        self.assertEqual(self.sql(live), before)

    def test_the_runner_is_away(self):
        self.runner.on_ws = lambda call: None
        r = self.post(runtime="py")
        self.assertEqual((r.status, r.json()["error"]),
                         (503, "sandbox_failed"))


class Look(SessionCase):
    def test_shape(self):
        s = self.create(ttlSec=600)
        s.fs("PUT", "a", b"12345")
        self.workspaces.busy = True
        r = s.request("GET")
        self.assertEqual(r.status, 200)
        self.assert_common(r)
        facts = r.json()
        self.assertEqual(list(facts), [
            "id", "runtime", "version", "type", "createdAt", "lastUsedAt",
            "expiresAt", "ttlSec", "volumeId", "busy", "disk", "limits"])
        self.assertEqual(facts["disk"], {
            "usedBytes": 5, "quotaBytes": 512 << 20, "files": 1})
        self.assertEqual(facts["limits"], {
            "memoryBytes": 402653184, "cpus": 1.5, "pids": 128,
            "outputBytes": 65536, "wallTimeMs": 15000})
        self.assertEqual((facts["id"], facts["ttlSec"], facts["busy"]),
                         (s.id, 600, True))
        self.assertNotIn(s.token.encode(), r.raw)

    def test_head(self):
        s = self.create()
        r = s.request("HEAD")
        self.assertEqual((r.status, r.body), (200, b""))

    def test_a_look_is_no_use(self):
        s = self.create(ttlSec=60)
        self.age(s, 40)
        before = self.used(s)
        s.request("GET")
        self.assertEqual(self.used(s), before)

    def age(self, s, seconds):
        self.sql("UPDATE sessions SET used_ms = used_ms - ?, expires_ms = "
                 "expires_ms - ? WHERE id = ?", seconds * 1000,
                 seconds * 1000, s.id)

    def used(self, s):
        return self.sql("SELECT used_ms FROM sessions WHERE id = ?", s.id)

    def test_calls_are_use(self):
        s = self.create(ttlSec=60)
        for use in (lambda: s.step(code=""), lambda: s.fs("GET", ""),
                    lambda: s.fs("HEAD", ""), lambda: s.fs("PUT", "x", b""),
                    lambda: s.fs("DELETE", "x")):
            self.age(s, 40)
            before = self.used(s)
            self.assertIn(use().status, (200, 204))
            self.service.wait_for(lambda: self.used(s) != before, "use")
            left = self.sql("SELECT expires_ms - ? FROM sessions WHERE id = ?",
                            time.time() * 1000, s.id)[0][0]
            self.assertGreater(left, 50000)

    def test_use_soon_after_use_writes_nothing(self):
        s = self.create()
        before = self.used(s)
        for _ in range(20):
            s.step(code="")
        self.assertEqual(self.used(s), before)

    def test_a_step_does_not_outlive_its_session(self):
        """With less than a minute left the time is moved before the run."""
        s = self.create(ttlSec=600)
        self.age(s, 590)
        at = []

        def run(call):
            at.append(self.sql("SELECT expires_ms - ? FROM sessions "
                               "WHERE id = ?", time.time() * 1000, s.id)[0][0])
            run_ok(call)
        self.runner.on_run = run
        self.assertEqual(s.step(code="").status, 200)
        self.assertGreater(at[0], 60000)

    def test_expired(self):
        s = self.create(ttlSec=60)
        self.age(s, 61)
        for r in (s.request("GET"), s.step(code=""), s.fs("GET", ""),
                  s.fs("PUT", "x", b""), s.request("DELETE")):
            self.assert_error(r, 404, NOT_FOUND)

    def test_lost_workspace(self):
        """A record without a workspace is dead, and found out by its use."""
        for use in (lambda s: s.request("GET"), lambda s: s.fs("GET", ""),
                    lambda s: s.fs("PUT", "x", b"y")):
            s = self.create()
            os.rmdir(self.workspaces.root(1, s.id))
            self.assert_error(use(s), 404, NOT_FOUND)
            self.assertEqual(self.sql("SELECT count(*) FROM sessions WHERE "
                                      "id = ? AND ending_ms = 0", s.id),
                             [(0,)])

    def test_the_runner_is_away(self):
        s = self.create()
        self.runner.on_ws = lambda call: None
        r = s.request("GET")
        self.assertEqual((r.status, r.json()["error"]),
                         (503, "sandbox_failed"))


class Delete(SessionCase):
    def test_delete(self):
        s = self.create()
        s.fs("PUT", "a/b", b"1")
        r = s.request("DELETE")
        self.assertEqual((r.status, r.body), (204, b""))
        self.assertNotIn("content-length", r.headers)
        self.assertFalse(os.path.exists(self.workspaces.root(1, s.id)))
        self.assertEqual(
            self.sql("SELECT count(*) FROM sessions WHERE id = ?", s.id),
            [(0,)])
        for r in (s.request("DELETE"), s.request("GET"), s.step(code="")):
            self.assert_error(r, 404, NOT_FOUND)

    def test_together(self):
        """Of many DELETEs at once one is 204, none is a failure."""
        s = self.create()
        found = []
        threads = [threading.Thread(target=lambda: found.append(
            s.request("DELETE").status)) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(found), [204] + [404] * 7)

    def test_while_the_runner_is_away(self):
        """It has ended all the same; the sweep removes what is left."""
        s = self.create()
        self.runner.on_ws = lambda call: None
        self.assertEqual(s.request("DELETE").status, 204)
        self.runner.reset()
        self.assert_error(s.request("GET"), 404, NOT_FOUND)
        self.assertTrue(os.path.exists(self.workspaces.root(1, s.id)))
        self.sweep()
        self.assertFalse(os.path.exists(self.workspaces.root(1, s.id)))
        self.assertEqual(
            self.sql("SELECT count(*) FROM sessions WHERE id = ?", s.id),
            [(0,)])

    def sweep(self):
        """What the next CGI request does."""
        os.utime(self.service.path("state/sweep.lock"), (1, 1))
        self.service.cgi("GET", "/healthz")


class Steps(SessionCase):
    def test_job(self):
        v = self.volume()
        s = self.create(volumeId=v["id"], version="3.11")
        r = s.step(code="print(1)", stdin="in", args=["a", ""],
                   network=False, limits={"wallTimeMs": 1000, "cpus": 0.5},
                   files=[{"name": "pkg/m.py", "content": "eA==",
                           "encoding": "base64"}])
        self.assertEqual(r.status, 200)
        job, = self.runner.calls
        self.assertEqual(job["session"], s.id.encode())
        self.assertEqual(job["volume"], v["id"].encode())
        self.assertEqual((job["runtime"], job["version"]),
                         (b"python", b"3.11"))
        self.assertEqual(job["files"], [(b"pkg/m.py", b"x"),
                                        (b"main.py", b"print(1)")])
        self.assertEqual((job["entry"], job["args"], job["stdin"]),
                         (1, [b"a", b""], b"in"))
        self.assertEqual((job["network"], job["wall_time_ms"],
                          job["cpus_milli"]), (False, 1000, 500))
        self.assertEqual(job["request_id"].decode(),
                         r.headers["x-request-id"])

    def test_answer(self):
        """Word for word that of /execute."""
        s = self.create()
        self.runner.on_run = lambda c: run_ok(c, b"out", b"err", exit_code=3)
        step = s.step(code="")
        run = self.service.execute(language="python", code="")
        self.assertEqual(step.body, run.body)
        self.assertEqual(step.headers["server-timing"],
                         run.headers["server-timing"])
        self.assertEqual(self.runner.calls[0]["volume"], b"")

    def test_language_and_version_are_unknown_members(self):
        s = self.create()
        for more in ({"language": "rust"}, {"language": 7},
                     {"version": "nope"}, {"version": []}):
            r = s.step(code="", **more)
            self.assertEqual((r.status, r.json()["language"]),
                             (200, "python"))

    def test_stream(self):
        s = self.create()
        self.runner.on_run = lambda c: run_ok(c, b"out")
        for kw in ({"headers": {"Accept": "text/event-stream"}},
                   {"query": "?stream=1"}):
            r = s.step(code="", **kw)
            self.assertEqual(r.headers["content-type"], "text/event-stream")
            self.assertEqual([n for n, _ in r.events()], ["stdout", "done"])

    def test_errors_of_the_body(self):
        s = self.create()
        for body, status, answer in (
                (b"{}", 400, error("no_source",
                                   "provide `code` or `files`")),
                (b'{"code":1}', 400, error("invalid_request",
                                           "code must be a string")),
                (b'{"files":[{"name":"../x","content":""}]}', 400, None),
                (b"", 400, None), (b"nope", 400, None)):
            r = s.step(body)
            if answer is not None:
                self.assert_error(r, status, answer)
            self.assertEqual(r.status, status, body)
        self.assertEqual(self.runner.calls, [])
        r = s.step(b'{"code":"' + b"a" * (256 << 10) + b'"}')
        self.assert_error(r, 400, error(
            "invalid_json", "the body is larger than 262144 bytes"))

    def test_the_runner_refuses(self):
        s = self.create()
        for kind, status, retry in (
                ("session_busy", 429, 3), ("capacity", 429, 2),
                ("quota_exceeded", 413, 0), ("storage_full", 507, 0),
                ("volume_busy", 409, 0)):
            self.runner.on_run = lambda c: c.fail(kind, retry, "why")
            r = s.step(code="")
            self.assertEqual((r.status, r.json()["error"]), (status, kind))
            self.assertEqual(r.headers.get("retry-after"),
                             str(retry) if retry else None)
        self.runner.on_run = lambda c: c.fail("session_busy", 0, "")
        self.assertEqual(s.step(code="").headers["retry-after"], "1")

    def test_quota_ends_a_stream(self):
        s = self.create()

        def run(call):
            call.started()
            call.stdout(b"x")
            call.fail("quota_exceeded", 0, "the disk of the session is full")
        self.runner.on_run = run
        r = s.step(code="", headers={"Accept": "text/event-stream"})
        self.assertEqual(r.status, 200)
        name, data = r.events()[-1]
        self.assertEqual((name, json.loads(data)), ("error", error(
            "quota_exceeded", "the disk of the session is full")))
        self.assert_error(s.step(code=""), 413, error(
            "quota_exceeded", "the disk of the session is full"))

    def test_lost_workspace(self):
        s = self.create()
        self.runner.on_run = lambda c: c.fail("session_not_found", 0, "")
        self.assert_error(s.step(code=""), 404, NOT_FOUND)
        self.runner.reset()
        self.assert_error(s.step(code=""), 404, NOT_FOUND)

    def test_runtime_that_is_gone(self):
        s = self.create()
        self.sql("UPDATE sessions SET version = '1' WHERE id = ?", s.id)
        r = s.step(code="")
        self.assertEqual((r.status, r.json()["error"]),
                         (400, "unknown_language"))
        self.assertIsNone(s.request("GET").json()["limits"])

    def test_methods(self):
        s = self.create()
        for method in ("GET", "PUT", "DELETE"):
            r = s.request(method, "/exec")
            self.assert_error(r, 405, error("method_not_allowed"))

    def test_the_client_leaves(self):
        self.assertLess(again(self.leave, lambda took: took < 1), 1)

    def leave(self):
        """Seconds until the runner hears of it."""
        s = self.create()
        gone = []
        ready = threading.Event()

        def run(call):
            call.started()
            ready.set()
            gone.append(call.gone(5))
        self.runner.on_run = run
        import fcgi_client
        with fcgi_client.Connection(self.service.socket) as c:
            c.send(fcgi_client.message(
                "POST", "/v1/sessions/%s/exec" % s.id, '{"code":""}',
                {"X-Session-Token": s.token}))
            ready.wait(5)
        self.service.wait_for(lambda: gone, "end")
        self.assertIsNotNone(gone[0])
        return gone[0]


class Tokens(SessionCase):
    RESTS = (("GET", "", None), ("DELETE", "", None),
             ("POST", "/exec", '{"code":""}'), ("GET", "/fs", None),
             ("PUT", "/fs?path=x", b"y"), ("DELETE", "/fs?path=x", None),
             ("POST", "/interrupt", None), ("POST", "/fork", None))

    def test_wrong_and_missing(self):
        s = self.create()
        other = self.create()
        for token in (None, "", "x", other.token, s.token[:-1],
                      s.token + "x", s.token + " ", s.token.swapcase(),
                      "\u00e9" * 40, "x" * 4000):
            for method, rest, body in self.RESTS:
                r = s.request(method, rest, body,
                              {"X-Session-Token": token})
                self.assert_error(r, 401, BAD_TOKEN)
        self.assertEqual(s.request("GET").status, 200)
        self.assertEqual(self.asked("remove", "write", "delete"), [])

    def test_repeated(self):
        s = self.create()
        headers = [("X-Session-Token", s.token), ("X-Session-Token", "x")]
        for order in (headers, headers[::-1]):
            r = self.service.request("GET", "/v1/sessions/" + s.id, None,
                                     order)
            self.assert_error(r, 401, BAD_TOKEN)

    def test_unknown_ids(self):
        s = self.create()
        for bad in ("x", "A" * 22, s.id[:-1], s.id + "A", s.id.swapcase(),
                    "%00", s.id + "%00", "%2e%2e", "..%2f" + s.id,
                    s.id[:-1] + "%2F", "\u00e9" * 11, "a" * 4000):
            for method, rest, body in self.RESTS:
                r = self.service.request(
                    method, "/v1/sessions/" + bad + rest, body,
                    {"X-Session-Token": s.token})
                self.assert_error(r, 404, NOT_FOUND)

    def test_an_encoded_id_is_the_same(self):
        s = self.create()
        r = self.service.request(
            "GET", "/v1/sessions/%%%02X%s" % (ord(s.id[0]), s.id[1:]),
            headers={"X-Session-Token": s.token})
        self.assertEqual(r.status, 200)
        r = self.service.request(  # decoded once, not twice
            "GET", "/v1/sessions/%%25%02X%s" % (ord(s.id[0]), s.id[1:]),
            headers={"X-Session-Token": s.token})
        self.assert_error(r, 404, NOT_FOUND)


class Tenants(SessionCase):
    settings = {"api_keys": ["key-a", "key-b"]}
    A, B = {"X-API-Key": "key-a"}, {"X-API-Key": "key-b"}

    def test_no_key(self):
        r = self.post(runtime="py")
        self.assert_error(r, 401, error("unauthorized"))
        s = self.create(self.A)
        for headers in ({"X-API-Key": None}, {"X-API-Key": "nope"}):
            for method, rest, body in Tokens.RESTS:
                r = s.request(method, rest, body, headers)
                self.assert_error(r, 401, error("unauthorized"))

    def test_another_tenants_session_is_not_there(self):
        s = self.create(self.A)
        for method, rest, body in Tokens.RESTS:
            for token in (s.token, "wrong", None):
                r = s.request(method, rest, body,
                              {**self.B, "X-Session-Token": token})
                unknown = self.service.request(
                    method, "/v1/sessions/" + "A" * 22 + rest, body,
                    {**self.B, "X-Session-Token": s.token})
                self.assert_error(r, 404, NOT_FOUND)
                self.assertEqual(r.body, unknown.body)
                self.assertEqual(set(r.headers), set(unknown.headers))
        self.assertEqual(s.request("GET").status, 200)

    def test_by_bearer(self):
        s = self.create({"Authorization": "Bearer key-a"})
        self.assertEqual(s.request("GET").status, 200)
        r = s.request("GET", headers={"Authorization": None, **self.A})
        self.assertEqual(r.status, 200)


class Limits(SessionCase):
    settings = {"max_sessions": 3}

    def test_too_many(self):
        made = [self.create() for _ in range(3)]
        r = self.post(runtime="py")
        self.assertEqual((r.status, r.json()["error"]),
                         (429, "too_many_sessions"))
        self.assertRegex(r.headers["retry-after"], r"\A[1-9]\d*\Z")
        made.pop().request("DELETE")
        made.append(self.create())
        self.assertEqual(self.post(runtime="py").status, 429)
        self.sql("UPDATE sessions SET expires_ms = 1 WHERE id = ?",
                 made[0].id)
        os.utime(self.service.path("state/sweep.lock"), (1, 1))
        self.service.cgi("GET", "/healthz")
        made[0] = self.create()
        for s in made:
            s.request("DELETE")

    def test_without_a_runner_none_is_taken(self):
        path = self.service.runner.path
        os.rename(path, path + ".away")
        try:
            for _ in range(4):
                r = self.post(runtime="python")
                self.assertEqual((r.status, r.json()["error"]),
                                 (503, "sandbox_failed"))
        finally:
            os.rename(path + ".away", path)
        self.assertEqual(self.sql("SELECT count(*) FROM sessions"), [(0,)])
        self.create().request("DELETE")


class TenantLimits(SessionCase):
    settings = {"max_sessions_per_tenant": 2,
                "api_keys": ["key-a", "key-b"]}
    A, B = {"X-API-Key": "key-a"}, {"X-API-Key": "key-b"}

    def test_nobody_takes_them_all(self):
        for _ in range(2):
            self.create(self.A)
        r = self.post(None, self.A, runtime="py")
        self.assert_error(r, 429, error("too_many_sessions",
                                        "you have 2 sessions already"))
        self.create(self.B)


class Rates(SessionCase):
    settings = {"rate_per_min": 1, "rate_burst": 2}

    def test_classes(self):
        """Steps count as runs, creations by themselves, files twenty-fold."""
        limited = error("rate_limited")
        remote = {"remote": "203.0.113.1"}
        s = self.create()
        self.create()
        self.assert_error(self.post(runtime="py"), 429, limited)
        for _ in range(2):
            self.assertEqual(s.step(code="").status, 200)
        r = s.step(code="")
        self.assert_error(r, 429, limited)
        self.assertIn("retry-after", r.headers)
        self.assert_error(self.service.execute(language="py", code=""), 429,
                          limited)
        for _ in range(40):
            self.assertEqual(s.fs("GET", "").status, 200)
        self.assert_error(s.fs("GET", ""), 429, limited)
        self.assertEqual(s.request("DELETE").status, 204)
        self.assertEqual(s.request("GET", **remote).status, 404)


class Sweep(SessionCase):
    @classmethod
    def setUpClass(cls):
        """The service sweeps at its start: not in the middle of a test."""
        super().setUpClass()
        cls.service.wait_for(lambda: any(
            q.op == "list" and q.kind == 1
            for q in list(cls.service.workspaces.asked)), "first sweep")

    def due(self):
        os.utime(self.service.path("state/sweep.lock"), (1, 1))

    def test_expiry_by_cgi(self):
        v = self.volume()
        s = self.create(volumeId=v["id"])
        keep = self.create()
        self.sql("UPDATE sessions SET expires_ms = 1 WHERE id = ?", s.id)
        r = self.post(runtime="py", volumeId=v["id"])
        self.assert_error(r, 409, error("volume_busy",
                                        "another session holds the volume"))
        self.service.cgi("GET", "/healthz")  # a moment after the last
        self.assertTrue(os.path.exists(self.workspaces.root(1, s.id)))
        self.due()
        self.service.cgi("GET", "/healthz")
        self.assertFalse(os.path.exists(self.workspaces.root(1, s.id)))
        self.assertTrue(os.path.exists(self.workspaces.root(1, keep.id)))
        self.create(volumeId=v["id"])

    def test_one_that_cannot_be_removed(self):
        """The others are, sooner or later."""
        bad, *others = sessions = [self.create() for _ in range(3)]

        def serve(call):
            q = fake_workspaces.Request(call.payload)
            if (q.op, q.id) == ("remove", bad.id):
                call.fail("internal_error", 0, "cannot be removed")
            else:
                self.runner.serve_ws(call)
        self.runner.on_ws = serve
        for s in sessions:  # in this order they are found
            self.sql("UPDATE sessions SET ending_ms = ? WHERE id = ?",
                     1 + sessions.index(s), s.id)
        for _ in range(60):
            self.due()
            self.service.cgi("GET", "/healthz")
            if not any(os.path.exists(self.workspaces.root(1, s.id))
                       for s in others):
                break
        else:
            self.fail("one that cannot be removed keeps the others")
        self.assertTrue(os.path.exists(self.workspaces.root(1, bad.id)))

    def test_strays(self):
        """A workspace that no session has goes; a volume stays."""
        os.mkdir(self.workspaces.root(1, "stray"))
        os.mkdir(self.workspaces.root(2, "stray"))
        s = self.create()
        self.due()
        self.service.cgi("GET", "/healthz")
        self.assertFalse(os.path.exists(self.workspaces.root(1, "stray")))
        self.assertTrue(os.path.exists(self.workspaces.root(2, "stray")))
        self.assertTrue(os.path.exists(self.workspaces.root(1, s.id)))

    def test_one_at_a_time(self):
        import fcntl
        s = self.create()
        self.sql("UPDATE sessions SET expires_ms = 1 WHERE id = ?", s.id)
        with open(self.service.path("state/sweep.lock"), "a") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            self.due()
            self.service.cgi("GET", "/healthz")
            self.assertTrue(os.path.exists(self.workspaces.root(1, s.id)))
        self.service.cgi("GET", "/healthz")
        self.assertFalse(os.path.exists(self.workspaces.root(1, s.id)))


class Start(unittest.TestCase):
    def test_sweeps_at_the_start(self):
        """What an earlier life left half done."""
        service = Service()
        try:
            service.start()
            r = service.request("POST", "/v1/sessions", '{"runtime":"py"}')
            s = r.json()["id"]
            service.runner.on_ws = lambda call: None
            r = service.request("DELETE", "/v1/sessions/" + s, None,
                                {"X-Session-Token": r.json()["token"]})
            self.assertEqual(r.status, 204)
            service.stop()
            service.runner.reset()
            os.utime(service.path("state/sweep.lock"), (1, 1))
            service.start()
            service.wait_for(lambda: not os.path.exists(
                service.workspaces.root(1, s)), "sweep")
            service.wait_for(
                lambda: b"\nisobox_sessions_swept_total 1\n" in
                service.request("GET", "/metrics").body, "count")
        finally:
            service.close()


class Metrics(SessionCase):
    def counts(self):
        text = self.service.request("GET", "/metrics").body.decode()
        return {m.group(1): int(m.group(2)) for m in re.finditer(
            r"^isobox_((?:sessions?|volumes|file)[a-z_]*) (\d+)$", text,
            re.M)}

    def test_counts(self):
        before = self.counts()
        v = self.volume()
        s = self.create(volumeId=v["id"])
        s.step(code="")
        s.fs("PUT", "x", b"12345")
        s.fs("GET", "x")
        s.fs("GET", "x", headers={"Range": "bytes=0-1"})
        during = self.counts()
        s.request("DELETE")
        self.service.request("DELETE", "/v1/volumes/" + v["id"])
        after = self.counts()
        self.assertEqual(
            {k: during[k] - before[k] for k in before},
            {"sessions": 1, "volumes": 1, "sessions_created_total": 1,
             "sessions_deleted_total": 0, "sessions_swept_total": 0,
             "session_steps_total": 1, "file_received_bytes_total": 5,
             "file_sent_bytes_total": 7, "volumes_created_total": 1,
             "volumes_deleted_total": 0})
        self.assertEqual(
            {k: after[k] - during[k] for k in before if after[k] !=
             during[k]},
            {"sessions": -1, "volumes": -1, "sessions_deleted_total": 1,
             "volumes_deleted_total": 1})


class Cgi(SessionCase):
    """Each request a process of its own."""

    def request(self, method, uri, body=None, headers=()):
        r = self.service.cgi(method, uri, body, headers)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r

    def test_life(self):
        r = self.request("POST", "/v1/sessions", '{"runtime":"py"}')
        self.assertEqual(r.status, 201)
        s = r.json()
        token = {"X-Session-Token": s["token"]}
        uri = "/v1/sessions/" + s["id"]
        self.assertEqual(self.request("GET", uri, None, token).status, 200)
        self.assertEqual(self.request("GET", uri).status, 401)
        data = os.urandom(3 << 20)
        r = self.request("PUT", uri + "/fs?path=d/f", data, token)
        self.assertEqual((r.status, r.json()), (200, {"path": "d/f",
                                                      "bytes": len(data)}))
        r = self.request("GET", uri + "/fs?path=d/f", None, token)
        self.assertEqual(r.body, data)
        r = self.request("POST", uri + "/exec", '{"code":""}', token)
        self.assertEqual(r.status, 200)
        r = self.request("DELETE", uri, None, token)
        self.assertEqual((r.status, r.body), (204, b""))


if __name__ == "__main__":
    unittest.main()
