# SPDX-License-Identifier: Apache-2.0
"""Every error of the API, with its exact status and body."""

import json
import unittest

from service import ServiceCase

LIMIT_BODY = 256 * 1024


def error(word, detail=None):
    return {"error": word} if detail is None else {"error": word,
                                                   "detail": detail}


def request(**members):
    found = {"language": "python", "code": "1"}
    found.update(members)
    return json.dumps({k: v for k, v in found.items() if v is not Ellipsis})


def invalid(detail, **members):
    return request(**members), 400, error("invalid_request", detail)


def bad_file(detail, *files, **members):
    members.setdefault("code", ...)
    return request(files=list(files), **members), 400, error("invalid_file",
                                                             detail)


def named(name, **members):
    return {"name": name, "content": "x", **members}


# (body, status, answer) of POST /execute
TABLE = [
    # language
    (request(language=...), 400, error("language_required")),
    (request(language=""), 400, error("language_required")),
    (request(language=None), 400, error("language_required")),
    ('{}', 400, error("language_required")),
    invalid("language must be a string", language=1),
    (request(language="cobol"), 400, error(
        "unknown_language",
        '"cobol" is not a known runtime; see GET /runtimes')),
    (request(language="Python"), 400, error(
        "unknown_language",
        '"Python" is not a known runtime; see GET /runtimes')),
    (request(language="lost"), 400, error(
        "unknown_language",
        '"lost" is not a known runtime; see GET /runtimes')),
    # source
    (request(code=...), 400, error("no_source", "provide `code` or `files`")),
    (request(code=None, files=None), 400,
     error("no_source", "provide `code` or `files`")),
    (request(code=..., files=[]), 400,
     error("no_source", "provide `code` or `files`")),
    # wrong types
    invalid("version must be a string", version=3.14),
    invalid("code must be a string", code=["1"]),
    invalid("files must be an array", files={}),
    invalid("files[0] must be an object", files=["main.py"]),
    invalid("files[1].name must be a string", code=...,
            files=[named("a"), named(1)]),
    invalid("files[0].content must be a string", code=...,
            files=[{"name": "a", "content": 1}]),
    invalid("files[0].encoding must be a string", code=...,
            files=[named("a", encoding=64)]),
    invalid("stdin must be a string", stdin=0),
    invalid("args must be an array", args="a"),
    invalid("args[1] must be a string", args=["a", 1]),
    invalid("args[0] must be a string", args=[None]),
    invalid("args[0] must not contain NUL", args=["a\0b"]),
    invalid("args: 257 of them, at most 256 are allowed", args=["a"] * 257),
    invalid("limits must be an object", limits=[]),
    invalid("limits.memoryBytes must be an integer",
            limits={"memoryBytes": 1.5}),
    invalid("limits.memoryBytes must be an integer",
            limits={"memoryBytes": "1"}),
    invalid("limits.pids must be an integer", limits={"pids": True}),
    invalid("limits.outputBytes must be an integer",
            limits={"outputBytes": 2048.0}),
    invalid("limits.wallTimeMs must be an integer",
            limits={"wallTimeMs": {}}),
    invalid("limits.cpus must be a number", limits={"cpus": "1"}),
    *[invalid("network must be true or false, or an object with a list of "
              "host names: allow", network=n) for n in ("false", 0, ["a"])],
    *[invalid("network: an object must have a list of host names: allow",
              network=n) for n in ({}, {"allow": None}, {"deny": ["a"]})],
    invalid("network.allow must be an array", network={"allow": "pypi.org"}),
    *[invalid("network.allow must have 1 to 64 host names; without any "
              "network: false", network={"allow": n})
      for n in ([], ["a"] * 65)],
    invalid("network.allow[1] must be a string",
            network={"allow": ["a.org", 1]}),
    *[invalid("network.allow[0] must be a host name, or \"*.\" and a host "
              "name: letters, digits, \"-\" and \"_\"",
              network={"allow": [n]})
      for n in ("a b", "a/b", "http://a", "a:80", "*", "a.*", "*a.org",
                "\u00e9.org", "a\0.org", "[::1]")],
    *[invalid("network.allow[0] must have 1 to 63 characters between dots",
              network={"allow": [n]})
      for n in (".a", "a.", "a..b", "*.", "a" * 64)],
    *[invalid("network.allow[0] must have 1 to 253 characters",
              network={"allow": [n]}) for n in ("", "a." * 126 + "bc")],
    *[invalid("network.allow[0] must not have \"-\" beside a dot or an end",
              network={"allow": [n]}) for n in ("-a.org", "a-.org", "a.b-")],
    *[invalid("network.allow[0] must be a name and not an address",
              network={"allow": [n]}) for n in ("1.1.1.1", "*.1", "16843009")],
    invalid("outputEncoding must be a string", outputEncoding=1),
    invalid('outputEncoding must be "utf8" or "base64"',
            outputEncoding="hex"),
    invalid('outputEncoding must be "utf8" or "base64"', outputEncoding=""),
    # files
    bad_file("files[0].name: is missing", {"content": "x"}),
    bad_file("files[0].content: is missing", {"name": "x"}),
    bad_file("files[0].name: must not be empty", named("")),
    bad_file('files[0].name: must be relative, not start with "/"',
             named("/etc/passwd")),
    bad_file('files[1].name: ".." and "." are not allowed'.replace(
        '".." and "."', '"." and ".."'), named("a"), named("../a")),
    bad_file('files[0].name: "." and ".." are not allowed', named("a/./b")),
    bad_file('files[0].name: a component is empty (doubled or final "/")',
             named("a//b")),
    bad_file("files[0].name: must not contain NUL", named("a\0b")),
    bad_file("files[0].name: a component has 256 bytes, at most 255 are "
             "allowed", named("a" * 256)),
    bad_file("files[0].name: has 1025 bytes, at most 1024 are allowed",
             named("/".join(["a" * 204] * 5) + "b")),
    bad_file("files[1].name: the same name as files[0]",
             named("a"), named("a")),
    bad_file("files[1].name: a file here would be a folder of the other: see "
             "files[0]", named("a/b"), named("a")),
    bad_file("files: at most 64 are allowed, `code` counts as one",
             *[named("f%d" % i) for i in range(65)]),
    bad_file("files: at most 64 are allowed, `code` counts as one",
             *[named("f%d" % i) for i in range(64)], code="1"),
    bad_file('files[0].name: "main.py" is the name of `code`',
             named("main.py"), code="1"),
    bad_file('files: a name is in the way of "main.py", the name of `code`',
             named("main.py/x"), code="1"),
    bad_file('files[0].encoding: must be "utf8", "base64" or "hex"',
             named("a", encoding="latin1")),
    bad_file("files[0].content: is not base64 (standard alphabet, padded)",
             {"name": "a", "content": "YQ", "encoding": "base64"}),
    bad_file("files[0].content: is not base64 (standard alphabet, padded)",
             {"name": "a", "content": "_w==", "encoding": "base64"}),
    bad_file("files[0].content: is not base64 (standard alphabet, padded)",
             {"name": "a", "content": "Y Q==", "encoding": "base64"}),
    bad_file("files[0].content: is not hexadecimal",
             {"name": "a", "content": "abc", "encoding": "hex"}),
    bad_file("files[0].content: is not hexadecimal",
             {"name": "a", "content": "0x61", "encoding": "hex"}),
]

