# SPDX-License-Identifier: Apache-2.0
"""Sessions, their files and volumes against the real service: real sandboxes,
real front servers."""

import io
import json
import os
import sqlite3
import stat
import subprocess
import threading
import time
import unittest
import urllib.parse
import zipfile

from front import KINDS
from harness import Service, wait_for

MIB = 1 << 20
RUNTIME = "python-slim"


class Session:
    """A session by HTTP."""

    def __init__(self, client, **members):
        self.client = client
        members.setdefault("runtime", RUNTIME)
        r = client.post("/v1/sessions", members)
        if r.status != 201:
            raise AssertionError("no session: %r" % r)
        self.facts = r.json()
        self.id = self.facts["id"]
        self.path = "/v1/sessions/" + self.id
        self.token = [("X-Session-Token", self.facts["token"])]

    def request(self, method, rest="", body=None, headers=(), **kw):
        return self.client.request(method, self.path + rest,
                                   self.token + list(headers), body, **kw)

    def step(self, code, **members):
        return self.client.post(self.path + "/exec",
                                dict(members, code=code), self.token)

    def run(self, code, **members):
        """The `run` of a step that must have run."""
        r = self.step(code, **members)
        if r.status != 200:
            raise AssertionError("no step: %r" % r)
        return r.json()["run"]

    def open_stream(self, code, **members):
        c = self.client.open()
        c.request("POST", self.path + "/exec", self.client.headers +
                  self.token + [("Accept", "text/event-stream")],
                  json.dumps(dict(members, code=code)).encode())
        return c

    def fs(self, method, path="", body=None, more="", headers=(), **kw):
        return self.request(
            method, "/fs?path=" + urllib.parse.quote(path) + more,
            body, headers, **kw)

    def end(self):
        return self.request("DELETE").status


class SessionCase(unittest.TestCase):
    kind = "caddy"
    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.service = Service(cls.kind, **cls.settings)
        cls.addClassCleanup(cls.service.stop)
        cls.service.start()
        cls.client = cls.service.client()

    def session(self, **members):
        s = Session(self.client, **members)
        self.addCleanup(s.end)
        return s

    def sweep(self):
        """What a new process of the web side does first."""
        os.utime(self.service.path("state", "sweep.lock"), (1, 1))
        self.service.fcgi.terminate()
        self.service.fcgi.wait()
        self.service.start_fcgi()
        self.service.wait_ready()

    def workspace(self, s):
        return self.service.path("workspaces", "sessions", s.id)

    def volume(self, name="mem"):
        r = self.client.post("/v1/volumes", {"name": name})
        self.assertEqual(r.status, 201, r)
        return r.json()["id"]

    def error(self, r, status, word):
        self.assertEqual((r.status, r.json()["error"]), (status, word), r)

    def check(self, run, stdout):
        self.assertEqual((run["stdout"], run["exitCode"]), (stdout, 0), run)


