# SPDX-License-Identifier: Apache-2.0
"""A small FastCGI client over a unix socket: whole requests, streams, and raw
records for tests that send what no web server would."""

import socket
import struct

BEGIN, ABORT, END, PARAMS, STDIN, STDOUT, STDERR = 1, 2, 3, 4, 5, 6, 7
GET_VALUES = 9
KEEP_CONN = 1


def record(kind, content=b"", request_id=1, padding=0, version=1):
    return struct.pack(">BBHHBB", version, kind, request_id, len(content),
                       padding, 0) + content + b"\0" * padding


def begin(request_id=1, role=1, flags=0):
    return record(BEGIN, struct.pack(">HB5x", role, flags), request_id)


def length(n):
    return bytes([n]) if n < 128 else struct.pack(">I", n | 1 << 31)


def pair(name, value):
    name, value = as_bytes(name), as_bytes(value)
    return length(len(name)) + length(len(value)) + name + value


def as_bytes(text):
    return text if isinstance(text, bytes) else str(text).encode()


def stream(kind, data, request_id=1, size=65528):
    """The records of a whole stream, its empty last one included."""
    out = [record(kind, data[i:i + size], request_id)
           for i in range(0, len(data), size)]
    return b"".join(out) + record(kind, b"", request_id)


def variables(method, uri, body=None, headers=(), remote="192.0.2.1"):
    """What a web server would send, as a list of pairs."""
    found = [("GATEWAY_INTERFACE", "CGI/1.1"), ("REQUEST_METHOD", method),
             ("REQUEST_URI", uri), ("REMOTE_ADDR", remote),
             ("SERVER_PROTOCOL", "HTTP/1.1")]
    if body is not None:
        found.append(("CONTENT_LENGTH", len(body)))
    headers = headers.items() if isinstance(headers, dict) else headers
    for name, value in headers:
        found.append(("HTTP_" + name.upper().replace("-", "_"), value))
    return found


def message(method, uri, body=None, headers=(), remote="192.0.2.1",
            request_id=1, flags=0, extra=()):
    """A whole request as bytes. extra: further parameters, or ones that replace
    a parameter of the same name; a value None leaves it out."""
    params = variables(method, uri, body, headers, remote)
    replaced = {name for name, _ in extra}
    params = [p for p in params if p[0] not in replaced]
    params += [p for p in extra if p[1] is not None]
    return (begin(request_id, flags=flags) +
            stream(PARAMS, b"".join(pair(*p) for p in params), request_id) +
            stream(STDIN, as_bytes(body or b""), request_id))


class Response:
    """status, headers (names in lower case), body; whole: END_REQUEST came."""

    def __init__(self, raw, whole=True):
        head, _, self.body = raw.partition(b"\r\n\r\n")
        self.raw = raw
        self.whole = whole
        self.status = 200
        self.headers = {}
        for line in head.decode("latin-1").split("\r\n"):
            name, _, value = line.partition(": ")
            if name == "Status":
                self.status = int(value.split(" ")[0])
            elif name:
                self.headers[name.lower()] = value

    def json(self):
        import json
        return json.loads(self.body)

    def events(self):
        return parse_events(self.body)

    def __repr__(self):
        return "Response(%d, %r)" % (self.status, self.body[:200])


def parse_events(body):
    """[(name, data)] of a stream of events; comments are left out."""
    found = []
    for block in body.decode("utf-8").split("\n\n"):
        lines = [s for s in block.split("\n") if s and not s.startswith(":")]
        if lines:
            fields = dict(s.split(": ", 1) for s in lines)
            found.append((fields["event"], fields["data"]))
    return found


class Connection:
    """One connection. request() for a whole answer; send() and pieces() for
    everything else."""

    def __init__(self, path, timeout=20.0):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.buffer = b""
        try:
            self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def read_record(self):
        """(type, content), or None at the end of the connection."""
        while True:
            if len(self.buffer) >= 8:
                size, padding = struct.unpack_from(">HB", self.buffer, 4)
                if len(self.buffer) >= 8 + size + padding:
                    kind = self.buffer[1]
                    content = self.buffer[8:8 + size]
                    self.buffer = self.buffer[8 + size + padding:]
                    return kind, content
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.buffer += data

    def pieces(self):
        """Standard output as it comes; ends at END_REQUEST or a closed
        connection, self.whole tells which."""
        self.whole = False
        while True:
            found = self.read_record()
            if found is None:
                return
            if found[0] == END:
                self.whole = True
                return
            if found[0] == STDOUT and found[1]:
                yield found[1]

    def response(self):
        raw = b"".join(self.pieces())
        return Response(raw, self.whole) if raw or self.whole else None

    def request(self, method, uri, body=None, headers=(), **kw):
        """The Response; None when the connection was closed without one."""
        self.send(message(method, uri, body, headers, **kw))
        return self.response()


def request(path, method, uri, body=None, headers=(), timeout=20.0, **kw):
    with Connection(path, timeout) as c:
        return c.request(method, uri, body, headers, **kw)


def send_raw(path, data, timeout=20.0):
    """Sends bytes and returns the Response, or None. The peer may close while
    it is sent."""
    with Connection(path, timeout) as c:
        try:
            c.send(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return c.response()
