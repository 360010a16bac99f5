# SPDX-License-Identifier: Apache-2.0
"""The part of `make bench` about egress, in a pretend host and internet without
a way out (tests/lib/world.py): what a filtered network adds to a run, what it
takes of memory, and how fast it is beside slirp4netns alone."""

import os
import shutil
import statistics
import subprocess
import time

import harness
import router
import subjects
import world
from part import Part, Skip, row

ROUNDS = max(5, int(os.environ.get("ROUNDS", "40")) // 2)
# One takes between 0.3 and 0.9 s on a machine where nothing else runs: the ratio of
# two medians of five says nothing.
TRANSFERS = max(3, 2 * ROUNDS)
MEGABYTES = 200
CPUS = 2
PRINT = "print(1)"

# Seconds for a transfer down and one up, measured inside.
TRANSFER = r'''
import socket, time
def connect(request):
    s = socket.create_connection(("93.184.216.34", 80), 5)
    s.settimeout(15)
    s.sendall(request)
    return s
room = bytearray(1 << 20)
size = %d << 20
begun = time.monotonic()
s = connect(b"GET /big?mb=%d HTTP/1.0\r\n\r\n")
left = size
while left > 0:
    n = s.recv_into(room)
    if n == 0: break
    left -= n
down = time.monotonic() - begun
begun = time.monotonic()
s = connect(b"POST /upload HTTP/1.0\r\nContent-Length: %%d\r\n\r\n" %% size)
for _ in range(size >> 20):
    s.sendall(room)
assert b"%%d" %% size in s.recv(1000)
print(down, time.monotonic() - begun)
''' % (MEGABYTES, MEGABYTES)


def run(client, code, **members):
    """(its result, whether its sandbox had been waiting)"""
    r = client.execute(subjects.LANGUAGE, code,
                       limits={"wallTimeMs": 20000, "cpus": CPUS}, **members)
    answer = r.json()
    if "run" not in answer or answer["run"]["exitCode"] != 0:
        raise SystemExit("bench: %s" % answer)
    return answer["run"], '"warm"' in (r.header("server-timing") or "")


def come_to_rest(service):
    """Until no sandbox is booted any more, a while after the last run, whose
    namespaces the kernel takes apart in the background."""
    booting = []

    def rests():
        booting.append(service.client().metrics()[
            'isobox_pool_sandboxes{state="booting"}'])
        return len(booting) >= 4 and not any(booting[-4:])
    harness.wait_for("a pool at rest", rests, 60, 0.05)


def latency(service, what):
    """Runs with and without, in turns; what = "warm": those only that found a
    sandbox waiting."""
    client = service.client()
    took = {True: [], False: []}
    for i in range(4 * ROUNDS):
        for network in (True, False) if i % 2 else (False, True):
            come_to_rest(service)
            begun = time.monotonic()
            result, warm = run(client, PRINT, network=network)
            ms = (time.monotonic() - begun) * 1000
            if result["network"] != network:
                raise SystemExit("bench: a run had another network")
            if i and warm == (what == "warm"):
                took[network].append(ms)
        if min(map(len, took.values())) >= ROUNDS:
            break
    else:
        raise Skip("hardly a run was %s" % what)
    added = statistics.median(took[True]) - statistics.median(took[False])
    return added, [row("%s, with" % what, took[True]),
                   row("%s, without" % what, took[False])]


class Leaf:
    """A cgroup with the CPU limit that a run's has: what that costs is not the
    network's."""

    def __init__(self, subtree):
        self.folders = [os.path.join(top, "plain") for top in subtree.tops()]
        for folder in self.folders:
            os.mkdir(folder)
            for name, value in (("cpu.cfs_quota_us", "%d" % (CPUS * 100000)),
                                ("cpu.max", "%d 100000" % (CPUS * 100000))):
                path = os.path.join(folder, name)
                if os.path.exists(path):
                    with open(path, "w") as f:
                        f.write(value)

    def enter(self):
        for folder in self.folders:
            with open(folder + "/cgroup.procs", "w") as f:
                f.write("0")


class PlainSlirp:
    """The same bundle by bare runsc, its network slirp4netns, told what ours is
    told, and nothing between."""

    def __init__(self, service, place):
        self.place = place
        self.leaf = Leaf(service.subtree)
        self.bare = subjects.BareRunsc(
            service, "plain", subjects.image_of(subjects.LANGUAGE),
            ["python3", "-c", TRANSFER], b"")
        at = self.bare.argv.index("--map-root-user")
        runsc = [a.replace("--network=none", "--network=sandbox")
                 for a in self.bare.argv[self.bare.argv.index("--", at) + 1:]]
        # See runner/sandbox.c about net.core.
        self.argv = self.bare.argv[:at] + [
            "--map-root-user", "--net", "--mount", "--", "sh", "-c",
            "echo $$; read go; mount -t tmpfs -o ro none /proc/sys/net/core;"
            ' exec "$@"', "sh", *runsc]

    def run(self):
        """(seconds down, up)"""
        box = subprocess.Popen(self.place.command(self.argv),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               cwd="/", text=True, preexec_fn=self.leaf.enter)
        pid = box.stdout.readline().strip()
        ready = os.pipe()
        slirp = subprocess.Popen(self.place.command(
            ["setpriv", "--reuid", harness.RUNNER_USER, "--regid",
             harness.RUNNER_USER, "--init-groups", "--", "slirp4netns",
             "--configure", "--mtu=65520", "--disable-host-loopback",
             "--disable-dns", "--enable-sandbox", "--enable-seccomp",
             "--ready-fd=%d" % ready[1], pid, "eth0"]),
            pass_fds=[ready[1]], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=self.leaf.enter)
        os.close(ready[1])
        os.read(ready[0], 1)
        os.close(ready[0])
        out, _ = box.communicate("go\n", timeout=60)
        slirp.kill()
        slirp.wait()
        return tuple(map(float, out.split()))


def transfers(service, place, part):
    plain = PlainSlirp(service, place)
    client = service.client()
    ours, theirs = [], []
    for i in range(TRANSFERS):
        if i % 2:
            theirs.append(plain.run())
        result, _ = run(client, TRANSFER)
        ours.append(tuple(map(float, result["stdout"].split())))
        if not i % 2:
            theirs.append(plain.run())
    rows = []
    for i, what in enumerate(("download", "upload")):
        mine = MEGABYTES / statistics.median(x[i] for x in ours)
        other = MEGABYTES / statistics.median(x[i] for x in theirs)
        rows.append([what, "%.0f" % mine, "%.0f" % other])
        part.goal("speed of a %s of %d MB / by slirp4netns alone" % (
            what, MEGABYTES), mine / other, ">=", 0.9)
    part.table(["MB/s", "isobox", "slirp4netns alone"], rows)


def egress(_bench):
    """Filtered egress: latency, memory, throughput."""
    if shutil.which("slirp4netns") is None:
        raise Skip("slirp4netns is not installed")
    part = Part("Filtered egress",
                "A run that prints 1, with a network and without; 200 MB "
                "through gVisor, the filter and slirp4netns, beside gVisor "
                "and slirp4netns in a cgroup with the same limit. All in a "
                "pretend host and internet; medians of %d transfers." %
                TRANSFERS)
    place = world.World()
    try:
        rows = []
        for warm in (False, True):
            service = harness.Service("caddy", world=place, warm=warm).start()
            try:
                added, more = latency(service, "warm" if warm else "cold")
                rows += more
                part.goal("ms that a network adds to a %s run" % (
                    "warm" if warm else "cold"), added, "<=",
                    1 if warm else 8)
                if warm:
                    part.goal("MB of a router and slirp4netns, at most", max(
                        r.memory_kib() for r in router.await_some(service))
                        / 1024, "<=", 6)
                else:
                    transfers(service, place, part)
            finally:
                service.stop()
        part.table(["ms", "median", "p95", "p99", "lowest"], rows)
    finally:
        place.close()
    return part
