# SPDX-License-Identifier: Apache-2.0
"""Volumes, and sessions that hold them, with a fake runner."""

import json
import os
import threading
import unittest

from session_case import NO_VOLUME, SessionCase

BUSY = {"error": "volume_busy",
        "detail": "another session holds the volume"}


def error(word, detail=None):
    return {"error": word} if detail is None else {"error": word,
                                                   "detail": detail}


class VolumeCase(SessionCase):
    def request(self, method, rest="", body=None, headers=()):
        return self.service.request(method, "/v1/volumes" + rest, body,
                                    headers)


class Life(VolumeCase):
    def test_shapes(self):
        r = self.request("POST", "", '{"name":"m\u00e9m"}')
        self.assertEqual(r.status, 201)
        self.assert_common(r)
        v = r.json()
        self.assertEqual(list(v), ["id", "name", "createdAt", "attached",
                                   "disk"])
        self.assertRegex(v["id"], r"\A[A-Za-z0-9_-]{22}\Z")
        self.assertEqual((v["name"], v["attached"]), ("m\u00e9m", False))
        self.assertEqual(v["disk"], {"usedBytes": 0, "quotaBytes": 512 << 20,
                                     "files": 0})
        self.assertEqual(r.headers["location"], "/v1/volumes/" + v["id"])
        self.assertTrue(os.path.isdir(self.workspaces.root(2, v["id"])))
        with open(self.workspaces.root(2, v["id"]) + "/x", "w") as f:
            f.write("12345")
        r = self.request("GET", "/" + v["id"])
        self.assertEqual(r.json(), {**v, "disk": {
            "usedBytes": 5, "quotaBytes": 512 << 20, "files": 1}})
        r = self.request("GET")
        self.assertEqual(list(r.json()), ["volumes"])
        mine, = [x for x in r.json()["volumes"] if x["id"] == v["id"]]
        del v["disk"]
        self.assertEqual(mine, v)
        self.assertEqual(self.request("HEAD").body, b"")
        r = self.request("DELETE", "/" + v["id"])
        self.assertEqual((r.status, r.body), (204, b""))
        self.assertFalse(os.path.exists(self.workspaces.root(2, v["id"])))
        for method in ("GET", "DELETE"):
            self.assert_error(self.request(method, "/" + v["id"]), 404,
                              NO_VOLUME)

    def test_names(self):
        must = error("invalid_request", "name must have 1 to 128 bytes")
        for body in ("{}", '{"name":null}', '{"name":""}',
                     json.dumps({"name": "a" * 129})):
            self.assert_error(self.request("POST", "", body), 400, must)
        for bad in ("a\nb", "\0", "\x7f"):
            self.assert_error(
                self.request("POST", "", json.dumps({"name": bad})), 400,
                error("invalid_request",
                      "name must not contain control characters"))
        self.assert_error(self.request("POST", "", '{"name":1}'), 400, error(
            "invalid_request", "name must be a string"))
        self.assertEqual(self.request("POST", "", "x").json()["error"],
                         "invalid_json")
        one, two = self.volume("same"), self.volume("same")
        self.assertNotEqual(one["id"], two["id"])
        self.volume("a" * 128)
        self.volume('../"\u20ac')

    def test_ids(self):
        for bad in ("x", "A" * 22, "%00", "..", "%2e%2e%2f"):
            for method in ("GET", "DELETE"):
                self.assert_error(self.request(method, "/" + bad), 404,
                                  NO_VOLUME)
        self.assertEqual(self.asked("remove"), [])

    def test_methods(self):
        r = self.request("PUT")
        self.assertEqual((r.status, r.headers["allow"]),
                         (405, "GET, HEAD, POST, OPTIONS"))
        r = self.request("POST", "/x")
        self.assertEqual((r.status, r.headers["allow"]),
                         (405, "GET, HEAD, DELETE, OPTIONS"))

    def test_the_runner_refuses(self):
        before = self.request("GET").json()
        self.runner.on_ws = lambda c: c.fail("storage_full", 0, "full")
        self.assert_error(self.request("POST", "", '{"name":"x"}'), 507,
                          error("storage_full", "full"))
        self.assertEqual(self.request("GET").json(), before)