class Steps(SessionCase):
    def test_state_between_steps(self):
        s = self.session()
        self.check(s.run("open('/workspace/x.txt', 'w').write('42')"), "")
        self.check(s.run("print(open('x.txt').read())"), "42\n")
        self.check(s.run("import os; print(os.getcwd())"), "/workspace\n")

    def test_the_source_is_not_in_the_workspace(self):
        s = self.session()
        s.run("pass", files=[{"name": "m.py", "content": "X = 5"}])
        self.check(s.run("import os; print(os.listdir('/workspace'))"),
                   "[]\n")
        self.check(s.run("import m; print(m.X, __file__)",
                         files=[{"name": "m.py", "content": "X = 5"}]),
                   "5 /box/main.py\n")

    def test_nothing_else_is_kept(self):
        s = self.session()
        s.run("open('/tmp/a', 'w'); open('/box/b', 'w')")
        self.check(s.run("import os; print(os.path.exists('/tmp/a'), "
                         "os.path.exists('/box/b'), os.path.exists("
                         "'/memory/x'))"), "False False False\n")

    def test_no_memory_without_a_volume(self):
        run = self.session().run("open('/memory/x', 'w')")
        self.assertNotEqual(run["exitCode"], 0)

    def test_sessions_see_only_their_own(self):
        a, b = self.session(), self.session()
        a.run("open('secret', 'w').write('a')")
        self.check(b.run("import os; print(os.listdir('/workspace'), "
                         "os.path.exists('../' + 'secret'))"), "[] False\n")

    def test_stream(self):
        s = self.session()
        with s.open_stream("print('one', flush=True)\n"
                           "open('y', 'w').write('1')") as c:
            events = [e for e in c.events() if e.name]
        self.assertEqual(events[0].data, {"chunk": "one\n"})
        self.assertEqual(events[-1].name, "done")
        self.assertEqual(s.fs("GET", "y").body, b"1")

    def test_limits_hold(self):
        s = self.session()
        run = s.run("while True: pass", limits={"wallTimeMs": 500})
        self.assertTrue(run["timedOut"])
        run = s.run("x = bytearray(300 << 20)",
                    limits={"memoryBytes": 64 << 20})
        self.assertTrue(run["oomKilled"])
        self.check(s.run("print(1)"), "1\n")

    def test_another_language(self):
        s = self.session(runtime="js")
        self.check(s.run("require('fs').writeFileSync('f', 'x'); "
                         "console.log(process.cwd())"), "/workspace\n")
        self.assertEqual(s.fs("GET", "f").body, b"x")

    def test_one_at_a_time(self):
        s = self.session()
        with s.open_stream("import time; print('up', flush=True); "
                           "time.sleep(3); open('a', 'w')") as c:
            events = c.events()
            next(e for e in events if e.name == "stdout")
            self.assertTrue(s.request("GET").json()["busy"])
            r = s.step("pass", limits={"wallTimeMs": 100})
            self.error(r, 429, "session_busy")
            self.assertGreaterEqual(int(r.header("retry-after")), 1)
            run = s.run("import os; print(os.listdir('.'))")  # waits
            self.check(run, "['a']\n")
            self.assertEqual([e.name for e in events if e.name], ["done"])
        wait_for("idle session",
                 lambda: not s.request("GET").json()["busy"])

    def test_other_sessions_do_not_wait(self):
        s, other = self.session(), self.session()
        with s.open_stream("import time; print('up', flush=True); "
                           "time.sleep(15)") as c:
            next(e for e in c.events() if e.name == "stdout")
            self.check(other.run("print(1)"), "1\n")

    def test_the_client_leaves(self):
        s = self.session()
        with s.open_stream("import time; print('up', flush=True); "
                           "time.sleep(15)") as c:
            next(e for e in c.events() if e.name == "stdout")
        wait_for("end of the step",
                 lambda: not s.request("GET").json()["busy"], 5)
        self.check(s.run("print(1)"), "1\n")


class Ends(SessionCase):
    def test_delete_ends_a_step(self):
        v = self.volume()
        s = self.session(volumeId=v)
        with s.open_stream("import time; print('up', flush=True); "
                           "time.sleep(15)") as c:
            events = c.events()
            next(e for e in events if e.name == "stdout")
            begun = time.monotonic()
            self.assertEqual(s.end(), 204)
            # The volume is free at once: nothing of the step is left.
            other = self.session(volumeId=v)
            self.assertLess(time.monotonic() - begun, 8)
            self.assertEqual([e.name for e in events if e.name], ["error"])
        self.check(other.run("open('/memory/x', 'w')"), "")

    def test_everything_is_gone(self):
        before = self.files()
        s = self.session()
        s.run("import os\nos.makedirs('a/b')\nopen('a/b/c', 'w')\n"
              "os.chmod('a/b/c', 0)\nos.chmod('a/b', 0)\nos.chmod('a', 0)")
        self.assertEqual(s.end(), 204)
        # Less than before is right, too: another test's end may be under way.
        wait_for("empty disk", lambda: self.files() <= before)
        self.assertEqual(s.end(), 404)
        self.error(s.request("GET"), 404, "session_not_found")
        self.error(s.step("pass"), 404, "session_not_found")

    def files(self):
        return {os.path.join(f, n) for f, names, files in os.walk(
            self.service.path("workspaces")) for n in names + files}

    def sql(self, statement, *values):
        db = sqlite3.connect(self.service.path("state", "isobox.db"),
                             timeout=10)
        try:
            with db:
                return db.execute(statement, values).fetchall()
        finally:
            db.close()

    def test_expiry(self):
        """Swept by whichever process of the web side comes first."""
        v = self.volume()
        s = self.session(volumeId=v)
        keep = self.session()
        self.sql("UPDATE sessions SET expires_ms = 1 WHERE id = ?", s.id)
        self.error(s.request("GET"), 404, "session_not_found")
        self.sweep()
        wait_for("sweep", lambda: not os.path.exists(self.workspace(s)))
        self.assertEqual(self.session(volumeId=v).facts["volumeId"], v)
        self.check(keep.run("print(1)"), "1\n")


