# SPDX-License-Identifier: Apache-2.0
"""/v1/memory: values by namespace and key, as a FastCGI service and as a CGI
program, and how large bodies are read."""

import base64
import contextlib
import datetime
import email.utils
import hashlib
import itertools
import json
import os
import sqlite3
import stat
import threading
import time
import unittest
import urllib.parse

import fcgi_client
from again import again
from service import Service, ServiceCase

NOT_FOUND = {"error": "not_found"}
UNAUTHORIZED = {"error": "unauthorized"}
FAILED = {"error": "precondition_failed"}
VALUE_MAX = 8 << 20
QUOTA = 10 << 20
_numbers = itertools.count()


def path(space, key):
    if not isinstance(key, bytes):
        key = key.encode()
    return "/v1/memory/%s/%s" % (space, urllib.parse.quote(key, safe=""))


class Memory:
    """The API through self.request(method, uri, body, headers, extra)."""

    def setUp(self):
        super().setUp()
        self._spaces = []

    def fresh(self):
        """A namespace that no other test uses."""
        self._spaces.append("ns-%d" % next(_numbers))
        return self._spaces[-1]

    def put(self, space, key, value=b"", headers=(), type=None, **kw):
        if type is not None:
            kw["extra"] = [("CONTENT_TYPE", type)]
        return self.request("PUT", path(space, key), value, headers, **kw)

    def get(self, space, key, headers=(), method="GET"):
        return self.request(method, path(space, key), None, headers)

    def delete(self, space, key, headers=()):
        return self.request("DELETE", path(space, key), None, headers)

    def list(self, space, headers=(), **query):
        uri = "/v1/memory/" + space
        if query:
            uri += "?" + urllib.parse.urlencode(query)
        r = self.request("GET", uri, None, headers)
        self.assertEqual(r.status, 200, r)
        return r.json()

    def keys(self, space, **query):
        """All of them, page by page."""
        found, cursor = [], None
        while True:
            page = self.list(space, **query, **(
                {"cursor": cursor} if cursor else {}))
            self.assertEqual(set(page), {"namespace", "keys", "nextCursor"})
            found += page["keys"]
            cursor = page["nextCursor"]
            if cursor is None:
                return found

    def refuse(self, r, status, word, part=""):
        self.assertIsNotNone(r, "no answer")
        self.assertEqual((r.status, r.json()["error"]), (status, word), r)
        self.assertIn(part, r.json().get("detail", ""))


