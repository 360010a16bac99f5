# SPDX-License-Identifier: Apache-2.0
"""What the tests of sessions, their files and volumes share."""

import json
import os
import sqlite3
import urllib.parse

from service import ServiceCase

NOT_FOUND = {"error": "session_not_found"}
BAD_TOKEN = {"error": "invalid_session_token"}
NO_VOLUME = {"error": "volume_not_found"}


class Session:
    """A session and how to call it."""

    def __init__(self, case, facts, headers=()):
        self.case = case
        self.facts = facts
        self.id = facts["id"]
        self.token = facts["token"]
        self.headers = dict(headers)

    def request(self, method, rest="", body=None, headers=(), **kw):
        sent = {"X-Session-Token": self.token, **self.headers}
        sent.update(headers)
        sent = {k: v for k, v in sent.items() if v is not None}
        return self.case.service.request(
            method, "/v1/sessions/%s%s" % (self.id, rest), body, sent, **kw)

    def step(self, body=None, headers=(), query="", **members):
        if body is None:
            body = json.dumps(members)
        return self.request("POST", "/exec" + query, body, headers)

    def fs(self, method, path=None, body=None, more="", **kw):
        """path: quoted here; None leaves it out."""
        query = "?" + more.lstrip("&")
        if path is not None:
            query = "?path=" + urllib.parse.quote(path, safe="") + more
        return self.request(method, "/fs" + query, body, **kw)


class SessionCase(ServiceCase):
    def setUp(self):
        super().setUp()
        self.workspaces = self.service.workspaces

    def post(self, body=None, headers=(), **members):
        if body is None:
            body = json.dumps(members)
        return self.service.request("POST", "/v1/sessions", body, headers)

    def create(self, headers=(), runtime="python", **members):
        r = self.post(None, headers, runtime=runtime, **members)
        self.assertEqual(r.status, 201, r)
        self.assert_common(r)
        return Session(self, r.json(), headers)

    def volume(self, name="mem", headers=()):
        r = self.service.request("POST", "/v1/volumes",
                                 json.dumps({"name": name}), headers)
        self.assertEqual(r.status, 201, r)
        return r.json()

    def sql(self, statement, *values):
        """On the service's store, beside it."""
        db = sqlite3.connect(self.service.path("state/isobox.db"), timeout=10)
        try:
            with db:
                return db.execute(statement, values).fetchall()
        finally:
            db.close()

    def fds(self):
        """Descriptors of the service; the store keeps some more or less."""
        folder = "/proc/%d/fd" % self.service.process.pid
        found = 0
        for name in os.listdir(folder):
            try:
                found += "isobox.db" not in os.readlink(
                    os.path.join(folder, name))
            except FileNotFoundError:
                pass
        return found

    def assert_no_more_fds(self, before):
        self.service.wait_for(lambda: self.fds() <= before,
                              "closed descriptors")

    def asked(self, *ops):
        """The workspace requests of the current test, the sweep's left out."""
        return [q for q in list(self.workspaces.asked)
                if q.request_id != "sweep" and (not ops or q.op in ops)]
