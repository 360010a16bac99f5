# SPDX-License-Identifier: Apache-2.0
"""The store on a disk that is full, and on one that cannot be written to."""

import contextlib
import os
import sqlite3
import subprocess
import unittest

from fake_workspaces import SESSION
from service import Service

MIB = 1 << 20


class Disk:
    """A file system of its own for the state directory."""

    def __init__(self, service, mib):
        self.path = service.path("state")
        self.mount("size=%dm" % mib)

    def mount(self, options):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700," + options,
                        "tmpfs", self.path], check=True)

    def remount(self, options):
        subprocess.run(["mount", "-o", "remount," + options, self.path],
                       check=True)

    def fill(self):
        with open(os.path.join(self.path, "filler"), "wb", 0) as f:
            with contextlib.suppress(OSError):
                while True:
                    f.write(bytes(4096))

    def empty(self):
        os.unlink(os.path.join(self.path, "filler"))

    def unmount(self):
        subprocess.run(["umount", self.path], check=True)


@unittest.skipIf(os.getuid() != 0, "only root can mount a file system")
class TestDisk(unittest.TestCase):
    def setUp(self):
        self.service = Service()
        self.addCleanup(self.service.close)
        self.disk = Disk(self.service, 24)
        self.addCleanup(self.disk.unmount)
        self.addCleanup(self.service.stop)

    def put(self, key, value):
        return self.service.request("PUT", "/v1/memory/s/" + key, value)

    def get(self, key):
        r = self.service.request("GET", "/v1/memory/s/" + key)
        self.assertEqual(r.status, 200, r)
        return r.body

    def assert_full(self, r):
        self.assertEqual(r.status, 507, r)
        self.assertEqual(r.json(), {"error": "storage_full",
                                    "detail": "the disk is full"})

    def workspaces(self):
        return sorted(os.listdir(self.service.workspaces.root(SESSION)))

    def check_file(self):
        with contextlib.closing(sqlite3.connect(
                os.path.join(self.disk.path, "isobox.db"))) as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchall(),
                             [("ok",)])

    def test_full(self):
        self.service.start()
        kept = {"a": b"a" * MIB, "b": b"b" * 100}
        for key, value in kept.items():
            self.assertIn(self.put(key, value).status, (200, 201, 204))
        self.disk.fill()
        self.assert_full(self.put("c", b"c" * MIB))
        self.assert_full(self.put("a", b"d" * MIB))
        # What is there is still there, and nothing is of what was refused.
        for key, value in kept.items():
            self.assertEqual(self.get(key), value)
        r = self.service.request("GET", "/v1/memory/s/c")
        self.assertEqual(r.status, 404, r)
        r = self.service.request("GET", "/v1/memory/s")
        self.assertEqual(r.json()["keys"], ["a", "b"])
        self.assertEqual(self.service.request("GET", "/healthz").status, 200)
        # Room again, and no start: all goes on.
        self.disk.empty()
        self.assertIn(self.put("c", b"c" * MIB).status, (200, 201, 204))
        self.assertEqual(self.get("c"), b"c" * MIB)
        self.service.stop()
        self.check_file()

    def test_full_when_a_session_is_made(self):
        self.service.start()
        self.put("a", b"")
        before = self.workspaces()
        self.disk.fill()
        body = b'{"runtime": "python"}'
        full = False
        # A record is small: some find room in pages that are there already.
        for _ in range(200):
            r = self.service.request("POST", "/v1/sessions", body)
            if r.status == 507:
                full = True
                break
            self.assertEqual(r.status, 201, r)
            before = self.workspaces()
        self.assertTrue(full)
        self.assertEqual(self.workspaces(), before)
        self.disk.empty()
        r = self.service.request("POST", "/v1/sessions", body)
        self.assertEqual(r.status, 201, r)

    def test_read_only(self):
        self.service.start()
        self.put("a", b"value")
        self.service.stop()
        self.disk.remount("ro")
        done = subprocess.run(
            self.service.argv("--listen", self.service.socket),
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=30,
            env={}, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("isobox.db: the store cannot be opened: "
                      "Read-only file system", done.stderr)
        self.disk.remount("rw")
        self.service.start()
        self.assertEqual(self.get("a"), b"value")
        self.assertIn(self.put("b", b"value").status, (200, 201, 204))


if __name__ == "__main__":
    unittest.main()
