# SPDX-License-Identifier: Apache-2.0
"""The file API of sessions, with a fake runner."""

import email.utils
import io
import json
import os
import threading
import time
import unittest
import urllib.parse
import zipfile

import fcgi_client
from fake_runner import FAIL, frame, text
from fake_workspaces import (DATA, DIR, END, ENTRIES, FILE, INFO, LINK, OTHER,
                             UNKNOWN, Workspaces, entry, info)
from session_case import NOT_FOUND, SessionCase

MIB = 1 << 20


def error(word, detail=None):
    return {"error": word} if detail is None else {"error": word,
                                                   "detail": detail}


class FileCase(SessionCase):
    def setUp(self):
        super().setUp()
        self.workspaces.asked.clear()
        self.s = self.create()
        self.folder = self.workspaces.root(1, self.s.id)

    def write(self, name, data, age=10):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        os.utime(path, (time.time() - age,) * 2)
        return path

    def settle(self):
        """Until what was written has an ETag that is strong."""
        time.sleep(0.12)


class Download(FileCase):
    def test_file(self):
        data = bytes(range(256)) * 10
        path = self.write("a b.bin", data)
        self.settle()
        r = self.s.fs("GET", "a b.bin")
        self.assertEqual((r.status, r.body), (200, data))
        self.assertEqual(r.headers["content-type"],
                         "application/octet-stream")
        self.assertEqual(r.headers["content-length"], "2560")
        self.assertEqual(r.headers["content-disposition"],
                         'attachment; filename="a b.bin"')
        self.assertEqual(r.headers["accept-ranges"], "bytes")
        self.assertEqual(r.headers["cache-control"], "private, no-cache")
        self.assertEqual(r.headers["x-content-type-options"], "nosniff")
        self.assertRegex(r.headers["etag"], r'\A"[0-9a-f]{32}"\Z')
        self.assertEqual(
            email.utils.parsedate_to_datetime(
                r.headers["last-modified"]).timestamp(),
            int(os.stat(path).st_mtime))
        exposed = r.headers["access-control-expose-headers"].split(", ")
        for name in ("ETag", "Content-Disposition", "Content-Range",
                     "Accept-Ranges", "Content-Length", "X-Request-Id",
                     "Server-Timing"):
            self.assertIn(name, exposed)

    def test_head(self):
        self.write("f", b"12345")
        self.settle()
        get, head = self.s.fs("GET", "f"), self.s.fs("HEAD", "f")
        self.assertEqual((head.status, head.body), (200, b""))
        for r in (get, head):
            del r.headers["x-request-id"]
        self.assertEqual(head.headers, get.headers)

    def test_sizes(self):
        """Around what is sent as one record, and empty."""
        for size in (0, 1, 7, 8, 65527, 65528, 65529, 131072, 3 * MIB + 1):
            data = os.urandom(size)
            self.write("f", data)
            r = self.s.fs("GET", "f")
            self.assertTrue(r.whole)
            self.assertEqual(r.body, data, size)

    def test_kept_connection(self):
        """Several answers on one connection, files between others."""
        data = os.urandom(200000)
        self.write("f", data)
        token = {"X-Session-Token": self.s.token}
        with fcgi_client.Connection(self.service.socket) as c:
            for _ in range(3):
                r = c.request("GET", "/v1/sessions/%s/fs?path=f" % self.s.id,
                              None, token, flags=1)
                self.assertEqual(r.body, data)
                r = c.request("GET", "/healthz", flags=1)
                self.assertEqual(r.status, 200)

    def test_names(self):
        for name, disposition in (
                ("x.txt", 'filename="x.txt"'),
                ("na\u00efve \u20ac.txt",
                 'filename="na_ve _.txt"; '
                 "filename*=UTF-8''na%C3%AFve%20%E2%82%AC.txt"),
                ('q"\\;.txt', 'filename="q__;.txt"; '
                 "filename*=UTF-8''q%22%5C%3B.txt"),
                ("a\r\nX: y", 'filename="a__X: y"; '
                 "filename*=UTF-8''a%0D%0AX%3A%20y"),
                ("100%.txt", 'filename="100_.txt"; '
                 "filename*=UTF-8''100%25.txt"),
                ("\U0001f600" * 63, 'filename="%s"; ' % ("_" * 63) +
                 "filename*=UTF-8''" + "%F0%9F%98%80" * 63)):
            self.write(name, b"x")
            r = self.s.fs("GET", name)
            self.assertEqual((r.status, r.body), (200, b"x"), name)
            self.assertEqual(r.headers["content-disposition"],
                             "attachment; " + disposition)

    def test_bytes_that_are_no_text(self):
        with open(os.path.join(self.folder.encode(), b"\xff\xfe"), "wb") as f:
            f.write(b"x")
        r = self.s.request("GET", "/fs?path=%FF%FE")
        self.assertEqual((r.status, r.body), (200, b"x"))
        r = self.s.fs("GET")
        e, = r.json()["entries"]
        self.assertEqual((e["name"], e["encodedName"]),
                         ("\ufffd\ufffd", "%FF%FE"))

    def test_conditions(self):
        path = self.write("f", b"12345")
        self.settle()
        first = self.s.fs("GET", "f")
        etag, date = (first.headers[h] for h in ("etag", "last-modified"))
        later = email.utils.formatdate(time.time() + 100, usegmt=True)
        early = email.utils.formatdate(0, usegmt=True)
        for headers, status in (
                ({"If-None-Match": etag}, 304),
                ({"If-None-Match": '"x", W/%s' % etag}, 304),
                ({"If-None-Match": "*"}, 304),
                ({"If-None-Match": '"x"'}, 200),
                ({"If-Modified-Since": date}, 304),
                ({"If-Modified-Since": later}, 304),
                ({"If-Modified-Since": early}, 200),
                ({"If-None-Match": '"x"', "If-Modified-Since": later}, 200),
                ({"If-Match": etag}, 200), ({"If-Match": '"x"'}, 412),
                ({"If-Match": "W/" + etag}, 412), ({"If-Match": "*"}, 200),
                ({"If-Unmodified-Since": early}, 412),
                ({"If-Unmodified-Since": date}, 200)):
            for method in ("GET", "HEAD"):
                r = self.s.fs(method, "f", headers=headers)
                self.assertEqual(r.status, status, headers)
                if status == 304:
                    self.assertEqual(r.body, b"")
                    self.assertNotIn("content-length", r.headers)
                    self.assertEqual(r.headers["etag"], etag)
                if status == 412 and method == "GET":
                    self.assert_error(r, 412, error("precondition_failed"))
        with open(path, "r+b") as f:  # the same size and time
            f.write(b"54321")
        os.utime(path, (1, email.utils.mktime_tz(
            email.utils.parsedate_tz(date))))
        r = self.s.fs("GET", "f", headers={"If-None-Match": etag})
        self.assertEqual((r.status, r.body), (200, b"54321"))

    def test_a_file_that_may_still_change_is_weak(self):
        self.write("f", b"1")
        r = self.s.fs("GET", "f")
        self.assertRegex(r.headers["etag"], r'\AW/"')
        self.settle()
        again = self.s.fs("GET", "f", headers={
            "If-None-Match": r.headers["etag"]})
        self.assertEqual(again.status, 304)
        r = self.s.fs("GET", "f", headers={
            "Range": "bytes=0-0", "If-Range": r.headers["etag"]})
        self.assertEqual(r.status, 200)

    def test_times_beyond_dates(self):
        path = self.write("f", b"1")
        os.utime(path, ns=(0, -1))
        self.assertEqual(self.s.fs("GET", "f").status, 200)
        self.assertEqual(self.s.fs("GET").json()["entries"][0]["modTime"],
                         "1969-12-31T23:59:59.999Z")
        for seconds in (2 ** 32, 2 ** 33):
            os.utime(path, (0, seconds))
            r = self.s.fs("GET", "f")
            self.assertEqual(r.status, 200)
            self.assertLess(email.utils.parsedate_to_datetime(
                r.headers["last-modified"]).timestamp(), time.time() + 2)

    def test_ranges(self):
        data = os.urandom(100000)
        self.write("f", data)
        self.settle()
        for value, first, last in (
                ("bytes=0-0", 0, 0), ("bytes=0-99999", 0, 99999),
                ("bytes=5-70004", 5, 70004), ("bytes=99999-", 99999, 99999),
                ("bytes=-1", 99999, 99999), ("bytes=-200000", 0, 99999),
                ("bytes=50-200000", 50, 99999)):
            r = self.s.fs("GET", "f", headers={"Range": value})
            self.assertEqual(r.status, 206, value)
            self.assertEqual(r.body, data[first:last + 1])
            self.assertEqual(r.headers["content-range"],
                             "bytes %d-%d/100000" % (first, last))
            self.assertEqual(r.headers["content-length"],
                             str(last + 1 - first))
        for value in ("bytes=0-1,5-6", "bytes=" + "0-1," * 500, "bytes=x",
                      "bytes=5-1", "lines=0-1", "bytes=",
                      "bytes=0-18446744073709551616000,1-2"):
            r = self.s.fs("GET", "f", headers={"Range": value})
            self.assertEqual((r.status, r.body), (200, data), value)
            self.assertNotIn("content-range", r.headers)
        for value in ("bytes=100000-", "bytes=-0",
                      "bytes=99999999999999999999-"):
            r = self.s.fs("GET", "f", headers={"Range": value})
            self.assert_error(r, 416, error("range_not_satisfiable",
                                            "the file has 100000 bytes"))
            self.assertEqual(r.headers["content-range"], "bytes */100000")
        r = self.s.fs("HEAD", "f", headers={"Range": "bytes=0-0"})
        self.assertEqual((r.status, r.headers["content-length"]),
                         (200, "100000"))

    def test_if_range(self):
        self.write("f", b"12345")
        self.settle()
        first = self.s.fs("GET", "f")
        for value, status in (
                (first.headers["etag"], 206), ('"x"', 200),
                (first.headers["last-modified"], 206),
                ("Sun, 06 Nov 1994 08:49:37 GMT", 200), ("junk", 200)):
            r = self.s.fs("GET", "f", headers={"Range": "bytes=1-2",
                                               "If-Range": value})
            self.assertEqual((r.status, r.body), (
                status, b"23" if status == 206 else b"12345"), value)

    def test_empty_file(self):
        self.write("f", b"")
        r = self.s.fs("GET", "f")
        self.assertEqual((r.status, r.body, r.headers["content-length"]),
                         (200, b"", "0"))
        r = self.s.fs("GET", "f", headers={"Range": "bytes=0-"})
        self.assertEqual(r.status, 416)

    def test_a_file_that_shrinks_breaks_off(self):
        path = self.write("f", b"x" * (8 * MIB))
        with fcgi_client.Connection(self.service.socket) as c:
            c.send(fcgi_client.message(
                "GET", "/v1/sessions/%s/fs?path=f" % self.s.id, None,
                {"X-Session-Token": self.s.token}))
            pieces = c.pieces()
            next(pieces)
            os.truncate(path, 1)
            got = sum(len(p) for p in pieces)
            self.assertFalse(c.whole)
            self.assertLess(got, 8 * MIB)

    def test_the_client_leaves(self):
        self.write("f", b"x" * (32 * MIB))
        before = self.fds()
        for _ in range(20):
            with fcgi_client.Connection(self.service.socket) as c:
                c.send(fcgi_client.message(
                    "GET", "/v1/sessions/%s/fs?path=f" % self.s.id, None,
                    {"X-Session-Token": self.s.token}))
                next(c.pieces())
        self.assert_no_more_fds(before)

    def test_no_such_file(self):
        self.assert_error(self.s.fs("GET", "nope"), 404, error("not_found"))
        self.assertEqual(self.s.fs("HEAD", "nope").status, 404)