# Not JSON, as the API has it: the detail names the byte.
NOT_JSON = [
    b"", b" ", b"null", b"[]", b'"x"', b"1", b"{", b'{"a":1}x', b'{"a":1}{}',
    b"{'a':1}", b'{"a":NaN}', b'{"a":Infinity}', b'{"a":01}', b'{"a":1,}',
    b'{"a":1,"a":2}', b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}',
    b'{"a":"\\ud800"}', b'{"a":"\x01"}', b'{"a":"\\x41"}', b"\xef\xbb\xbf{}",
    b'{"a":' + b"[" * 40 + b"]" * 40 + b"}", b"{}\0", b'{"a":+1}',
    b'{"a":tru}', b'{/**/}', b'{"a":' + b"[" * 100000,
]


class Errors(ServiceCase):
    def test_table(self):
        for body, status, answer in TABLE:
            with self.subTest(body=body[:200]):
                self.assert_error(self.service.execute(body), status, answer)
        self.assertEqual(self.runner.calls, [])

    def test_plain_http_when_a_stream_was_asked_for(self):
        for body, status, answer in TABLE[:4]:
            self.assert_error(self.service.execute(
                body, {"Accept": "text/event-stream"}), status, answer)

    def test_not_json(self):
        for body in NOT_JSON:
            with self.subTest(body=body[:60]):
                r = self.service.execute(body)
                self.assertEqual(r.status, 400)
                self.assertEqual(r.json()["error"], "invalid_json")
                self.assertRegex(r.json()["detail"], r"offset \d+")
                self.assert_common(r)

    def test_unknown_version_names_what_there_is(self):
        r = self.service.execute(language="python", version="2.7", code="1")
        self.assertEqual((r.status, r.json()["error"]),
                         (400, "unknown_language"))
        self.assertIn("3.14-agent", r.json()["detail"])
        self.assertIn("3.11", r.json()["detail"])

    def test_body_cap(self):
        body = request(code="#" * (LIMIT_BODY - len(request(code=""))))
        self.assertEqual(len(body), LIMIT_BODY)
        self.assertEqual(self.service.execute(body).status, 200)
        for size in (1, 100000, 5 << 20):
            self.assert_error(
                self.service.execute(body + " " * size), 400,
                error("invalid_json", "the body is larger than 262144 bytes"))

    def test_body_is_counted_whatever_its_declared_length(self):
        body = request()
        for declared in ("", "-1", None, "1", "x", "0", "9" * 40):
            r = self.service.request("POST", "/execute", body, extra=[
                ("CONTENT_LENGTH", declared)])
            self.assertEqual(r.status, 200, declared)
        big = body + " " * LIMIT_BODY
        for declared in ("", "-1", None, "1"):
            r = self.service.request("POST", "/execute", big, extra=[
                ("CONTENT_LENGTH", declared)])
            self.assert_error(r, 400, error(
                "invalid_json", "the body is larger than 262144 bytes"))

    def test_broken_upload(self):
        body = request()
        r = self.service.request("POST", "/execute", body, extra=[
            ("CONTENT_LENGTH", len(body) + 1)])
        self.assert_error(r, 400, error(
            "invalid_json", "the upload broke off: %d of %d bytes" % (
                len(body), len(body) + 1)))

    def test_not_found(self):
        for uri in ("/", "/nope", "/execute/", "//execute", "/execute%2F",
                    "/exec", "/executee", "/execute%00", "/Execute", "/v1",
                    "/x/../execute", "/healthz/x", "/" + "a/" * 300,
                    "/execute;x", "/%65xecut", "/llms.txt", "/openapi.yaml"):
            for method in ("GET", "POST", "PUT", "DELETE", "BREW"):
                if uri in ("/llms.txt", "/openapi.yaml") and method != "GET":
                    continue
                with self.subTest(uri=uri, method=method):
                    self.assert_error(self.service.request(method, uri), 404,
                                      error("not_found"))

    def test_method_not_allowed(self):
        for uri, allow in (("/execute", "POST, OPTIONS"),
                           ("/runtimes", "GET, HEAD, OPTIONS"),
                           ("/healthz", "GET, HEAD, OPTIONS"),
                           ("/readyz", "GET, HEAD, OPTIONS"),
                           ("/metrics", "GET, HEAD, OPTIONS"),
                           ("/llms.txt", "GET, HEAD, OPTIONS"),
                           ("/openapi.yaml", "GET, HEAD, OPTIONS")):
            for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "BREW",
                           "get", ""):
                if method in allow.split(", ") and method:
                    continue
                with self.subTest(uri=uri, method=method):
                    r = self.service.request(method, uri)
                    self.assert_error(r, 405, error("method_not_allowed"))
                    self.assertEqual(r.headers["allow"], allow)
        r = self.service.request("HEAD", "/execute")
        self.assertEqual((r.status, r.body), (405, b""))

    def test_bad_uri(self):
        for uri, detail in (
                ("/%", '"%" in the path without two hex digits'),
                ("/%4", '"%" in the path without two hex digits'),
                ("/%zz", '"%" in the path without two hex digits'),
                ("execute", 'the path must start with "/"'),
                ("", 'the path must start with "/"'),
                ("/" + "a" * 8191,
                 "the URI has 8192 bytes, at most 8191 are allowed")):
            self.assert_error(self.service.request("GET", uri), 400,
                              error("invalid_request", detail))
        r = self.service.request("GET", "", extra=[("REQUEST_URI", None)])
        self.assert_error(r, 400, error(
            "invalid_request", "the web server sent no REQUEST_URI"))

    def test_runner_refuses(self):
        for kind, status in (("invalid_request", 400), ("invalid_file", 400),
                             ("unknown_language", 400),
                             ("sandbox_failed", 503)):
            self.runner.on_run = lambda call: call.fail(kind, 0, "why \u00fc")
            self.assert_error(self.service.execute(request()), status,
                              error(kind, "why \u00fc"))

    def test_runner_says_what_it_has_no_say_in(self):
        for kind in ("internal_error", "unauthorized", "not_found",
                     "client_gone", "rate_limited"):
            self.runner.on_run = lambda call: call.fail(kind, 0, "why")
            self.assert_error(self.service.execute(request()), 503,
                              error("sandbox_failed", "why"))

    def test_paths_of_the_host_are_for_the_log(self):
        for said, told in (
                ("cgroup /isobox/run-1: cannot write 5 to memory.max: No "
                 "space left on device", "cgroup [path]: cannot write 5 to "
                 "memory.max: No space left on device"),
                ("/srv/a b/c, \"/x\" (/y): gone",
                 "[path] [path], [path] [path]: gone"),
                ("runsc:/usr/bin/runsc", "[path]"),
                ("isobox.slice/a.scope", "[path]"), ("/", "[path]"),
                ("a\t\n/b\u00fc\n", "a\t\n[path]\n"),
                ("::,", "::,"), ("/" * 255, "[path]"), ("", None)):
            with self.subTest(said=said):
                self.runner.on_run = lambda call: call.fail(
                    "sandbox_failed", 0, said)
                r = self.service.execute(request())
                self.assert_error(r, 503, error("sandbox_failed", told))
                self.assertIn(r.headers["x-request-id"] +
                              ": sandbox_failed: " + said.split("\t")[0],
                              self.service.log())

    def test_paths_in_a_stream(self):
        self.runner.on_run = lambda call: (call.started(), call.fail(
            "sandbox_failed", 0, "/sys/fs/cgroup/x/run-1: gone"))
        r = self.service.execute(request(), {"Accept": "text/event-stream"})
        self.assertEqual(r.events()[-1], (
            "error", '{"error":"sandbox_failed","detail":"[path]: gone"}'))
        self.assertIn("sandbox_failed: /sys/fs/cgroup/x/run-1: gone",
                      self.service.log())

    def test_what_the_client_wrote_is_told(self):
        self.runner.on_run = lambda call: call.fail(
            "invalid_file", 0, "files[0].name: a/b")
        self.assert_error(self.service.execute(request()), 400, error(
            "invalid_file", "files[0].name: a/b"))
        self.assert_error(self.service.execute(request(language="a/b")), 400,
                          error("unknown_language", '"a/b" is not a known '
                                "runtime; see GET /runtimes"))

    def test_capacity(self):
        for retry in (0, 1, 7):
            self.runner.on_run = lambda call: call.fail("capacity", retry, "x")
            r = self.service.execute(request())
            self.assert_error(r, 429, error("capacity",
                                            "no free execution slot"))
            self.assertEqual(r.headers["retry-after"], str(max(1, retry)))

    def test_options(self):
        for uri in ("/", "/execute", "/nope", "*", "/%", "/v1/memory/a/b"):
            r = self.service.request("OPTIONS", uri)
            self.assertEqual((r.status, r.body), (204, b""), uri)
            self.assert_common(r)
            self.assertEqual(r.headers["access-control-allow-methods"],
                             "GET, HEAD, POST, PUT, DELETE, OPTIONS")
            for name in ("Authorization", "X-API-Key", "Content-Type"):
                self.assertIn(name,
                              r.headers["access-control-allow-headers"])
            self.assertIn("X-Request-Id",
                          r.headers["access-control-expose-headers"])


class Unreachable(ServiceCase):
    settings = {"runner_socket": "/nonexistent/runner.sock"}

    def test_execute(self):
        r = self.service.execute(request())
        self.assert_error(r, 503, error(
            "sandbox_failed", "isobox-runner cannot be reached: "
            "No such file or directory"))
        r = self.service.execute(request(), {"Accept": "text/event-stream"})
        self.assertEqual(r.status, 503)

    def test_readyz(self):
        r = self.service.request("GET", "/readyz")
        self.assertEqual((r.status, r.json()), (503, {
            "ready": False, "reason": "isobox-runner cannot be reached: "
            "No such file or directory"}))

    def test_healthz_is_our_own(self):
        self.assertEqual(self.service.request("GET", "/healthz").status, 200)

    def test_metrics(self):
        r = self.service.request("GET", "/metrics")
        self.assertIn("\nisobox_runner_up 0\n", r.body.decode())


if __name__ == "__main__":
    unittest.main()