class Basics(Memory):
    """Whatever way the service is asked."""

    def test_put_get_delete(self):
        space = self.fresh()
        r = self.put(space, "pi", b"3.14159")
        self.assertEqual((r.status, r.body), (204, b""))
        r = self.get(space, "pi")
        self.assertEqual((r.status, r.body), (200, b"3.14159"))
        self.assertEqual(r.headers["content-type"],
                         "application/octet-stream")
        self.assertEqual(r.headers["content-length"], "7")
        self.assertNotIn("x-expires-at", r.headers)
        r = self.put(space, "pi", b"3")
        self.assertEqual(r.status, 204)
        self.assertEqual(self.get(space, "pi").body, b"3")
        r = self.delete(space, "pi")
        self.assertEqual((r.status, r.body), (204, b""))
        r = self.get(space, "pi")
        self.assertEqual((r.status, r.json()), (404, NOT_FOUND))
        self.assertEqual(self.delete(space, "pi").status, 204)

    def test_values_are_bytes(self):
        space = self.fresh()
        for value in (b"", b"\0", bytes(range(256)) * 20, b"\xff\xfe\r\n\r\n",
                      os.urandom(262144), os.urandom(262145)):
            self.assertEqual(self.put(space, "v", value).status, 204)
            r = self.get(space, "v")
            self.assertEqual(r.body, value)
            self.assertEqual(r.headers["content-length"], str(len(value)))

    def test_keys_are_decoded_once(self):
        space = self.fresh()
        keys = ["a/b", "a%2Fb", "%", "ä€𝄞", "a b", "a+b", "?#&=", "..", ".",
                "\0", "\n", '"\\', "x" * 512, "ü" * 256]
        for i, key in enumerate(keys):
            self.assertEqual(self.put(space, key, b"%d" % i).status, 204, key)
        for i, key in enumerate(keys):
            self.assertEqual(self.get(space, key).body, b"%d" % i, key)
        self.assertEqual(self.keys(space), sorted(keys, key=str.encode))
        for i, key in enumerate(keys):
            self.assertEqual(self.delete(space, key).status, 204)
            self.assertEqual(self.get(space, key).status, 404)
        self.assertEqual(self.keys(space), [])

    def test_large_values(self):
        space = self.fresh()
        value = os.urandom(VALUE_MAX)
        self.assertEqual(self.put(space, "v", value).status, 204)
        self.assertEqual(self.get(space, "v").body, value)
        r = self.get(space, "v", method="HEAD")
        self.assertEqual((r.status, r.body, r.headers["content-length"]),
                         (200, b"", str(VALUE_MAX)))
        r = self.put(space, "v", value + b"x")
        self.refuse(r, 413, "value_too_large", "8388608")
        self.assertEqual(self.get(space, "v").body, value)
        self.delete(space, "v")

    def test_conditions(self):
        space = self.fresh()
        tag = self.put(space, "k", b"1").headers["etag"]
        self.assertRegex(tag, r'\A"[A-Za-z0-9_-]{22}"\Z')
        r = self.get(space, "k", {"If-None-Match": tag})
        self.assertEqual((r.status, r.body, r.headers["etag"]),
                         (304, b"", tag))
        r = self.put(space, "k", b"2", {"If-Match": '"other"'})
        self.assertEqual((r.status, r.json()), (412, FAILED))
        r = self.put(space, "k", b"2", {"If-None-Match": "*"})
        self.assertEqual((r.status, r.json()), (412, FAILED))
        self.assertEqual(self.get(space, "k").body, b"1")
        self.assertEqual(self.put(space, "k", b"2",
                                  {"If-Match": tag}).status, 204)
        self.assertEqual(self.delete(space, "k",
                                     {"If-Match": tag}).status, 412)
        self.assertEqual(self.delete(space, "k",
                                     {"If-Match": "*"}).status, 204)

    def test_ttl(self):
        space = self.fresh()
        r = self.put(space, "k", b"1", {"X-TTL-Seconds": "4"})
        self.assertEqual(r.status, 204)
        self.assertEqual(self.get(space, "k").body, b"1")
        time.sleep(4.1)
        self.assertEqual(self.get(space, "k").status, 404)
        self.assertEqual(self.keys(space), [])

    def test_list(self):
        space = self.fresh()
        for i in range(7):
            self.put(space, "k%d" % i)
        page = self.list(space, limit=3)
        self.assertEqual((page["namespace"], page["keys"]),
                         (space, ["k0", "k1", "k2"]))
        page = self.list(space, limit=3, cursor=page["nextCursor"])
        self.assertEqual(page["keys"], ["k3", "k4", "k5"])
        page = self.list(space, limit=3, cursor=page["nextCursor"])
        self.assertEqual((page["keys"], page["nextCursor"]), (["k6"], None))