class Folder(FileCase):
    def test_list(self):
        self.write("d/one", b"12345", age=100)
        os.mkdir(os.path.join(self.folder, "d/sub"))
        os.symlink("nowhere", os.path.join(self.folder, "d/link"))
        os.mkfifo(os.path.join(self.folder, "d/pipe"))
        r = self.s.fs("GET", "d")
        self.assertEqual(r.status, 200)
        self.assert_common(r)
        self.assertEqual(r.headers["content-type"], "application/json")
        found = r.json()
        self.assertEqual(list(found), ["path", "dir", "entries"])
        self.assertEqual((found["path"], found["dir"]), ("d", True))
        by_name = {e["name"]: e for e in found["entries"]}
        self.assertEqual(set(by_name), {"one", "sub", "link", "pipe"})
        one = by_name["one"]
        self.assertEqual(list(one), ["name", "size", "dir", "modTime"])
        self.assertEqual((one["size"], one["dir"]), (5, False))
        self.assertRegex(one["modTime"],
                         r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")
        self.assertTrue(by_name["sub"]["dir"])
        self.assertEqual(by_name["link"]["type"], "link")
        self.assertEqual(by_name["pipe"]["type"], "other")

    def test_root(self):
        for more in ("", "?path=", "?path=.", "?path=/", "?path=..%2F..",
                     "?path=a%2F..", "?x=y"):
            r = self.s.request("GET", "/fs" + more)
            self.assertEqual((r.status, r.json()), (
                200, {"path": "", "dir": True, "entries": []}), more)

    def test_head(self):
        r = self.s.fs("HEAD", "")
        self.assertEqual((r.status, r.body), (200, b""))

    def listing(self, call, *payloads, end=frame(END)):
        call.send(frame(INFO, info(os.stat("/"))))
        for p in payloads:
            call.send(frame(ENTRIES, p))
        call.send(end)

    def test_large(self):
        """Sent in pieces, none lost, none twice."""
        count = 20000
        payloads = [b"".join(entry("n%06d" % (i + k), FILE, i, 10 ** 18)
                             for k in range(100))
                    for i in range(0, count, 100)]
        self.runner.on_ws = lambda c: self.listing(c, *payloads)
        r = self.s.fs("GET", "")
        self.assertNotIn("content-length", r.headers)
        self.assertTrue(r.whole)
        self.assertEqual([e["name"] for e in r.json()["entries"]],
                         ["n%06d" % i for i in range(count)])

    def test_names_are_escaped(self):
        names = [b'"', b"\\", b"\n", b"\x7f", "\u20ac".encode(), b"a\xe2\x82"]
        self.runner.on_ws = lambda c: self.listing(
            c, b"".join(entry(n, FILE) for n in names))
        found = self.s.fs("GET", "").json()["entries"]
        self.assertEqual([e["name"] for e in found], [
            '"', "\\", "\n", "\x7f", "\u20ac", "a\ufffd"])

    def test_a_runner_that_lies(self):
        for payload in (entry("a/b", FILE), entry("", FILE),
                        entry("a\0", FILE), entry("x", 9), b"\xff" * 8,
                        entry("x" * 256, FILE)):
            self.runner.on_ws = lambda c: self.listing(c, payload)
            r = self.s.fs("GET", "")
            self.assertEqual((r.status, r.json()["error"]),
                             (503, "sandbox_failed"))
        refusal = frame(FAIL, b"\0" * 8 + text("x"))
        for end in (refusal, b"", frame(END, b"x"), frame(DATA, b"x"),
                    frame(END) + frame(END)[:0] + b"\1" * 8):
            self.runner.on_ws = lambda c: self.listing(c, end=end)
            r = self.s.fs("GET", "")
            self.assertEqual(r.status, 200 if end[:8] == frame(END) else 503)

    def test_broken_in_the_middle(self):
        """No half list looks like a whole one."""
        much = b"".join(entry("n%06d" % i) for i in range(10000))
        self.runner.on_ws = lambda c: self.listing(c, much, end=b"")
        r = self.s.fs("GET", "")
        self.assertEqual(r.status, 200)
        self.assertFalse(r.whole)
        with self.assertRaises(ValueError):
            r.json()

    def test_a_file_without_a_descriptor(self):
        def no_fd(call):
            call.send(frame(INFO, info(os.stat("/etc/passwd"))), frame(END))
        self.runner.on_ws = no_fd
        r = self.s.fs("GET", "x")
        self.assertEqual((r.status, r.json()["error"]),
                         (503, "sandbox_failed"))

    def test_a_descriptor_of_no_file(self):
        def pipe(call):
            r, w = os.pipe()
            os.close(w)
            Workspaces.send_fd(call, frame(INFO, info(
                os.stat("/etc/passwd"))), r)
            call.send(frame(END))
        before = self.fds()
        self.runner.on_ws = pipe
        r = self.s.fs("GET", "x")
        self.assertEqual((r.status, r.json()["error"]),
                         (503, "sandbox_failed"))
        self.assert_no_more_fds(before)

    def test_descriptors_that_nobody_asked_for(self):
        def many(call):
            for _ in range(3):
                fd = os.open("/etc/passwd", os.O_RDONLY)
                Workspaces.send_fd(call, frame(INFO, info()), fd)
            call.send(frame(END))
        before = self.fds()
        self.runner.on_ws = many
        for _ in range(10):
            self.assertEqual(self.s.fs("GET", "x").status, 503)
            self.assertEqual(self.s.request("GET").status, 503)
        self.assert_no_more_fds(before)


class Zip(FileCase):
    def test_zip(self):
        self.write("d/a", b"1")
        self.write("d/e/\u20ac", b"2")
        r = self.s.fs("GET", "d", more="&format=zip")
        self.assertEqual(r.status, 200)
        self.assertTrue(r.whole)
        self.assertEqual(r.headers["content-type"], "application/zip")
        self.assertEqual(r.headers["content-disposition"],
                         'attachment; filename="d.zip"')
        z = zipfile.ZipFile(io.BytesIO(r.body))
        self.assertEqual({n: z.read(n) for n in z.namelist()},
                         {"a": b"1", "e/\u20ac": b"2"})

    def test_root(self):
        r = self.s.fs("GET", more="format=zip")
        self.assertEqual(r.headers["content-disposition"],
                         'attachment; filename="workspace.zip"')

    def test_head(self):
        r = self.s.fs("HEAD", "", more="&format=zip")
        self.assertEqual((r.status, r.body), (200, b""))

    def test_refusals(self):
        self.write("f", b"")
        r = self.s.fs("GET", "f", more="&format=zip")
        self.assert_error(r, 400, error("invalid_request", "not a folder"))
        for bad in ("tar", "ZIP", "zipzipzipzip", "zip%00"):
            r = self.s.fs("GET", "", more="&format=" + bad)
            self.assertEqual((r.status, r.json()["error"]),
                             (400, "invalid_request"), bad)
        r = self.s.fs("GET", "nope", more="&format=zip")
        self.assert_error(r, 404, error("not_found"))
        self.runner.on_ws = lambda c: c.fail("too_large", 0, "256 MiB")
        r = self.s.fs("GET", "", more="&format=zip")
        self.assert_error(r, 413, error("too_large", "256 MiB"))

    def test_broken_in_the_middle(self):
        def broken(call):
            call.send(frame(INFO, info(os.stat("/"))))
            call.send(frame(DATA, b"PK" * 100000))
            call.fail("too_large", 0, "it grew")
        self.runner.on_ws = broken
        r = self.s.fs("GET", "", more="&format=zip")
        self.assertEqual(r.status, 200)
        self.assertFalse(r.whole)

    def test_the_client_leaves(self):
        ended = []

        def endless(call):
            call.send(frame(INFO, info(os.stat("/"))))
            try:
                while True:
                    call.send(frame(DATA, b"x" * 100000))
            except OSError:
                ended.append(True)
        self.runner.on_ws = endless
        with fcgi_client.Connection(self.service.socket) as c:
            c.send(fcgi_client.message(
                "GET", "/v1/sessions/%s/fs?format=zip" % self.s.id, None,
                {"X-Session-Token": self.s.token}))
            next(c.pieces())
        self.service.wait_for(lambda: ended, "end", 5)


class Upload(FileCase):
    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as f:
            return f.read()

    def test_put(self):
        for size in (0, 1, 100000, 262144, 262145, 16 * MIB):
            data = os.urandom(size)
            r = self.s.fs("PUT", "d/e/f.bin", data)
            self.assertEqual((r.status, r.json()), (
                200, {"path": "d/e/f.bin", "bytes": size}))
            self.assert_common(r)
            self.assertEqual(self.read("d/e/f.bin"), data)
            self.assertEqual(self.asked("write")[-1].size, size)

    def test_the_path_is_folded(self):
        for path, folded in (("/a", "a"), ("./b", "b"), ("../../c", "c"),
                             ("d/../e", "e"), ("f//g/./h", "f/g/h"),
                             ("\u20ac", "\u20ac"), ("a b+c%d", "a b+c%d")):
            r = self.s.fs("PUT", path, b"x")
            self.assertEqual(r.json()["path"], folded)
            self.assertEqual(self.asked("write")[-1].path, folded.encode())

    def test_without_a_length(self):
        for sent in (None, "", "-1"):
            data = os.urandom(300000)
            r = self.s.fs("PUT", "f", data, extra=[("CONTENT_LENGTH", sent)])
            self.assertEqual((r.status, r.json()["bytes"]), (200, 300000))
            self.assertEqual(self.read("f"), data)
            self.assertEqual(self.asked("write")[-1].size, UNKNOWN)

    def test_declared_too_large(self):
        """Refused before it is read, and before the runner is asked."""
        with fcgi_client.Connection(self.service.socket) as c:
            params = fcgi_client.variables(
                "PUT", "/v1/sessions/%s/fs?path=f" % self.s.id, None,
                {"X-Session-Token": self.s.token})
            params.append(("CONTENT_LENGTH", 16 * MIB + 1))
            c.send(fcgi_client.begin() + fcgi_client.stream(
                fcgi_client.PARAMS, b"".join(
                    fcgi_client.pair(*p) for p in params)))
            c.send(fcgi_client.record(fcgi_client.STDIN, b"x" * 60000) * 5)
            r = c.response()
        self.assertEqual(r.status, 413)
        self.assertEqual(r.json(), error(
            "too_large", "the body is larger than 16777216 bytes"))
        self.assertEqual(self.asked("write"), [])

    def test_longer_than_declared(self):
        """What comes is counted, whatever was said."""
        r = self.s.fs("PUT", "f", b"x" * (16 * MIB + 1),
                      extra=[("CONTENT_LENGTH", None)])
        self.assert_error(r, 413, error(
            "too_large", "a file of more than 16777216 bytes"))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "f")))

    def test_broken_off(self):
        """A body that is shorter than it was said to be leaves nothing."""
        self.write("f", b"old")
        for size, declared in ((10, 20), (300000, 300001)):
            r = self.s.fs("PUT", "f", b"x" * size,
                          extra=[("CONTENT_LENGTH", declared)])
            self.assertEqual((r.status, r.json()["error"]),
                             (400, "invalid_request"))
            self.assertEqual(self.read("f"), b"old")

    def test_the_client_leaves(self):
        self.write("f", b"old")
        before = self.fds()
        params = fcgi_client.variables(
            "PUT", "/v1/sessions/%s/fs?path=f" % self.s.id, None,
            {"X-Session-Token": self.s.token})
        params.append(("CONTENT_LENGTH", 5 * MIB))
        head = fcgi_client.begin() + fcgi_client.stream(
            fcgi_client.PARAMS,
            b"".join(fcgi_client.pair(*p) for p in params))
        for sent in (0, 1, 20):
            with fcgi_client.Connection(self.service.socket) as c:
                c.send(head)
                c.send(fcgi_client.record(
                    fcgi_client.STDIN, b"x" * 60000) * sent)
        self.assert_no_more_fds(before)
        self.assertEqual(self.read("f"), b"old")

    def test_refusals(self):
        for kind, status in (("quota_exceeded", 413), ("storage_full", 507),
                             ("too_large", 413), ("invalid_path", 400),
                             ("capacity", 429)):
            self.runner.on_ws = lambda c: c.fail(kind, 0, "why")
            r = self.s.fs("PUT", "f", b"x" * 300000)
            self.assert_error(r, status, error(kind, "why"))

        def late(call):
            fd = os.open(self.folder, os.O_TMPFILE | os.O_RDWR, 0o600)
            Workspaces.send_fd(call, frame(INFO, info(os.fstat(fd))), fd)
            call.read_frame()
            call.fail("quota_exceeded", 0, "full")
        self.runner.on_ws = late
        self.assert_error(self.s.fs("PUT", "f", b"x"), 413,
                          error("quota_exceeded", "full"))

    def test_side_by_side(self):
        """The last of many whole ones stands there, never a mixture."""
        bodies = [bytes([65 + i]) * (MIB + i) for i in range(8)]
        threads = [threading.Thread(target=self.s.fs, args=("PUT", "f", b))
                   for b in bodies]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertIn(self.read("f"), bodies)


