# SPDX-License-Identifier: Apache-2.0
"""What the tests of egress share. A module sets `place` of its EgressCase: one
world for all its tests. Only one service at a time: what is left behind is looked
for among all that this process has started."""

import threading
import unittest

import targets

LIMITS = {"wallTimeMs": 20000}


class Background(threading.Thread):
    """A run beside the test."""

    def __init__(self, client, code):
        super().__init__()
        self.client, self.code = client, code
        self.start()

    def run(self):
        self.result = self.client.run("python-slim", self.code,
                                      limits=LIMITS)

    def end(self):
        self.join()
        return self.result


class EgressCase(unittest.TestCase):
    place = None

    def setUp(self):
        self.place.forget()
        self.known = set(self.place.seen()[1])

    def new(self):
        """What the world has seen in this test."""
        return self.place.seen()[1] - self.known

    def assert_no_leak(self):
        host, outside = self.place.seen()
        self.assertEqual([x for x in host if not x.startswith("packet")], [])
        self.assertEqual(targets.leaks(outside - self.known), [])