class Crash(SessionCase):
    def test_runner(self):
        """kill -9 of the runner in a step: the session and its files stay."""
        v = self.volume()
        s = self.session(volumeId=v)
        s.run("open('kept', 'w').write('x'); open('/memory/m', 'w')")
        with s.open_stream("import time; print('up', flush=True); "
                           "time.sleep(15)") as c:
            events = c.events()
            next(e for e in events if e.name == "stdout")
            self.service.runner.kill()
            self.service.runner.wait()
            self.assertEqual([e.name for e in events if e.name], ["error"])
        self.service.start_runner()
        self.service.wait_ready()
        self.check(s.run("import os; print(open('kept').read(), "
                         "os.listdir('/memory'))"), "x ['m']\n")
        wait_for("idle session",
                 lambda: not s.request("GET").json()["busy"])

    def test_web_side(self):
        s = self.session()
        s.fs("PUT", "f", b"1")
        self.service.fcgi.kill()
        self.service.fcgi.wait()
        self.service.start_fcgi()
        self.service.wait_ready()
        self.assertEqual(s.fs("GET", "f").body, b"1")
        self.check(s.run("print(open('f').read())"), "1\n")

    def test_runner_while_it_is_away(self):
        s = self.session()
        self.service.runner.kill()
        self.service.runner.wait()
        self.error(s.fs("GET"), 503, "sandbox_failed")
        self.assertEqual(s.end(), 204)
        self.service.start_runner()
        self.service.wait_ready()
        self.sweep()
        wait_for("sweep", lambda: not os.path.exists(self.workspace(s)))