class FastCgi(Basics, ServiceCase):
    def request(self, method, uri, body=None, headers=(), **kw):
        return self.service.request(method, uri, body, headers, **kw)

    def tearDown(self):
        for name in self._spaces:
            for key in self.keys(name, limit=1000):
                self.delete(name, key)

    # Headers of an answer.

    def test_headers(self):
        space = self.fresh()
        before = int(time.time())
        r = self.put(space, "k", b"v", {"X-TTL-Seconds": "100"},
                     type="text/plain; charset=utf-8")
        put = {k: v for k, v in r.headers.items()
               if k in ("etag", "last-modified", "x-expires-at")}
        self.assertEqual(len(put), 3)
        for method in ("GET", "HEAD"):
            r = self.get(space, "k", method=method)
            self.assertEqual(r.body, b"v" if method == "GET" else b"")
            self.assertEqual(r.headers["content-type"],
                             "text/plain; charset=utf-8")
            self.assertEqual(r.headers["content-length"], "1")
            self.assertEqual(r.headers["x-content-type-options"], "nosniff")
            self.assertEqual(r.headers["content-security-policy"], "sandbox")
            self.assertEqual(r.headers["cache-control"], "private, no-cache")
            self.assertEqual(put, {k: r.headers[k] for k in put})
        modified = email.utils.parsedate_to_datetime(r.headers[
            "last-modified"]).timestamp()
        self.assertTrue(before <= modified <= time.time())
        expires = datetime.datetime.strptime(
            r.headers["x-expires-at"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(
                tzinfo=datetime.timezone.utc).timestamp()
        self.assertAlmostEqual(expires, time.time() + 100, delta=20)

    def test_put_replaces_all(self):
        space = self.fresh()
        self.put(space, "k", b"1", {"X-TTL-Seconds": "100"}, type="a/b")
        self.put(space, "k", b"1")
        r = self.get(space, "k")
        self.assertEqual(r.headers["content-type"],
                         "application/octet-stream")
        self.assertNotIn("x-expires-at", r.headers)

    def test_etag_is_of_the_content(self):
        space = self.fresh()
        tags = [self.put(space, "k", value, type=kind).headers["etag"]
                for value, kind in ((b"1", None), (b"2", None), (b"1", None),
                                    (b"1", "a/b"), (b"", None))]
        self.assertEqual(tags[0], tags[2])
        self.assertEqual(len(set(tags)), 4)

    def test_ttl_values(self):
        space = self.fresh()
        for ttl in ("0", "-1", "", "1.5", "x", "1 ", "+1", "315360001",
                    "99999999999999999999"):
            self.refuse(self.put(space, "k", b"", {"X-TTL-Seconds": ttl}),
                        400, "invalid_request", "from 1 to 315360000")
        self.assertEqual(self.get(space, "k").status, 404)
        for ttl in ("1", "315360000", "007"):
            self.assertEqual(self.put(space, "k", b"", {
                "X-TTL-Seconds": ttl}).status, 204)

    def test_types(self):
        space = self.fresh()
        for kind in ("a\r\nSet-Cookie: x=y", "a\tb", "é", "x" * 256):
            self.refuse(self.put(space, "k", b"", type=kind), 400,
                        "invalid_request", "Content-Type")
        self.assertEqual(self.put(space, "k", type="x" * 255).status, 204)
        self.assertEqual(self.get(space, "k").headers["content-type"],
                         "x" * 255)

    def test_names(self):
        for space in ("a", "A.b_c-9", "x" * 64, ".."):
            self.assertEqual(self.put(space, "k").status, 204, space)
            self.assertEqual(self.list(space)["keys"], ["k"])
            self.delete(space, "k")
        for space in ("x" * 65, "a%20b", "%C3%A4", "a%2Fb", "a%00", "a~"):
            for r in (self.request("PUT", "/v1/memory/%s/k" % space, b""),
                      self.request("GET", "/v1/memory/%s/k" % space),
                      self.request("GET", "/v1/memory/%s" % space)):
                self.refuse(r, 400, "invalid_request", "namespace")
        for key in ("x" * 513, b"\xff", b"a\xc3", b"\xed\xa0\x80"):
            for r in (self.put("n", key), self.get("n", key),
                      self.delete("n", key)):
                self.refuse(r, 400, "invalid_request", "key")
        for uri in ("/v1/memory", "/v1/memory/", "/v1/memory/a/",
                    "/v1/memory//k", "/v1/memory/a/b/c"):
            self.assertEqual(self.request("GET", uri).status, 404, uri)

    def test_methods(self):
        for uri, allow in (("/v1/memory/n", "GET, HEAD, OPTIONS"),
                           ("/v1/memory/n/k",
                            "GET, HEAD, PUT, DELETE, OPTIONS")):
            r = self.request("POST", uri, b"")
            self.assertEqual((r.status, r.headers["allow"]), (405, allow))
            self.assertEqual(self.request("OPTIONS", uri).status, 204)

    def test_head_of_what_is_not_there(self):
        r = self.get(self.fresh(), "k", method="HEAD")
        self.assertEqual((r.status, r.body), (404, b""))

    # Conditions.

    def test_lists_of_tags(self):
        space = self.fresh()
        tag = self.put(space, "k", b"1").headers["etag"]
        for header in ("*", '"a", %s' % tag, '%s,"b"' % tag, "W/" + tag,
                       '"a" , W/%s' % tag):
            r = self.get(space, "k", {"If-None-Match": header})
            self.assertEqual((r.status, r.headers["etag"]), (304, tag))
        for header in ('"a"', tag.strip('"'), '"%s' % tag, ""):
            self.assertEqual(self.get(space, "k", {
                "If-None-Match": header}).status, 200, header)
        # If-Match compares strongly.
        for header, status in (("*", 204), ('"a", %s' % tag, 204),
                               ("W/" + tag, 412), ('"a"', 412), ("", 412)):
            self.assertEqual(self.put(space, "k", b"1", {
                "If-Match": header}).status, status, header)
        self.assertEqual(self.get(space, "k",
                                  {"If-Match": '"a"'}).status, 412)

    def test_dates(self):
        space = self.fresh()
        self.put(space, "k", b"1")
        date = self.get(space, "k").headers["last-modified"]
        old = "Sun, 06 Nov 1994 08:49:37 GMT"
        for headers, status in (
                ({"If-Modified-Since": date}, 304),
                ({"If-Modified-Since": old}, 200),
                ({"If-Modified-Since": "nonsense"}, 200),
                ({"If-Unmodified-Since": date}, 200),
                ({"If-Unmodified-Since": old}, 412),
                ({"If-Modified-Since": date, "If-None-Match": '"a"'}, 200)):
            self.assertEqual(self.get(space, "k", headers).status, status,
                             headers)
        self.assertEqual(self.put(space, "k", b"2", {
            "If-Unmodified-Since": old}).status, 412)
        self.assertEqual(self.put(space, "k", b"2", {
            "If-Unmodified-Since": date}).status, 204)

    def test_conditions_where_nothing_is(self):
        space = self.fresh()
        for headers in ({"If-Match": "*"}, {"If-Match": '"a"'}):
            self.assertEqual(self.put(space, "k", b"", headers).status, 412)
            self.assertEqual(self.delete(space, "k", headers).status, 412)
            self.assertEqual(self.get(space, "k", headers).status, 404)
        self.assertEqual(self.put(space, "k", b"", {
            "If-None-Match": "*"}).status, 204)

    def test_expired_is_not_there(self):
        space = self.fresh()
        tag = self.put(space, "k", b"1", {
            "X-TTL-Seconds": "1"}).headers["etag"]
        time.sleep(1.1)
        self.assertEqual(self.get(space, "k", {
            "If-None-Match": tag}).status, 404)
        self.assertEqual(self.put(space, "k", b"2", {
            "If-Match": tag}).status, 412)
        self.assertEqual(self.delete(space, "k", {
            "If-Match": "*"}).status, 412)
        self.assertEqual(self.put(space, "k", b"2", {
            "If-None-Match": "*"}).status, 204)
        self.assertEqual(self.get(space, "k").body, b"2")

    def test_updates_of_many_are_not_lost(self):
        """Counting by If-Match: each goes on until nobody was before it."""
        space = self.fresh()
        self.put(space, "n", b"0")
        tries = []

        def count(times):
            while times:
                r = self.get(space, "n")
                new = self.put(space, "n", b"%d" % (int(r.body) + 1),
                               {"If-Match": r.headers["etag"]})
                tries.append(new.status)
                times -= new.status == 204
        run_all([lambda: count(25)] * 8)
        self.assertEqual(self.get(space, "n").body, b"200")
        self.assertEqual(set(tries), {204, 412})

    def test_one_of_many_is_first(self):
        space = self.fresh()
        statuses = []
        run_all([lambda: statuses.append(self.put(space, "k", b"", {
            "If-None-Match": "*"}).status)] * 16)
        self.assertEqual(sorted(statuses), [204] + [412] * 15)

    # Lists.

    def test_list_by_prefix(self):
        space = self.fresh()
        keys = ["a", "a/1", "a/2", "a0", "b", "\u00e9", "\u00e9x", "\U0010ffff"]
        for key in keys:
            self.put(space, key)
        for prefix, found in (
                ("", keys), ("a", keys[:4]), ("a/", keys[1:3]), ("c", []),
                ("\u00e9", keys[5:7]), ("\U0010ffff", keys[7:]),
                ("a" * 512, [])):
            self.assertEqual(self.keys(space, prefix=prefix), found)
            self.assertEqual(self.keys(space, prefix=prefix, limit=1), found)
        # Bytes, not characters: this one ends within one.
        r = self.request("GET", "/v1/memory/%s?prefix=%%C3" % space)
        self.assertEqual(r.json()["keys"], keys[5:7])
        r = self.request("GET", "/v1/memory/%s?prefix=%%FF" % space)
        self.assertEqual(r.json()["keys"], [])
        r = self.request("GET", "/v1/memory/%s?prefix=a%%00" % space)
        self.assertEqual(r.json()["keys"], [])

    def test_list_as_the_reference_writes_it(self):
        space = self.fresh()
        self.put(space, "k")
        r = self.request("GET", "/v1/memory/%s?prefix=&limit=&cursor=" %
                         space)
        self.assertEqual((r.status, r.body.decode()), (
            200, '{"namespace":"%s","keys":["k"],"nextCursor":null}' % space))

    def test_bad_questions(self):
        for query, part in (
                ("limit=0", "from 1 to 1000"), ("limit=1001", "1000"),
                ("limit=-1", "limit"), ("limit=1.5", "limit"),
                ("limit=99999999999999999", "limit"), ("limit=%zz", "limit"),
                ("cursor=!", "cursor"), ("cursor=A", "cursor"),
                ("cursor=" + "A" * 700, "cursor"), ("cursor=%", "cursor"),
                ("prefix=" + "a" * 513, "prefix"), ("prefix=%4", "prefix")):
            self.refuse(self.request("GET", "/v1/memory/n?" + query), 400,
                        "invalid_request", part)

    def test_cursor_while_keys_change(self):
        """What stays from the first page to the last is listed once; what is
        removed behind is not, what is put behind is."""
        space = self.fresh()
        for i in range(0, 40, 2):
            self.put(space, "k%02d" % i)
        page = self.list(space, limit=5)
        found = page["keys"]
        self.delete(space, found[-1])  # what the cursor stands on
        self.put(space, "k01")
        self.delete(space, "k20")
        self.put(space, "k21")
        while page["nextCursor"]:
            page = self.list(space, limit=5, cursor=page["nextCursor"])
            found += page["keys"]
        want = {"k%02d" % i for i in range(0, 40, 2)} - {"k20"} | {"k21"}
        self.assertEqual(found, sorted(want))

    def test_cursor_of_another_prefix(self):
        space = self.fresh()
        for key in ("a1", "a2", "b1", "b2"):
            self.put(space, key)
        cursor = self.list(space, limit=1)["nextCursor"]
        page = self.list(space, prefix="b", cursor=cursor)
        self.assertEqual(page["keys"], ["b1", "b2"])
        late = base64.urlsafe_b64encode(b"c").rstrip(b"=").decode()
        page = self.list(space, prefix="b", cursor=late)
        self.assertEqual((page["keys"], page["nextCursor"]), ([], None))

    # Bodies.

    def test_refused_before_it_is_read(self):
        """The answer comes though only the head was sent."""
        for uri, status, word in ((path("n", "k"), 413, "value_too_large"),
                                  ("/v1/memory/a~/k", 400, "invalid_request"),
                                  ("/nope", 404, "not_found")):
            with fcgi_client.Connection(self.service.socket) as c:
                c.send(self.head(uri, 100 << 20))
                self.refuse(c.response(), status, word)
                # What is under way is still taken.
                c.send(fcgi_client.stream(fcgi_client.STDIN, b"x" * 300000)
                       [:-8])

    @staticmethod
    def head(uri, length):
        params = fcgi_client.variables("PUT", uri) + [
            ("CONTENT_LENGTH", str(length))]
        return fcgi_client.begin(flags=1) + fcgi_client.stream(
            fcgi_client.PARAMS,
            b"".join(fcgi_client.pair(*p) for p in params))

    def test_connection_after_a_body_that_was_read(self):
        space = self.fresh()
        with fcgi_client.Connection(self.service.socket) as c:
            for size in (10, 262144, 262145, 1 << 20, 0):
                r = c.request("PUT", path(space, "k"), b"x" * size, flags=1)
                self.assertEqual(r.status, 204)
                r = c.request("GET", path(space, "k"), flags=1)
                self.assertEqual(len(r.body), size)

    def test_without_a_length(self):
        space = self.fresh()
        for length in (None, "", "-1"):
            for size in (5, 1 << 20):
                self.assertEqual(self.request(
                    "PUT", path(space, "k"), b"y" * size,
                    extra=[("CONTENT_LENGTH", length)]).status, 204)
                self.assertEqual(self.get(space, "k").body, b"y" * size)
            self.refuse(self.request(
                "PUT", path(space, "k"), b"y" * (VALUE_MAX + 1),
                extra=[("CONTENT_LENGTH", length)]), 413, "value_too_large")

    def test_broken_off(self):
        """Nothing of it is kept, whether the front server ends the body too
        early or closes the connection."""
        space = self.fresh()
        for size in (100, 400000):
            r = self.request("PUT", path(space, "k"), b"z" * size, extra=[
                ("CONTENT_LENGTH", str(size + 1))])
            self.refuse(r, 400, "invalid_request", "broke off")
            with fcgi_client.Connection(self.service.socket) as c:
                c.send(self.head(path(space, "k"), size + 1))
                c.send(fcgi_client.stream(fcgi_client.STDIN,
                                          b"z" * size)[:-8])
        self.service.wait_for(lambda: sum(
            e["flags"] == ["clientGone"] for e in
            self.service.access_log()) >= 1, "client that left")
        self.assertEqual(self.get(space, "k").status, 404)

    # Other things.

    def test_log_has_no_value(self):
        space = self.fresh()
        self.put(space, "k", b"SECRET-VALUE")
        self.request("GET", "/v1/memory/%s?prefix=SECRET-PREFIX" % space)
        self.service.wait_for(lambda: any(
            space in e["path"] for e in self.service.access_log()), "log")
        self.assertNotIn("SECRET", json.dumps(self.service.access_log()))
        self.assertNotIn("SECRET", self.service.log())

    def test_files(self):
        names = [n for n in os.listdir(self.service.path("state"))
                 if n.startswith("isobox.db")]
        self.assertIn("isobox.db", names)
        for name in names:
            mode = os.stat(self.service.path("state/" + name)).st_mode
            self.assertEqual(stat.S_IMODE(mode), 0o600)

    def test_metrics(self):
        def read():
            lines = self.request("GET", "/metrics").body.decode().split("\n")
            return dict(line.rsplit(" ", 1) for line in lines
                        if line.startswith("isobox_memory"))
        space, before = self.fresh(), read()
        self.put(space, "a", b"12345")
        self.get(space, "a")
        self.get(space, "a", method="HEAD")
        self.get(space, "none")
        self.list(space)
        after = read()
        for name, more in (("writes_total", 1), ("reads_total", 2),
                           ("lists_total", 1), ("deletes_total", 0),
                           ("sent_bytes_total", 5),
                           ("received_bytes_total", 5), ("keys", 1),
                           ("bytes", 5)):
            name = "isobox_memory_" + name
            self.assertEqual(int(after[name]) - int(before[name]), more, name)


class Cgi(Basics, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service()

    @classmethod
    def tearDownClass(cls):
        cls.service.close()

    def request(self, method, uri, body=None, headers=(), **kw):
        return self.service.cgi(method, uri, body, headers, **kw)

    def test_bodies(self):
        space = self.fresh()
        big = b"x" * (1 << 20)
        for length, stdin, status in (
                (len(big), big, 204), (None, big, 204),
                (len(big) + 1, big, 400), (5, b"12345trailing", 204),
                (VALUE_MAX + 1, b"", 413),
                ("", b"x" * (VALUE_MAX + 1), 413)):
            r = self.service.cgi("PUT", path(space, "k"), stdin=stdin,
                                 extra=[("CONTENT_LENGTH", length)])
            self.assertEqual(r.status, status, (length, r))
        self.assertEqual(self.get(space, "k").body, b"12345")

    def test_execute_does_not_touch_the_store(self):
        """Only the sweep does, behind the first answer."""
        s = Service()
        try:
            body = json.dumps({"language": "python", "code": ""})
            self.assertEqual(s.cgi("POST", "/execute", body).status, 200)
            before = os.stat(s.path("state/isobox.db"))
            self.assertEqual(s.cgi("POST", "/execute", body).status, 200)
            after = os.stat(s.path("state/isobox.db"))
            self.assertEqual((before.st_mtime_ns, before.st_atime_ns),
                             (after.st_mtime_ns, after.st_atime_ns))
        finally:
            s.close()

    def test_together_with_a_service(self):
        s = Service()
        try:
            s.start()
            s.request("PUT", path("n", "a"), b"1")
            self.assertEqual(s.cgi("GET", path("n", "a")).body, b"1")
            s.cgi("PUT", path("n", "b"), b"2")
            self.assertEqual(s.request("GET", path("n", "b")).body, b"2")
        finally:
            s.close()


class Quota(Memory, ServiceCase):
    settings = {"api_keys": ["alice", "bob"]}

    def request(self, method, uri, body=None, headers=(), who="alice", **kw):
        headers = {"X-API-Key": who, **dict(headers)}
        return self.service.request(method, uri, body, headers, **kw)

    def tearDown(self):
        for space in ("a", "b"):
            for key in self.keys(space, limit=1000):
                self.delete(space, key)

    def test_bytes(self):
        """To the last byte, and the value that is replaced makes room."""
        self.put("a", "1", b"x" * VALUE_MAX)
        self.assertEqual(self.put(
            "b", "2", b"x" * (QUOTA - VALUE_MAX)).status, 204)
        self.refuse(self.put("a", "3", b"x"), 413, "quota_exceeded",
                    "10485760")
        self.assertEqual(self.put("a", "3", b"").status, 204)
        self.refuse(self.put("a", "1", b"x" * (VALUE_MAX + 1)), 413,
                    "value_too_large")
        self.assertEqual(self.put("a", "1", b"y" * VALUE_MAX).status, 204)
        self.refuse(self.put("b", "2", b"x" * (QUOTA - VALUE_MAX + 1)), 413,
                    "quota_exceeded")
        self.assertEqual(self.put("a", "1", b"x").status, 204)
        self.assertEqual(self.put("a", "3", b"x").status, 204)
        # Nobody else's.
        self.assertEqual(self.put("a", "3", b"x" * VALUE_MAX,
                                  who="bob").status, 204)

    def test_keys(self):
        """The first 9,990 are put by SQL: each by itself costs a fsync."""
        self.put("a", "x")
        tenant = hashlib.blake2b(b"alice", digest_size=32).hexdigest()
        with contextlib.closing(sqlite3.connect(
                self.service.path("state/isobox.db"))) as db, db:
            db.executemany(
                "INSERT INTO memory (tenant, space, key, etag, type, size, "
                "modified_ms, expires_ms, value) "
                "VALUES (?, 'a', ?, '', '', 0, 0, 0, x'')",
                ((tenant, b"%05d" % i) for i in range(9990)))
        self.delete("a", "x")
        for i in range(9990, 10000):
            self.assertEqual(self.put("a", "%05d" % i).status, 204, i)
        self.refuse(self.put("a", "10000"), 413, "quota_exceeded",
                    "10000 keys")
        self.assertEqual(self.put("a", "00077", b"1").status, 204)
        self.delete("a", "00500")
        self.assertEqual(self.put("a", "10000").status, 204)
        self.refuse(self.put("b", "00500"), 413, "quota_exceeded")
        self.assertEqual(self.put("a", "00500", who="bob").status, 204)
        self.assertEqual(self.keys("a", limit=1000), [
            "%05d" % i for i in range(10001) if i != 500])
        with contextlib.closing(sqlite3.connect(
                self.service.path("state/isobox.db"))) as db, db:
            db.execute("DELETE FROM memory")

    def test_what_expired_makes_room(self):
        self.put("a", "1", b"x" * VALUE_MAX, {"X-TTL-Seconds": "5"})
        self.refuse(self.put("a", "2", b"x" * VALUE_MAX), 413,
                    "quota_exceeded")
        time.sleep(5.1)
        self.assertEqual(self.put("a", "2", b"x" * VALUE_MAX).status, 204)

    def test_refused_leaves_all_as_it_was(self):
        self.put("a", "1", b"x" * VALUE_MAX)
        self.put("a", "2", b"old", {"X-TTL-Seconds": "100"}, type="a/b")
        before = self.get("a", "2")
        self.refuse(self.put("a", "2", b"x" * VALUE_MAX), 413,
                    "quota_exceeded")
        after = self.get("a", "2")
        for name in ("etag", "last-modified", "x-expires-at",
                     "content-type"):
            self.assertEqual(before.headers[name], after.headers[name])
        self.assertEqual(after.body, b"old")


class Tenants(Memory, ServiceCase):
    settings = {"api_keys": ["alice", "bob"]}

    def request(self, method, uri, body=None, headers=(), **kw):
        return self.service.request(method, uri, body, headers, **kw)

    def test_each_has_its_own(self):
        alice = {"X-API-Key": "alice"}
        bob = {"Authorization": "Bearer bob"}
        tag = self.put("n", "k", b"alice's", alice).headers["etag"]
        self.assertEqual(self.get("n", "k", bob).status, 404)
        self.assertEqual(self.list("n", bob)["keys"], [])
        self.assertEqual(self.put("n", "k", b"", {
            **bob, "If-Match": tag}).status, 412)
        self.assertEqual(self.put("n", "k", b"bob's", {
            **bob, "If-None-Match": "*"}).status, 204)
        self.assertEqual(self.delete("n", "k", bob).status, 204)
        self.assertEqual(self.get("n", "k", alice).body, b"alice's")
        cursor = base64.urlsafe_b64encode(b"a").rstrip(b"=").decode()
        self.assertEqual(self.list("n", bob, cursor=cursor)["keys"], [])

    def test_names_of_tenants_mean_nothing(self):
        self.put("n", "k", b"1", {"X-API-Key": "alice"})
        for headers in ({"X-Tenant": "alice"}, {"X-API-Key": "public"}, {}):
            r = self.get("n", "k", headers)
            self.assertEqual((r.status, r.json()), (401, UNAUTHORIZED))

    def test_without_a_key(self):
        for r in (self.put("n", "k"), self.get("n", "k"),
                  self.delete("n", "k"), self.request("GET", "/v1/memory/n"),
                  self.put("n", "k", b"", {"X-API-Key": "carol"}),
                  self.request("GET", "/v1/memory/a~/k"),
                  self.put("n", "k", b"x" * (VALUE_MAX + 1))):
            self.assert_error(r, 401, UNAUTHORIZED)
        self.assertEqual(self.request("OPTIONS", path("n", "k")).status, 204)

    def test_the_file_holds_no_key(self):
        self.put("n", "k", b"1", {"X-API-Key": "alice"})
        for name in os.listdir(self.service.path("state")):
            with open(self.service.path("state/" + name), "rb") as f:
                self.assertNotIn(b"alice", f.read().replace(b"alice's", b""))


class SlowBodies(Memory, ServiceCase):
    settings = {"threads": 8}

    def request(self, method, uri, body=None, headers=(), **kw):
        return self.service.request(method, uri, body, headers, **kw)

    def others(self):
        """How long twenty others take."""
        begun = time.monotonic()
        for _ in range(20):
            self.assertEqual(self.service.execute(
                language="python", code="").status, 200)
            self.assertEqual(self.put("n", "small").status, 204)
        return time.monotonic() - begun

    def test_they_hold_no_other(self):
        """More of them than there are threads, each in the middle of its
        body: a quarter of the threads waits for them."""
        size = 262144 + 1
        conns = [fcgi_client.Connection(self.service.socket)
                 for _ in range(20)]
        try:
            for i, c in enumerate(conns):
                c.send(FastCgi.head(path("n", "k%d" % i), size))
                c.send(fcgi_client.record(fcgi_client.STDIN, b"x" * 100))
            self.assertLess(again(self.others, lambda took: took < 5), 5)
            rest = fcgi_client.stream(fcgi_client.STDIN, b"x" * (size - 100))
            for c in conns:
                c.send(rest)
                self.assertEqual(c.response().status, 204)
        finally:
            for c in conns:
                c.close()
        self.assertEqual(len(self.keys("n")), 21)

    def test_who_waits_too_long_is_told(self):
        conns = [fcgi_client.Connection(self.service.socket)
                 for _ in range(3)]
        try:
            for c in conns:
                c.send(FastCgi.head(path("m", "k"), 300000))
                time.sleep(0.1)
            time.sleep(10.5)
            conns[0].close()
            r = conns[2].response()
            self.refuse(r, 429, "capacity", "uploads")
            self.assertEqual(r.headers["retry-after"], "1")
        finally:
            for c in conns:
                c.close()


class KeyRequired(ServiceCase):
    settings = {"memory_require_key": True}

    def test_open_but_for_memory(self):
        for method, uri in (("PUT", path("n", "k")), ("GET", path("n", "k")),
                            ("DELETE", path("n", "k")),
                            ("GET", "/v1/memory/n")):
            self.assert_error(self.service.request(
                method, uri, b"" if method == "PUT" else None), 401,
                UNAUTHORIZED)
        self.assertEqual(self.service.execute(language="python",
                                              code="").status, 200)


class Trouble(Memory, unittest.TestCase):
    """What is wrong with the store is told, and ends nothing else."""

    def start(self, **settings):
        self.service = Service(**settings)
        self.addCleanup(self.service.close)
        return self.service

    def request(self, method, uri, body=None, headers=(), **kw):
        return self.service.request(method, uri, body, headers, **kw)

    def test_damaged_at_the_start(self):
        s = self.start()
        s.write("state/isobox.db", "nonsense" * 1000)
        with self.assertRaises(AssertionError) as e:
            s.start()
        self.assertIn("ended with 1", str(e.exception))
        self.assertIn("state/isobox.db: the store is damaged",
                      str(e.exception))
        r = s.cgi("GET", path("n", "k"))
        self.refuse(r, 503, "storage_failed", "damaged")
        self.assertIn("damaged", r.stderr)
        self.assertEqual(s.cgi("GET", "/healthz").status, 200)

    def test_no_directory(self):
        s = self.start(state_dir="/nonexistent/state")
        with self.assertRaises(AssertionError) as e:
            s.start()
        self.assertIn("state directory cannot be reached", str(e.exception))
        self.refuse(s.cgi("GET", path("n", "k")), 503, "storage_failed")

    def test_locked(self):
        s = self.start()
        s.start()
        self.put("n", "k", b"1")
        db = sqlite3.connect(s.path("state/isobox.db"), isolation_level=None)
        try:
            db.execute("BEGIN IMMEDIATE")
            begun = time.monotonic()
            answers = []
            run_all([lambda: answers.append(self.put(
                "n", "k", b"2", timeout=40))] * 5)
            for r in answers:
                self.refuse(r, 503, "storage_failed", "")
                self.assertEqual(r.headers["retry-after"], "1")
            self.assertLess(time.monotonic() - begun, 25)
            self.assertEqual(self.get("n", "k").body, b"1")
            self.assertEqual(s.execute(language="python",
                                       code="").status, 200)
            db.execute("COMMIT")
        finally:
            db.close()
        self.assertEqual(self.put("n", "k", b"3").status, 204)


def run_all(jobs):
    errors = []

    def run(job):
        try:
            job()
        except Exception as e:
            errors.append(e)
    threads = [threading.Thread(target=run, args=(j,)) for j in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


if __name__ == "__main__":
    unittest.main()
