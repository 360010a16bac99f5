# SPDX-License-Identifier: Apache-2.0
"""The store under kill -9: store_writer.c, several at a time, is killed in the
middle of whatever it does, again and again. What was acknowledged is there, and
the file is whole."""

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest

from harness import BUILD, REPO

PROGRAM = os.path.join(BUILD, "integration", "store_writer")
KILLS = 100
KEYS, VALUE_MAX = 50, 5000


def state_after(n):
    """({key: change that it has its value from}, {session}) after n changes,
    by the rules of store_writer.c."""
    keys, sessions = {}, set()
    for i in range(max(1, n - 2 * KEYS), n + 1):
        if i % 5 == 0:
            sessions.add(i)
        if i % 5 == 3:
            sessions.discard(i - 3)
        if i % 7 == 0:
            keys.pop(i % KEYS, None)
        else:
            keys[i % KEYS] = i
    return keys, sessions


class Writer:
    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.acknowledged = 0
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [PROGRAM, self.folder, self.name, str(self.acknowledged + 1)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        out, errors = self.process.communicate()
        if self.process.returncode != -signal.SIGKILL:
            raise AssertionError("%s ended with %d: %s" % (
                self.name, self.process.returncode, errors.decode()))
        whole = out[:out.rfind(b"\n") + 1].split()
        if whole:
            self.acknowledged = int(whole[-1])


class Killed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run(["make", "-s", "-C", REPO, os.path.join(
            os.environ.get("B", "build"), "integration/store_writer")],
            check=True)

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="isobox-store-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = os.path.join(self.folder, "isobox.db")

    def found(self, db, name):
        keys = {}
        for key, value in db.execute(
                "SELECT key, value FROM memory WHERE tenant = ?", (name,)):
            text, _, rest = value.partition(b" ")
            self.assertEqual(rest, b"x" * (int(text) * 37 % VALUE_MAX))
            keys[int(key)] = int(text)
        sessions = {int(row[0].split("-")[1]) for row in db.execute(
            "SELECT id FROM sessions WHERE tenant = ?", (name,))}
        return keys, sessions

    def check_writer(self, db, w):
        """Every acknowledged change, and of the next one, which has two
        transactions, nothing, the first or both."""
        keys, sessions = self.found(db, w.name)
        before, after = (state_after(w.acknowledged + i) for i in (0, 1))
        self.assertIn((keys, sessions), [
            before, (before[0], after[1]), after])

    def check_file(self, db):
        self.assertEqual(db.execute("PRAGMA integrity_check").fetchall(),
                         [("ok",)])
        self.assertEqual(db.execute(
            "PRAGMA foreign_key_check").fetchall(), [])
        db.execute("BEGIN")
        counted = ("SELECT tenant, count(*), sum(size) FROM memory "
                   "GROUP BY tenant ORDER BY tenant")
        kept = ("SELECT tenant, keys, bytes FROM memory_usage "
                "WHERE keys > 0 ORDER BY tenant")
        self.assertEqual(db.execute(counted).fetchall(),
                         db.execute(kept).fetchall())
        db.rollback()

    def test_kills(self):
        rng = random.Random(1)
        writers = [Writer(self.folder, name) for name in ("a", "b", "c")]
        for w in writers:
            w.start()
        for i in range(KILLS):
            time.sleep(rng.uniform(0.005, 0.15))
            w = rng.choice(writers)
            w.kill()
            # The others go on: what they find must be right meanwhile, too.
            with contextlib.closing(sqlite3.connect(
                    self.path, timeout=20)) as db:
                if not db.execute("PRAGMA user_version").fetchone()[0]:
                    self.assertEqual(w.acknowledged, 0)
                    w.start()
                    continue
                self.check_writer(db, w)
                if i % 10 == 0:
                    self.check_file(db)
            w.start()
        for w in writers:
            w.kill()
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            for w in writers:
                self.check_writer(db, w)
            self.check_file(db)
        print("%d kills, changes acknowledged: %s" % (
            KILLS, [w.acknowledged for w in writers]))
        self.assertTrue(all(w.acknowledged for w in writers))

    def test_all_at_once(self):
        """Nobody is left who has the log in memory."""
        writers = [Writer(self.folder, name) for name in ("a", "b", "c")]
        rng = random.Random(2)
        for _ in range(15):
            for w in writers:
                w.start()
            time.sleep(rng.uniform(0.05, 0.3))
            for w in writers:
                w.process.send_signal(signal.SIGKILL)
            for w in writers:
                w.kill()
            with contextlib.closing(sqlite3.connect(self.path)) as db:
                if any(w.acknowledged for w in writers):
                    for w in writers:
                        self.check_writer(db, w)
                    self.check_file(db)
        self.assertTrue(all(w.acknowledged for w in writers))

    def test_the_log_stays_small(self):
        writers = [Writer(self.folder, name) for name in ("a", "b", "c")]
        largest = 0
        for w in writers:
            w.start()
        until = time.monotonic() + 5
        while time.monotonic() < until:
            with contextlib.suppress(FileNotFoundError):
                largest = max(largest, os.path.getsize(self.path + "-wal"))
            time.sleep(0.01)
        for w in writers:
            w.kill()
        print("the largest log: %.1f MiB" % (largest / (1 << 20)))
        self.assertLess(largest, 16 << 20)


if __name__ == "__main__":
    unittest.main()