class Files(SessionCase):
    def test_both_ways(self):
        s = self.session()
        data = os.urandom(100000)
        r = s.fs("PUT", "in/put.bin", data)
        self.assertEqual((r.status, r.json()), (
            200, {"path": "in/put.bin", "bytes": len(data)}))
        run = s.run("import hashlib, os\n"
                    "print(hashlib.sha256(open('in/put.bin','rb').read())"
                    ".hexdigest())\n"
                    "os.rename('in/put.bin', 'out.bin')\n"
                    "os.makedirs('out')\n"
                    "open('out/\\u20ac', 'w').write('euro')")
        import hashlib
        self.check(run, hashlib.sha256(data).hexdigest() + "\n")
        r = s.fs("GET", "out.bin")
        self.assertEqual(r.body, data)
        self.assertEqual(s.fs("GET", "out/\u20ac").body, b"euro")
        self.assertEqual(s.fs("HEAD", "out.bin").header("content-length"),
                         str(len(data)))
        self.error(s.fs("GET", "in/put.bin"), 404, "not_found")
        names = {e["name"]: e for e in s.fs("GET").json()["entries"]}
        self.assertEqual(set(names), {"in", "out", "out.bin"})
        self.assertEqual((names["out.bin"]["size"], names["out"]["dir"]),
                         (len(data), True))

    def test_a_program_can_change_what_was_uploaded(self):
        s = self.session()
        s.fs("PUT", "d/f", b"1")
        self.check(s.run("import os\nopen('d/f', 'a').write('2')\n"
                         "open('d/g', 'w')\nos.unlink('d/g')\n"
                         "print(open('d/f').read())"), "12\n")

    def test_atomic(self):
        """A reader sees the old file or the new one."""
        s = self.session()
        bodies = [bytes([65 + i]) * (300000 + i) for i in range(2)]
        s.fs("PUT", "f", bodies[0])
        stop = threading.Event()
        wrong = []

        def read():
            while not stop.is_set():
                got = s.fs("GET", "f").body
                if got not in bodies:
                    wrong.append(len(got))
        t = threading.Thread(target=read)
        t.start()
        for i in range(20):
            s.fs("PUT", "f", bodies[i % 2])
        stop.set()
        t.join()
        self.assertEqual(wrong, [])

    def test_versions(self):
        s = self.session()
        s.fs("PUT", "f", b"0123456789")
        time.sleep(0.2)
        first = s.fs("GET", "f")
        etag = first.header("etag")
        r = s.fs("GET", "f", headers=[("If-None-Match", etag)])
        self.assertEqual((r.status, r.body), (304, b""))
        r = s.fs("GET", "f", headers=[("Range", "bytes=3-5"),
                                      ("If-Range", etag)])
        self.assertEqual((r.status, r.body), (206, b"345"))
        s.run("import os\nst = os.stat('f')\n"
              "open('f', 'r+').write('9')\n"
              "os.utime('f', ns=(st.st_atime_ns, st.st_mtime_ns))")
        r = s.fs("GET", "f", headers=[("Range", "bytes=3-5"),
                                      ("If-Range", etag)])
        self.assertEqual((r.status, r.body), (200, b"9123456789"))

    def test_what_a_program_made_unreadable(self):
        s = self.session()
        s.run("import os\nos.makedirs('d')\n"
              "open('d/f', 'w').write('secret of mine')\n"
              "os.chmod('d/f', 0)\nos.chmod('d', 0)")
        self.assertEqual(s.fs("GET", "d/f").body, b"secret of mine")
        self.assertEqual([e["name"] for e in
                          s.fs("GET", "d").json()["entries"]], ["f"])
        self.assertEqual(s.fs("DELETE", "d").status, 204)

    def test_links_and_strange_files(self):
        s = self.session()
        self.check(s.run(
            "import os\nopen('real', 'w').write('x')\nos.mkdir('dir')\n"
            "os.symlink('real', 'inside')\n"
            "os.symlink('/etc/passwd', 'absolute')\n"
            "os.symlink('../../../etc/passwd', 'upward')\n"
            "os.symlink('/', 'dir/root')\n"
            "os.symlink('/proc/self', 'proc')\n"
            "os.symlink('loop', 'loop')"), "")
        # A program cannot make these; a hole may let it.
        os.mkfifo(os.path.join(self.workspace(s), "pipe"), 0o666)
        os.mknod(os.path.join(self.workspace(s), "null"),
                 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        self.assertEqual(s.fs("GET", "inside").body, b"x")
        for path in ("absolute", "upward", "dir/root", "dir/root/etc/passwd",
                     "proc/environ", "proc", "loop", "pipe", "null"):
            with self.subTest(path=path):
                self.error(s.fs("GET", path), 400, "invalid_path")
        for path in ("dir/root/tmp/x", "proc/x"):
            self.error(s.fs("PUT", path, b"evil"), 400, "invalid_path")
        for path in ("absolute", "upward"):  # the link is replaced, if at all
            self.assertIn(s.fs("PUT", path, b"evil").status, (200, 400))
        with open("/etc/passwd", "rb") as f:
            self.assertNotIn(b"evil", f.read())
        by_name = {e["name"]: e for e in s.fs("GET").json()["entries"]}
        self.assertEqual({n: e["type"] for n, e in by_name.items()
                          if "type" in e and n not in ("absolute", "upward")},
                         {"proc": "link", "loop": "link", "pipe": "other",
                          "null": "other"})
        r = s.fs("GET", more="&format=zip")
        z = zipfile.ZipFile(io.BytesIO(r.body))
        self.assertFalse({"proc", "loop", "pipe", "null"} &
                         set(z.namelist()))
        self.assertIn("real", z.namelist())
        for name in by_name:
            self.assertEqual(s.fs("DELETE", name).status, 204, name)

    def test_zip(self):
        s = self.session()
        s.run("import os\nos.makedirs('d/\\u20ac')\n"
              "open('d/\\u20ac/f', 'w').write('x' * 100000)\n"
              "os.mkdir('d/empty')")
        r = s.fs("GET", "d", more="&format=zip")
        self.assertEqual(r.status, 200)
        self.assertEqual(r.header("content-type"), "application/zip")
        self.assertEqual(r.header("content-disposition"),
                         'attachment; filename="d.zip"')
        z = zipfile.ZipFile(io.BytesIO(r.body))
        self.assertIsNone(z.testzip())
        found = [n for n in z.namelist() if n.endswith("\u20ac/f")]
        self.assertEqual(z.read(found[0]), b"x" * 100000)
        self.error(s.fs("GET", "d/\u20ac/f", more="&format=zip"), 400,
                   s.fs("GET", "d/\u20ac/f",
                        more="&format=zip").json()["error"])
        self.error(s.fs("GET", "nope", more="&format=zip"), 404, "not_found")

    def test_paths(self):
        s = self.session()
        for path in ("../../x", "/x", "./x", "a/../x"):
            self.assertEqual(s.fs("PUT", path, b"1").json()["path"], "x")
        self.assertEqual([e["name"] for e in s.fs("GET").json()["entries"]],
                         ["x"])
        for path in ("a\0b", "a" * 256, "b/" * 2048 + "c"):
            self.error(s.fs("GET", path), 400, "invalid_path")
            self.error(s.fs("PUT", path, b""), 400, "invalid_path")

    def test_files_while_a_step_runs(self):
        s = self.session()
        with s.open_stream("import time\nprint('up', flush=True)\n"
                           "for i in range(200):\n"
                           "  try: print(open('go').read()); break\n"
                           "  except OSError: time.sleep(.05)") as c:
            events = c.events()
            next(e for e in events if e.name == "stdout")
            self.assertEqual(s.fs("PUT", "go", b"went").status, 200)
            rest = [e for e in events if e.name]
        self.assertEqual(rest[-1].data["run"]["stdout"], "up\nwent\n")


class Quota(SessionCase):
    settings = {"session_disk_mb": 8, "vol_disk_mb": 8}

    def test_a_step_cannot_fill_the_disk(self):
        s = self.session()
        r = s.step("with open('big', 'wb') as f:\n"
                   "  for i in range(400): f.write(b'x' * (1 << 20))")
        self.error(r, 413, "quota_exceeded")
        self.assertLess(s.request("GET").json()["disk"]["usedBytes"],
                        100 * MIB)
        self.error(s.fs("PUT", "more", b"x"), 413, "quota_exceeded")
        self.assertEqual(s.fs("DELETE", "big").status, 204)
        self.assertEqual(s.fs("PUT", "more", b"x").status, 200)
        self.check(s.run("print(1)"), "1\n")

    def test_uploads(self):
        s = self.session()
        self.assertEqual(s.fs("PUT", "a", b"x" * (6 * MIB)).status, 200)
        self.error(s.fs("PUT", "b", b"x" * (4 * MIB)), 413, "quota_exceeded")
        disk = s.request("GET").json()["disk"]
        self.assertEqual(disk["quotaBytes"], 8 * MIB)
        self.assertGreaterEqual(disk["usedBytes"], 6 * MIB)
        self.assertLess(disk["usedBytes"], 8 * MIB)


class Volumes(SessionCase):
    def test_remembers(self):
        v = self.volume("notes")
        a = Session(self.client, volumeId=v)
        self.check(a.run("open('/memory/note', 'w').write('later')"), "")
        r = self.client.post("/v1/sessions", {"runtime": RUNTIME,
                                              "volumeId": v})
        self.error(r, 409, "volume_busy")
        self.error(self.client.request("DELETE", "/v1/volumes/" + v), 409,
                   "volume_busy")
        self.assertEqual(a.end(), 204)
        b = self.session(volumeId=v)
        self.check(b.run("print(open('/memory/note').read())"), "later\n")
        facts = self.client.get("/v1/volumes/" + v).json()
        self.assertEqual((facts["name"], facts["attached"]),
                         ("notes", True))
        self.assertGreater(facts["disk"]["files"], 0)
        self.assertEqual(b.end(), 204)
        self.assertEqual(
            self.client.request("DELETE", "/v1/volumes/" + v).status, 204)
        self.error(self.client.get("/v1/volumes/" + v), 404,
                   "volume_not_found")


# The API reference's own words; only the address is another.
EXAMPLE_SESSION = r"""
S=$(curl -s -X POST {base}/v1/sessions -d '{{"runtime":"python"}}')
ID=$(echo "$S" | jq -r .id); TOK=$(echo "$S" | jq -r .token)
# step 1 writes state, step 2 (a separate sandbox) reads it
curl -s -X POST {base}/v1/sessions/$ID/exec -H "X-Session-Token: $TOK" \
  -d '{{"code":"open(\"/workspace/x.txt\",\"w\").write(\"42\")"}}'
echo
curl -s -X POST {base}/v1/sessions/$ID/exec -H "X-Session-Token: $TOK" \
  -d '{{"code":"print(open(\"/workspace/x.txt\").read())"}}'   # -> 42
echo
# download a file the code produced, then end the session
curl -s "{base}/v1/sessions/$ID/fs?path=x.txt" -H "X-Session-Token: $TOK"
echo
curl -s -X DELETE {base}/v1/sessions/$ID -H "X-Session-Token: $TOK"
"""

EXAMPLE_VOLUME = r"""
VID=$(curl -s -X POST {base}/v1/volumes -d '{{"name":"mem"}}' | jq -r .id)
S=$(curl -s -X POST {base}/v1/sessions -d "{{\"runtime\":\"python\",\"volumeId\":\"$VID\"}}")
ID=$(echo "$S"|jq -r .id); TOK=$(echo "$S"|jq -r .token)
curl -s -X POST {base}/v1/sessions/$ID/exec -H "X-Session-Token: $TOK" \
  -d '{{"code":"open(\"/memory/note.txt\",\"w\").write(\"recall me later\")"}}'
"""

# What the example only tells of.
LATER = r"""
echo
curl -s -X DELETE {base}/v1/sessions/$ID -H "X-Session-Token: $TOK"
S=$(curl -s -X POST {base}/v1/sessions -d "{{\"runtime\":\"python\",\"volumeId\":\"$VID\"}}")
ID=$(echo "$S"|jq -r .id); TOK=$(echo "$S"|jq -r .token)
curl -s -X POST {base}/v1/sessions/$ID/exec -H "X-Session-Token: $TOK" \
  -d '{{"code":"print(open(\"/memory/note.txt\").read())"}}'
curl -s -X DELETE {base}/v1/sessions/$ID -H "X-Session-Token: $TOK"
"""


class Examples(SessionCase):
    def shell(self, script):
        base = "http://127.0.0.1:%d" % self.service.port
        done = subprocess.run(["bash", "-eu", "-c",
                               script.format(base=base)],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n")

    def test_session(self):
        first, second, file, rest = self.shell(EXAMPLE_SESSION)
        self.assertEqual(json.loads(first)["run"]["exitCode"], 0)
        self.assertEqual(json.loads(second)["run"]["stdout"], "42\n")
        self.assertEqual((file, rest), ("42", ""))

    def test_volume(self):
        first, second = self.shell(EXAMPLE_VOLUME + LATER)
        self.assertEqual(json.loads(first)["run"]["exitCode"], 0)
        self.assertEqual(json.loads(second)["run"]["stdout"],
                         "recall me later\n")


class Front:
    """The file API through each web server."""

    def test_large_files(self):
        s = self.session()
        data = os.urandom(16 * MIB)
        r = s.fs("PUT", "big", data)
        self.assertEqual((r.status, r.json()["bytes"]), (200, 16 * MIB))
        r = s.fs("GET", "big")
        self.assertEqual(r.body, data)
        self.assertEqual(r.header("content-length"), str(16 * MIB))
        r = s.fs("GET", "big", headers=[("Range", "bytes=1000000-2999999")])
        self.assertEqual((r.status, r.body), (206, data[1000000:3000000]))
        self.assertEqual(r.header("content-range"),
                         "bytes 1000000-2999999/%d" % (16 * MIB))
        r = s.fs("HEAD", "big")
        self.assertEqual((r.status, r.header("content-length")),
                         (200, str(16 * MIB)))
        for more in (b"x", data):
            r = s.fs("PUT", "big", data + more)
            self.error(r, 413, "too_large")
        self.assertEqual(s.fs("GET", "big").body, data)

    def test_chunked_upload(self):
        s = self.session()
        data = os.urandom(300000)
        r = s.fs("PUT", "f", None, chunked=[data[:100], data[100:]])
        self.assertEqual((r.status, r.json()["bytes"]), (200, 300000), r)
        self.assertEqual(s.fs("GET", "f").body, data)

    def test_headers(self):
        s = self.session()
        s.fs("PUT", "d/na\u00efve \u20ac.txt", b"x")
        r = s.fs("GET", "d/na\u00efve \u20ac.txt")
        self.assertEqual(r.body, b"x")
        self.assertEqual(
            r.header("content-disposition"),
            'attachment; filename="na_ve _.txt"; '
            "filename*=UTF-8''na%C3%AFve%20%E2%82%AC.txt")
        exposed = r.header("access-control-expose-headers").split(", ")
        for name in ("ETag", "Content-Disposition", "Content-Range",
                     "X-Request-Id", "Server-Timing"):
            self.assertIn(name, exposed)
        time.sleep(0.2)
        etag = s.fs("GET", "d/na\u00efve \u20ac.txt").header("etag")
        r = s.fs("GET", "d/na\u00efve \u20ac.txt",
                 headers=[("If-None-Match", etag)])
        self.assertEqual((r.status, r.body, r.header("etag")),
                         (304, b"", etag))

    def test_encodings(self):
        s = self.session()
        for query, path in (("a%2Fb", "a/b"), ("a%2F..%2Fc", "c"),
                            ("%252e%252e%252fd", "%2e%2e%2fd"),
                            ("%E2%82%AC", "\u20ac")):
            r = s.request("PUT", "/fs?path=" + query, b"x")
            self.assertEqual((r.status, r.json()["path"]), (200, path))
        r = s.request("GET", "/fs?path=%00")
        self.assertEqual(r.status, 400)  # of lighttpd itself, or of ours
        names = {e["name"] for e in s.fs("GET").json()["entries"]}
        self.assertEqual(names, {"a", "c", "%2e%2e%2fd", "\u20ac"})

    def test_folders(self):
        s = self.session()
        self.check(s.run("for i in range(500): open('%0100d' % i, 'w')"), "")
        r = s.fs("GET")
        self.assertEqual(len(r.json()["entries"]), 500)
        r = s.fs("GET", more="&format=zip")
        self.assertEqual(len(zipfile.ZipFile(io.BytesIO(r.body)).namelist()),
                         500)

    def test_step_and_end(self):
        v = self.volume()
        s = self.session(volumeId=v)
        with s.open_stream("print('x')") as c:
            self.assertEqual([e.name for e in c.events() if e.name],
                             ["stdout", "done"])
        r = self.client.request("GET", s.path)
        self.error(r, 401, "invalid_session_token")
        r = s.request("DELETE")
        self.assertEqual((r.status, r.body), (204, b""))
        self.error(s.request("GET"), 404, "session_not_found")
        self.assertEqual(
            self.client.request("DELETE", "/v1/volumes/" + v).status, 204)


for _kind in KINDS:
    _name = "Front" + _kind.title().replace("-", "")
    globals()[_name] = type(_name, (Front, SessionCase), {"kind": _kind})


if __name__ == "__main__":
    unittest.main()