class Attach(VolumeCase):
    def test_one_holder(self):
        v = self.volume()
        s = self.create(volumeId=v["id"])
        self.assertEqual(s.facts["volumeId"], v["id"])
        self.assertEqual(s.request("GET").json()["volumeId"], v["id"])
        self.assertTrue(self.request("GET", "/" + v["id"]).json()["attached"])
        r = self.post(runtime="py", volumeId=v["id"])
        self.assert_error(r, 409, BUSY)
        r = self.request("DELETE", "/" + v["id"])
        self.assertEqual((r.status, r.json()["error"]), (409, "volume_busy"))
        self.assertTrue(os.path.isdir(self.workspaces.root(2, v["id"])))
        s.request("DELETE")
        self.assertFalse(self.request("GET", "/" + v["id"]).json()[
            "attached"])
        again = self.create(volumeId=v["id"])
        again.request("DELETE")
        self.assertEqual(self.request("DELETE", "/" + v["id"]).status, 204)

    def test_not_before_the_step_has_ended(self):
        """The volume is free only when the workspace, and so the last step,
        is gone."""
        v = self.volume()
        s = self.create(volumeId=v["id"])
        self.runner.on_ws = lambda call: None
        self.assertEqual(s.request("DELETE").status, 204)
        self.runner.reset()
        self.assert_error(self.post(runtime="py", volumeId=v["id"]), 409,
                          BUSY)

    def test_race_for_it(self):
        v = self.volume()
        found = []
        threads = [threading.Thread(target=lambda: found.append(
            self.post(runtime="py", volumeId=v["id"]).status))
            for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(found), [201] + [409] * 7)

    def test_unknown(self):
        for bad in ("x", "A" * 22, "../x", "\0" * 22):
            self.assert_error(self.post(runtime="py", volumeId=bad), 404,
                              NO_VOLUME)
        self.assert_error(self.post(runtime="py", volumeId=1), 400, error(
            "invalid_request", "volumeId must be a string"))
        for none in (None, ""):
            self.assertIsNone(self.create(volumeId=none).facts["volumeId"])

    def test_a_failed_creation_lets_go(self):
        v = self.volume()

        def refuse(call):
            if call.payload[0] == 1:  # create
                call.fail("storage_full", 0, "full")
            else:
                self.workspaces.serve(call)
        self.runner.on_ws = refuse
        self.assertEqual(self.post(runtime="py", volumeId=v["id"]).status,
                         507)
        self.runner.reset()
        self.create(volumeId=v["id"])


class Tenants(VolumeCase):
    settings = {"api_keys": ["key-a", "key-b"], "max_volumes": 2}
    A, B = {"X-API-Key": "key-a"}, {"X-API-Key": "key-b"}

    def test_separate(self):
        self.assert_error(self.request("GET"), 401, error("unauthorized"))
        v = self.volume("mine", self.A)
        self.assertEqual(self.request("GET", "", None, self.B).json(),
                         {"volumes": []})
        for method in ("GET", "DELETE"):
            self.assert_error(self.request(method, "/" + v["id"], None,
                                           self.B), 404, NO_VOLUME)
        self.assert_error(self.post(None, self.B, runtime="py",
                                    volumeId=v["id"]), 404, NO_VOLUME)
        self.create(self.A, volumeId=v["id"])
        # Held or not, another tenant sees the same.
        self.assert_error(self.post(None, self.B, runtime="py",
                                    volumeId=v["id"]), 404, NO_VOLUME)
        self.volume("2", self.A)
        r = self.request("POST", "", '{"name":"3"}', self.A)
        self.assertEqual((r.status, r.json()["error"]),
                         (429, "too_many_volumes"))
        self.volume("1", self.B)


class RequireKey(VolumeCase):
    settings = {"memory_require_key": True}

    def test_open_mode_has_no_volumes(self):
        no = error("unauthorized")
        for method, rest in (("GET", ""), ("POST", ""), ("GET", "/x"),
                             ("DELETE", "/x")):
            self.assert_error(self.request(method, rest, '{"name":"x"}'), 401,
                              no)
        self.create()
        self.assert_error(self.post(runtime="py", volumeId="A" * 22), 401,
                          no)


if __name__ == "__main__":
    unittest.main()
