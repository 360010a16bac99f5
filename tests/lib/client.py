# SPDX-License-Identifier: Apache-2.0
"""A small HTTP/1.1 client that hides nothing: headers as they came, events
with the time of their arrival, sockets that a test may break half-way."""

import json
import socket
import time


class Broken(Exception):
    """The server closed the connection, or sent what is no HTTP."""


class Response:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers  # list of (lower-case name, value)
        self.body = body

    def header(self, name):
        """The only value of a header, or None."""
        found = [v for k, v in self.headers if k == name.lower()]
        if len(found) > 1:
            raise AssertionError("%s came %d times" % (name, len(found)))
        return found[0] if found else None

    def json(self):
        return json.loads(self.body.decode("utf-8"))

    def __repr__(self):
        return "<%d %r>" % (self.status, self.body[:300])


class Event:
    def __init__(self, name, data, at):
        self.name = name
        self.data = data
        self.at = at  # time.monotonic() of its arrival

    def __repr__(self):
        return "<%s %r>" % (self.name, self.data)


class Connection:
    """One connection and one request on it."""

    def __init__(self, address, timeout=60.0, source=""):
        """source: the local address to come from."""
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.settimeout(timeout)
        try:
            # Bound, it could come from the very port that it wants to reach
            # and keep a server that starts from it.
            if source:
                self.sock.bind((source, 0))
            self.sock.connect(address)
        except OSError:
            self.sock.close()
            raise
        self.pending = b""
        self.eof = False

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def request(self, method, target, headers=(), body=None, chunked=None):
        """body: bytes with a Content-Length, or `chunked`: a list of bytes."""
        head = ["%s %s HTTP/1.1" % (method, target), "Host: 127.0.0.1"]
        head += ["%s: %s" % (k, v) for k, v in headers]
        head.append("Connection: close")
        if chunked is not None:
            head.append("Transfer-Encoding: chunked")
        elif body is not None:
            head.append("Content-Length: %d" % len(body))
        self.send(("\r\n".join(head) + "\r\n\r\n").encode("latin-1"))
        if chunked is not None:
            for part in chunked:
                self.send(b"%x\r\n%s\r\n" % (len(part), part))
            self.send(b"0\r\n\r\n")
        elif body is not None:
            self.send(body)

    def _fill(self):
        data = self.sock.recv(65536)
        if not data:
            self.eof = True
        self.pending += data
        return bool(data)

    def _line(self):
        while b"\n" not in self.pending:
            if not self._fill():
                raise Broken("connection closed within a line: %r"
                             % self.pending[:100])
        line, self.pending = self.pending.split(b"\n", 1)
        return line.rstrip(b"\r")

    def read_head(self):
        """Status and headers; interim answers (1xx) are passed over."""
        while True:
            words = self._line().split(b" ", 2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
                raise Broken("no HTTP answer: %r" % (words,))
            headers = []
            while True:
                line = self._line()
                if not line:
                    break
                name, _, value = line.partition(b":")
                headers.append((name.decode("latin-1").lower(),
                                value.strip().decode("latin-1")))
            status = int(words[1])
            if status >= 200:
                return status, headers

    def body_parts(self, method, status, headers):
        """Yields the body's bytes as they come."""
        fields = dict(headers)
        if method == "HEAD" or status in (204, 304):
            return
        if "chunked" in fields.get("transfer-encoding", ""):
            yield from self._chunks()
        elif "content-length" in fields:
            left = int(fields["content-length"])
            while left:
                if not self.pending and not self._fill():
                    raise Broken("body %d bytes short" % left)
                part, self.pending = self.pending[:left], self.pending[left:]
                left -= len(part)
                yield part
        else:
            while self.pending or self._fill():
                part, self.pending = self.pending, b""
                yield part

    def _chunks(self):
        while True:
            size = int(self._line().split(b";")[0], 16)
            if size == 0:
                while self._line():
                    pass
                return
            while size:
                if not self.pending and not self._fill():
                    raise Broken("a chunk %d bytes short" % size)
                part, self.pending = self.pending[:size], self.pending[size:]
                size -= len(part)
                yield part
            self._line()

    def response(self, method="GET"):
        status, headers = self.read_head()
        body = b"".join(self.body_parts(method, status, headers))
        return Response(status, headers, body)

    def events(self):
        """Yields the Events of a text/event-stream, comments as name None.
        Sets self.status and self.headers first."""
        self.status, self.headers = self.read_head()
        kind = dict(self.headers).get("content-type", "")
        if self.status != 200 or not kind.startswith("text/event-stream"):
            body = b"".join(
                self.body_parts("POST", self.status, self.headers))
            raise AssertionError("no stream but %d %s %r"
                                 % (self.status, kind, body[:500]))
        text = b""
        for part in self.body_parts("POST", self.status, self.headers):
            at = time.monotonic()
            text += part
            while b"\n\n" in text:
                block, text = text.split(b"\n\n", 1)
                yield parse_event(block.decode("utf-8"), at)
        if text.strip():
            raise AssertionError("half an event at the end: %r" % text)


def parse_event(block, at):
    name, data = None, []
    for line in block.split("\n"):
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith((":", "retry:")) or not line:
            continue
        else:
            raise AssertionError("no line of a stream: %r" % line)
    return Event(name, json.loads("\n".join(data)) if data else None, at)


class Client:
    """Requests to one server, each on a connection of its own."""

    def __init__(self, address, headers=(), timeout=60.0):
        self.address = address
        self.headers = list(headers)
        self.timeout = timeout

    def open(self):
        return Connection(self.address, self.timeout)

    def open_from(self, source):
        return Connection(self.address, self.timeout, source)

    def request(self, method, target, headers=(), body=None, chunked=None):
        with self.open() as c:
            try:
                c.request(method, target, self.headers + list(headers), body,
                          chunked)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused while we sent: the answer is there to read
            return c.response(method)

    def get(self, target, headers=()):
        return self.request("GET", target, headers)

    def post(self, target, body, headers=()):
        """body: bytes, or what becomes JSON."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return self.request("POST", target,
                            [("Content-Type", "application/json")]
                            + list(headers), body)

    def execute(self, language, code=None, **members):
        """POST /execute; the whole answer."""
        job = dict(members, language=language)
        if code is not None:
            job["code"] = code
        return self.post("/execute", job)

    def run(self, language, code=None, **members):
        """POST /execute that must answer 200; the `run` member."""
        r = self.execute(language, code, **members)
        if r.status != 200:
            raise AssertionError("%s: %r" % (language, r))
        return r.json()["run"]

    def open_stream(self, language, code, **members):
        """A Connection on which an SSE /execute has been asked for."""
        c = self.open()
        job = dict(members, language=language, code=code)
        c.request("POST", "/execute",
                  self.headers + [("Accept", "text/event-stream"),
                                  ("Content-Type", "application/json")],
                  json.dumps(job).encode())
        return c

    def stream(self, language, code, **members):
        """All events of an SSE run, comments left out."""
        with self.open_stream(language, code, **members) as c:
            return [e for e in c.events() if e.name]

    def metrics(self):
        """/metrics as {name or name{labels}: number}."""
        r = self.get("/metrics")
        if r.status != 200:
            raise AssertionError("/metrics: %r" % r)
        values = {}
        for line in r.body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values