class Remove(FileCase):
    def test_delete(self):
        self.write("d/e/f", b"1")
        r = self.s.fs("DELETE", "d/e/f")
        self.assertEqual((r.status, r.body), (204, b""))
        r = self.s.fs("DELETE", "d")
        self.assertEqual(r.status, 204)
        self.assertEqual(os.listdir(self.folder), [])
        self.assert_error(self.s.fs("DELETE", "d"), 404, error("not_found"))


class Paths(FileCase):
    """What a path may be: the runner is asked with the folded one only."""

    def calls(self, query):
        for method, body in (("GET", None), ("HEAD", None), ("PUT", b"x"),
                             ("DELETE", None)):
            yield method, self.s.request(method, "/fs?" + query, body)

    def test_refused(self):
        for query in ("path=%00", "path=a%00b", "path=x%2F%00",
                      "path=" + "a" * 256, "path=" + "a/" * 2048 + "b",
                      "path=%", "path=%4", "path=%zz"):
            self.workspaces.asked.clear()
            for method, r in self.calls(query):
                self.assertEqual(r.status, 400, (method, query))
                if method != "HEAD":
                    self.assertEqual(r.json()["error"], "invalid_path")
            self.assertEqual(self.asked(), [])

    def test_4096_bytes(self):
        parts = "/".join(["a" * 240] * 17)[:4095]
        for method, r in self.calls("path=" + parts + "b"):
            self.assertEqual(r.status, 400, method)
        self.assertEqual(self.asked("open", "write", "delete"), [])
        self.s.request("GET", "/fs?path=" + parts)
        q, = self.asked("open")
        self.assertEqual(q.path.decode(), parts)

    def test_decoded_once(self):
        for query, path in (("path=%252e%252e%252fx", b"%2e%2e%2fx"),
                            ("path=%2e%2e%2fx", b"x"),
                            ("path=a%2Fb", b"a/b"), ("path=a+b", b"a b"),
                            ("path=a%2Bb", b"a+b"), ("path=%C0%AE%C0%AE/x",
                                                     b"\xc0\xae\xc0\xae/x"),
                            ("path=a&path=b", b"a"),
                            ("PATH=b&path=a", b"a")):
            self.s.request("GET", "/fs?" + query)
            self.assertEqual(self.asked("open")[-1].path, path, query)

    def test_methods(self):
        r = self.s.request("POST", "/fs?path=x", b"y")
        self.assert_error(r, 405, error("method_not_allowed"))
        self.assertEqual(r.headers["allow"],
                         "GET, HEAD, PUT, DELETE, OPTIONS")

    def test_options(self):
        r = self.s.request("OPTIONS", "/fs", headers={
            "X-Session-Token": None})
        self.assertEqual(r.status, 204)
        allowed = r.headers["access-control-allow-headers"].split(", ")
        for name in ("X-Session-Token", "Range", "If-Range", "If-None-Match",
                     "If-Modified-Since", "If-Match", "X-API-Key"):
            self.assertIn(name, allowed)
        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            self.assertIn(method, r.headers[
                "access-control-allow-methods"].split(", "))


