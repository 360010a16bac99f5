# SPDX-License-Identifier: Apache-2.0
"""The parts of `make bench`. Each takes a Bench and gives back a Part. What is
compared is measured in turns, so that a busy moment hits both, and compared by
its median."""

import contextlib
import os
import re
import statistics
import sys

import programs
import subjects
from part import Part, Skip, percentile, row
from subjects import LANGUAGE, PRINT, PRINTED, load, must, request

ROUNDS = int(os.environ.get("ROUNDS", "40"))
SECONDS = int(os.environ.get("SECONDS", "60"))
SLOW_ROUNDS = max(3, ROUNDS // 4)  # of what takes a second or more
BURSTS = (1, 4, 16, 64)
SUSTAINED_CLIENTS = 4
NO_WARM = "no run found a waiting sandbox"


class Bench:
    """The two services, started when a part asks for them: one that boots each
    sandbox when its run comes, one that has them wait. Else their settings are
    the defaults, without the rate limit of clients."""

    def __init__(self):
        self._sites = {}
        self._bare = None

    def site(self, warm):
        if warm not in self._sites:
            self._sites[warm] = subjects.Site(warm).start()
        return self._sites[warm]

    @property
    def cold(self):
        return self.site(False)

    @property
    def warm(self):
        return self.site(True)

    @property
    def bare(self):
        if self._bare is None:
            self._bare = subjects.bare_python(self.cold.service)
        return self._bare

    @contextlib.contextmanager
    def alone(self, language):
        """A service that has sandboxes wait, with one language: what it has
        ready does not depend on what other parts asked for."""
        site = subjects.Site(True, only=language)
        try:
            yield site.start()
        finally:
            site.stop()

    def stop(self):
        for site in self._sites.values():
            site.stop()


def warm_run(site, body, expected, front="caddy"):
    """One answer of a sandbox that waited. Another run may have taken it, or
    it may not be there yet: then once more."""
    for _ in range(5):
        answer, = must(site.execute(front, body, expected), "a warm run")
        site.quiet()
        if answer.warm:
            return answer
    raise Skip(NO_WARM)


def cold(bench):
    """A cold run beside bare runsc."""
    ours, theirs, native = [], [], []
    site = bench.cold
    for i in range(ROUNDS + 2):
        times = (bench.bare.run(), site.execute()[0], subjects.native_python())
        must([times[1]], "a cold run")
        # A killed sandbox is cleaned up after its answer: not on the
        # other's time.
        site.quiet()
        if i >= 2:
            theirs.append(times[0])
            ours.append(times[1].took)
            native.append(times[2])
    part = Part("Cold run of `print(1)`",
                "Through Caddy, no sandbox waiting; `runsc run` is of the same "
                "bundle, with python3 as its first process.")
    part.table(["ms", "median", "p95", "p99", "lowest"],
               [row("isobox, cold", ours), row("bare `runsc run`", theirs),
                row("native `python3`", native)])
    part.goal("cold run / bare `runsc run`",
              statistics.median(ours) / statistics.median(theirs), "<=", 1.15)
    part.bar("bare runsc run", theirs, "beside")
    part.bar("native python3", native, "beside")
    part.bar("Python, cold", ours, "cold")
    return part


def fronts(bench):
    """Runs through each front server beside /healthz."""
    names = list(bench.warm.ports)
    part = Part("`print(1)` through each front server",
                "One request after the other, warm ones when the pool is full "
                "again; `/healthz` and bare runsc in between.")
    has_warm = bench.warm.prime(PRINT, PRINTED)
    if not has_warm:
        part.skip("warm: " + NO_WARM)
    took = {(name, kind): [] for name in names
            for kind in ("healthz", "warm", "cold")}
    bare = []
    for i in range(ROUNDS):
        for name in names:
            answer, = must(bench.warm.healthz(name), "/healthz")
            took[name, "healthz"].append(answer.took)
            if has_warm:
                took[name, "warm"].append(
                    warm_run(bench.warm, PRINT, PRINTED, name).took)
            if i < SLOW_ROUNDS:
                answer, = must(bench.cold.execute(name), "a cold run")
                took[name, "cold"].append(answer.took)
                bench.cold.quiet()
        bare.append(bench.bare.run())
    part.table(["ms", "median", "p95", "p99", "lowest"],
               [row("%s, %s" % key, values)
                for key, values in took.items() if values] +
               [row("bare `runsc run`", bare)])
    for name in ("lighttpd", "caddy"):
        if name in names:
            part.bar("/healthz, " + name, took[name, "healthz"], "beside")
        if name in names and has_warm:
            part.bar("Python, warm, " + name, took[name, "warm"], "warm")
            front_goals(part, name, took[name, "warm"],
                        took[name, "healthz"], bare)
    return part


def front_goals(part, name, warm, healthz, bare):
    part.goal("%s: warm run / `/healthz`, medians" % name,
              statistics.median(warm) / statistics.median(healthz), "<=", 3)
    part.goal("%s: warm run's p99 / median of bare `runsc run`" % name,
              percentile(warm, 99) / statistics.median(bare), "<=", 0.2)


def languages(bench):
    """Each language, warm and cold; Go and Rust beside their own tools."""
    part = Part("Each language",
                "A program that prints one line; warm in a service that has "
                "this language alone. Beside Go: `go run`, its "
                "build cache warm; beside Rust: `rustc -O` with the linker "
                "mold, and the program; both in a cold sandbox of the same "
                "image by bare `runsc run`.")
    rows = []
    for name in programs.available(bench.cold):
        took = one_language(bench, name)
        rows += [row("%s, %s" % (name, kind), values)
                 for kind, values in took.items() if values]
        for kind in ("cold", "warm"):
            if took[kind]:
                part.bar("%s, %s" % (name, kind), took[kind], kind)
        against = "plain" if name in programs.PLAIN else "cold"
        limit = programs.GOALS.get(name)
        if limit and took["warm"]:
            part.goal("%s: warm run / %s" % (
                name, programs.PLAIN[name].what if against == "plain"
                else "cold run"),
                statistics.median(took["warm"])
                / statistics.median(took[against]), "<=", limit)
        elif limit:
            part.skip(name + ": " + NO_WARM)
    part.table(["ms", "median", "p95", "p99", "lowest"], rows)
    return part


def one_language(bench, name):
    body, expected = programs.hello(name)
    took = {"cold": [], "warm": [], "plain": []}
    plain = programs.plain(bench.cold.service, name)
    with bench.alone(name) as site:
        has_warm = site.prime(body, expected)
        for _ in range(SLOW_ROUNDS):
            answer, = must(bench.cold.execute(body=body, expected=expected),
                           name)
            took["cold"].append(answer.took)
            bench.cold.quiet()
            if has_warm:
                took["warm"].append(warm_run(site, body, expected).took)
            if plain:
                took["plain"].append(plain.run())
    return took


def pandas(bench):
    """A program that imports pandas."""
    body = request("python", programs.PANDAS)
    took = {"cold": [], "warm": []}
    if "python" not in programs.available(bench.cold):
        raise Skip("the image of python is not there")
    with bench.alone("python") as site:
        if not site.prime(body, programs.PANDAS_SAYS):
            raise Skip(NO_WARM)
        for _ in range(SLOW_ROUNDS):
            answer, = must(bench.cold.execute(
                body=body, expected=programs.PANDAS_SAYS), "pandas")
            took["cold"].append(answer.took)
            bench.cold.quiet()
            took["warm"].append(
                warm_run(site, body, programs.PANDAS_SAYS).took)
    part = Part("A program that imports pandas",
                "Warm in a service that has the language python alone.")
    part.table(["ms", "median", "p95", "p99", "lowest"],
               [row(kind, values) for kind, values in took.items()])
    part.goal("pandas: warm run / cold run", statistics.median(took["warm"])
              / statistics.median(took["cold"]), "<=", 0.15)
    for kind, values in took.items():
        part.bar("import pandas, " + kind, values, kind)
    return part


def bursts(bench):
    """So many requests at once, on a full pool."""
    site, took, right, warm = bench.warm, {}, {}, {}
    if not site.prime(PRINT, PRINTED, clients=4):
        raise Skip(NO_WARM)
    rounds = max(3, ROUNDS // 8)
    last = {n: [] for n in BURSTS}
    for _ in range(rounds):
        for n in BURSTS:
            answers = site.execute(clients=n)
            site.quiet()
            good = [a.took for a in answers if a.right]
            took.setdefault(n, []).extend(good)
            last[n].append(max(good, default=0))
            right[n] = right.get(n, 0) + len(good)
            warm[n] = warm.get(n, 0) + sum(a.warm is True for a in answers)
    part = Part("Bursts",
                "So many requests at the same moment through Caddy, %d times "
                "each, the pool full at its begin. What finds no slot in time "
                "is refused with status 429." % rounds)
    part.table(["ms", "median", "p95", "p99", "lowest", "answered",
                "found one waiting"],
               [row("%d at once" % n, took[n])
                + ["%d of %d" % (right[n], rounds * n),
                   "%d" % warm[n]] for n in BURSTS if took[n]])
    part.goal("burst of 4: the last of each / one alone, medians",
              statistics.median(last[4]) / statistics.median(last[1]), "<=", 2)
    return part


def sustained(bench):
    """Load without a pause, and what it costs."""
    site = bench.warm
    bare_ms = bare_cpu(bench)
    idle = []
    for _ in range(SLOW_ROUNDS):
        answer, = must(bench.cold.execute(), "a cold run")
        idle.append(answer.took)
        bench.cold.quiet()
    site.prime(PRINT, PRINTED)
    before = site.cpu_ms()
    answers = site.execute(clients=SUSTAINED_CLIENTS, seconds=SECONDS)
    spent = [b - a for a, b in zip(before, site.cpu_ms())]
    site.quiet()
    good = [a for a in answers if a.right]
    length = max(a.begun + a.took for a in answers) - min(
        a.begun for a in answers)
    rate = len(good) / length * 1000
    booted = [a.took for a in good if not a.warm]
    part = Part("Sustained load",
                "%d clients through Caddy for %d s, each with its next request "
                "as soon as the answer is there." % (
                    SUSTAINED_CLIENTS, SECONDS))
    part.table(["ms", "median", "p95", "p99", "lowest", "runs"],
               [row("all", [a.took for a in good])
                + ["%d of %d" % (len(good), len(answers))],
                row("that found no waiting sandbox", booted)
                + ["%d" % len(booted)],
                row("a cold run on the idle machine", idle)
                + ["%d" % len(idle)]])
    part.note("%.1f executions a second. CPU time of each: %.1f ms of runner "
              "and sandboxes, %.2f ms of isobox.fcgi, %.2f ms of the front "
              "server; together %.0f %% of what the processors have." % (
                  rate, *(s / len(good) for s in spent),
                  sum(spent) / (length * os.cpu_count()) * 100))
    if bare_ms:
        cpus = os.cpu_count()
        part.note("CPU time of a bare `runsc run`: %.1f ms; so %d processors "
                  "could make %.1f of them in a second." % (
                      bare_ms, cpus, cpus * 1000 / bare_ms))
        part.goal("executions a second / what the CPU time of bare `runsc "
                  "run` allows", rate * bare_ms / (cpus * 1000), ">=", 0.85)
    if booted:
        part.goal("p99 of a run that found no waiting sandbox / median of a "
                  "cold run on the idle machine",
                  percentile(booted, 99) / statistics.median(idle), "<=", 4)
    return part


def bare_cpu(bench):
    """CPU milliseconds of a bare runsc run; None where it is not counted."""
    group = subjects.CpuGroup("isobox-bench-%d" % os.getpid())
    try:
        used = []
        for _ in range(SLOW_ROUNDS):
            before = group.ms()
            bench.bare.run(group)
            if before is None:
                return None
            used.append(group.ms() - before)
        return statistics.median(used)
    finally:
        group.remove()


def sessions(bench):
    """A step of a session beside a one-shot run."""
    part = Part("Steps of a session",
                "`print(1)` through Caddy, step and one-shot run in turns, each "
                "when all is at rest again.")
    rows = []
    for site, kind in ((bench.cold, "cold"), (bench.warm, "warm")):
        name = "step, " + kind
        created = site.service.client().post(
            "/v1/sessions", {"runtime": LANGUAGE})
        if created.status != 201:
            sys.exit("bench: a session: %r" % created)
        if kind == "warm" and not site.prime(PRINT, PRINTED):
            part.skip("warm: " + NO_WARM)
            continue
        steps, runs = session_steps(site, created.json())
        rows += [row(name, steps), row("one-shot, " + kind, runs)]
        part.bar("Python, session, " + name, steps, kind)
        part.goal(name + " / one-shot run", statistics.median(steps)
                  / statistics.median(runs), "<=", 1.1)
    part.table(["ms", "median", "p95", "p99", "lowest"], rows)
    return part


def session_steps(site, session):
    """Milliseconds of steps, and of one-shot runs."""
    target = "/v1/sessions/" + session["id"]
    token = "X-Session-Token: " + session["token"]
    body = {k: v for k, v in PRINT.items() if k != "language"}
    steps, runs = [], []
    for _ in range(ROUNDS + 2):
        answer, = must(load(
            site.ports["caddy"], target + "/exec", body=body,
            expected=PRINTED, header=token), "a step")
        steps.append(answer.took)
        site.quiet()
        answer, = must(site.execute(), "a run")
        runs.append(answer.took)
        site.quiet()
    site.service.client().request(
        "DELETE", target, [tuple(token.split(": "))])
    return steps[2:], runs[2:]


def waiting(bench):
    """Memory of sandboxes that wait for Python."""
    site = subjects.Site(True).start()
    try:
        if not site.prime(PRINT, PRINTED):
            raise Skip(NO_WARM)
        n = site.quiet()
        held = site.metrics()["isobox_pool_memory_bytes"] / n / 1e6
    finally:
        site.stop()
    part = Part("Memory of a sandbox that waits",
                "As the kernel counts it for its cgroup.")
    part.table(["", "MB"], [["Python, mean of %d" % n, "%.1f" % held]])
    part.goal("memory of a waiting sandbox, MB", held, "<=", 50)
    return part


def memory(bench):
    """Of the processes of a service that does nothing."""
    service = bench.cold.service
    rows, total = [], 0.0
    for pid in sorted(service.subtree.pids() | {service.fcgi.pid}):
        with open("/proc/%d/smaps_rollup" % pid) as f:
            text = f.read()
        with open("/proc/%d/comm" % pid) as f:
            name = f.read().strip()
        pss, rss = (int(re.search(r"^%s:\s+(\d+) kB" % k, text, re.M)[1])
                    / 1000 for k in ("Pss", "Rss"))
        total += rss
        rows.append([name, "%.1f" % rss, "%.1f" % pss])
    part = Part("Idle memory of our processes", "")
    part.table(["MB", "resident", "proportional"], rows)
    part.goal("idle memory of our processes, resident, MB", total, "<=", 25)
    return part
