# SPDX-License-Identifier: Apache-2.0
"""The runner's side of lib/kernelproto.h for tests: kernels that are no more
than their workspace and what a test says of them."""

import os
import shutil

from fake_runner import CREATE, DEAD, FORK, INTERRUPT, STAT
from fake_workspaces import SESSION


class Kernels:
    def __init__(self, workspaces):
        self.workspaces = workspaces
        self.asked = []  # every request
        self.facts = {}  # id: of struct kernel_info

    def clear(self):
        self.asked.clear()
        self.facts.clear()

    def root(self, name):
        return self.workspaces.root(SESSION, name)

    def serve(self, call):
        q = call.kernel
        self.asked.append(q)
        if q["op"] == CREATE:
            os.mkdir(self.root(q["id"]))
            self.facts[q["id"]] = {"network": q["network"]}
        if not os.path.isdir(self.root(q["id"])):
            call.fail("session_not_found")
            return
        facts = self.facts[q["id"]]
        if q["op"] == FORK:
            if facts.get("state") == DEAD:
                call.fail("kernel_dead", 0, facts["reason"])
                return
            shutil.copytree(self.root(q["id"]), self.root(q["new_id"]))
            facts = self.facts[q["new_id"]] = dict(facts)
        assert q["op"] in (CREATE, FORK, INTERRUPT, STAT)
        call.info(**facts)