class Busy(FileCase):
    settings = {"threads": 8}

    def test_downloads_leave_threads(self):
        """More slow readers than may hold a thread: others are served."""
        self.write("big", b"x" * (4 * MIB))
        self.write("small", b"y")
        slow = []
        try:
            for _ in range(2):
                c = fcgi_client.Connection(self.service.socket)
                slow.append(c)
                c.send(fcgi_client.message(
                    "GET", "/v1/sessions/%s/fs?path=big" % self.s.id, None,
                    {"X-Session-Token": self.s.token}))
                next(c.pieces())
            r = self.s.fs("GET", "big")
            self.assert_error(r, 429, error(
                "capacity", "too many downloads at the same time"))
            self.assertEqual(r.headers["retry-after"], "1")
            r = self.s.fs("GET", "big", headers={"Range": "bytes=0-9"})
            self.assertEqual(r.status, 206)
            self.assertEqual(self.s.fs("GET", "small").body, b"y")
            r = self.s.fs("GET", "", more="&format=zip")
            self.assertEqual(r.status, 429)
        finally:
            for c in slow:
                c.close()
        self.service.wait_for(
            lambda: self.s.fs("GET", "big").status == 200, "room")


class Cgi(FileCase):
    def test_files(self):
        token = {"X-Session-Token": self.s.token}
        uri = "/v1/sessions/%s/fs?path=" % self.s.id
        data = os.urandom(200000)
        self.write("f", data)
        r = self.service.cgi("GET", uri + "f", None, token)
        self.assertEqual((r.status, r.body), (200, data))
        r = self.service.cgi("GET", uri + "f", None,
                             {**token, "Range": "bytes=100-199"})
        self.assertEqual((r.status, r.body), (206, data[100:200]))
        r = self.service.cgi("GET", uri + "&format=zip", None, token)
        self.assertEqual(zipfile.ZipFile(io.BytesIO(r.body)).read("f"), data)
        r = self.service.cgi("PUT", uri + "g", b"x" * (16 * MIB), token)
        self.assertEqual(r.json(), {"path": "g", "bytes": 16 * MIB})
        r = self.service.cgi("PUT", uri + "h", b"x" * (16 * MIB + 1), token)
        self.assertEqual((r.status, r.json()["error"]), (413, "too_large"))
        r = self.service.cgi("PUT", uri + "f", b"x" * 10, token,
                             extra=[("CONTENT_LENGTH", 20)])
        self.assertEqual(r.status, 400)
        r = self.service.cgi("DELETE", uri + "f", None, token)
        self.assertEqual(r.status, 204)


if __name__ == "__main__":
    unittest.main()
