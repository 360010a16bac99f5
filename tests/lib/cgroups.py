# SPDX-License-Identifier: Apache-2.0
"""The delegated subtree of a service under test, made and removed by
tools/isobox-cgroup, and what is in it."""

import glob
import os
import subprocess

REPO = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
TOOL = os.path.join(REPO, "tools", "isobox-cgroup")


class Subtree:
    def __init__(self, name, user, memory):
        self.name = name
        self.user = user
        self.memory = memory

    def command(self, argv):
        """argv, to be started as root, run inside the subtree; this makes
        it. The process stays the same one."""
        return [TOOL, "exec", self.name, "--user", self.user, "--memory",
                str(self.memory), "--", *argv]

    def tops(self):
        """The subtree's directory in each hierarchy."""
        return subprocess.run([TOOL, "path", self.name], check=True,
                              capture_output=True, text=True).stdout.split()

    def groups(self):
        """Every group of the subtree in every hierarchy, deepest first."""
        return [path for top in self.tops()
                for path, _, _ in os.walk(top, topdown=False)]

    def leaves(self):
        """The groups of sandboxes."""
        return sorted(g for g in self.groups()
                      if os.path.basename(g).startswith("run-"))

    def cpu_limits(self):
        """What the sandboxes may have of each 100 ms, in microseconds."""
        found = set()
        for leaf in self.leaves():
            for name in ("cpu.cfs_quota_us", "cpu.max"):
                try:
                    with open(os.path.join(leaf, name)) as f:
                        found.add(int(f.read().split()[0]))
                except OSError:
                    continue  # of another version or hierarchy, or gone
        return found

    def memory_used(self):
        """Bytes of all together that no file gives back, as the runner counts
        them."""
        for top in self.tops():
            for name, cache in (
                    ("memory.current", ("inactive_file", "active_file")),
                    ("memory.usage_in_bytes", ("total_inactive_file",
                                               "total_active_file"))):
                try:
                    with open(os.path.join(top, name)) as f:
                        used = int(f.read())
                    with open(os.path.join(top, "memory.stat")) as f:
                        parts = dict(line.split() for line in f)
                except OSError:
                    continue  # of another version or hierarchy
                return used - sum(int(parts[c]) for c in cache)
        raise AssertionError("no memory group of " + self.name)

    def pids(self):
        """Every process in the subtree, zombies left out."""
        found = set()
        for g in self.groups():
            try:
                with open(os.path.join(g, "cgroup.procs")) as f:
                    found.update(int(line) for line in f)
            except OSError:
                continue  # gone meanwhile
        return {p for p in found if alive(p)}

    def remove(self):
        subprocess.run([TOOL, "remove", self.name], check=True)


def status(pid):
    """(state letter, parent) of a process, or None."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            words = f.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return words[0], int(words[1])


def alive(pid):
    """Whether there is such a process and it is no zombie."""
    s = status(pid)
    return s is not None and s[0] not in "ZX"


def parent(pid):
    s = status(pid)
    return s[1] if s is not None else None


def children(pid):
    """The processes that any of its threads has started and that are alive."""
    found = set()
    for path in glob.glob("/proc/%d/task/*/children" % pid):
        try:
            with open(path) as f:
                found.update(map(int, f.read().split()))
        except (FileNotFoundError, ProcessLookupError):
            pass  # a thread that has just ended
    return set(filter(alive, found))
