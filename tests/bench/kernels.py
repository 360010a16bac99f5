# SPDX-License-Identifier: Apache-2.0
"""The part of `make bench` about live kernels: an empty step beside /healthz,
all through Caddy, one after the other and in turns."""

import contextlib
import os
import statistics
import sys
import time

import subjects
from part import Part, Skip, row
from subjects import load, must

ROUNDS = int(os.environ.get("ROUNDS", "40"))
SLOW_ROUNDS = max(3, ROUNDS // 4)
LANGUAGE = "python"
EMPTY, PRINT = {"code": ""}, {"code": "print(1)"}
PANDAS = "import pandas; d = pandas.DataFrame({'a': range(1000)})"


class Kernel:
    """A session with a live kernel, and the milliseconds of what is done."""

    def __init__(self, site, made):
        self.site = site
        if made.status == 400:
            raise Skip("no runtime has a kernel")
        if made.status != 201:
            sys.exit("bench: a kernel: %r" % made)
        facts = made.json()
        self.target = "/v1/sessions/" + facts["id"]
        self.token = ("X-Session-Token", facts["token"])

    def step(self, body, expected='"exitCode":0'):
        answer, = must(load(
            self.site.ports["caddy"], self.target + "/exec", body=body,
            expected=expected, header="%s: %s" % self.token), "a step")
        return answer.took

    def request(self, method, rest=""):
        """(milliseconds, response)"""
        begun = time.monotonic()
        r = self.site.service.client().request(
            method, self.target + rest, [self.token])
        return (time.monotonic() - begun) * 1000, r

    def end(self):
        self.request("DELETE")


@contextlib.contextmanager
def started(warm, **settings):
    """A service that has one language."""
    site = subjects.Site(warm, only=LANGUAGE, **settings)
    try:
        yield site.start()
    finally:
        site.stop()


def create(site):
    """(milliseconds, Kernel)"""
    begun = time.monotonic()
    made = site.service.client().post("/v1/sessions", {
        "runtime": LANGUAGE, "type": "kernel", "network": False})
    return (time.monotonic() - begun) * 1000, Kernel(site, made)


def created(site):
    """Sessions made while an interpreter waits for them; one waits for what
    was asked for before."""
    create(site)[1].end()
    took = []
    for _ in range(SLOW_ROUNDS):
        until = time.monotonic() + 20
        while site.metrics().get("isobox_kernels_waiting", 0) < 1:
            if time.monotonic() > until:
                return took
            time.sleep(0.05)
        ms, kernel = create(site)
        took.append(ms)
        kernel.end()
    return took


def steps(site, took):
    """Each in turns with what it is compared with."""
    port = site.ports["caddy"]
    _, kernel = create(site)
    for i in range(ROUNDS + 5):
        answer, = must(site.healthz(), "/healthz")
        text, = must(load(port, "/runtimes"), "/runtimes")
        times = (answer.took, text.took, kernel.step(EMPTY),
                 kernel.step(PRINT, subjects.PRINTED))
        if i >= 5:
            for name, ms in zip(("/healthz", "/runtimes", "an empty step",
                                 "`print(1)`"), times):
                took[name].append(ms)
    kernel.end()


def restored(site, took):
    """Two kernels and one slot: each step has the other one put on disk."""
    kernels = [create(site)[1] for _ in range(2)]
    for k in kernels:
        k.step({"code": PANDAS})
    for _ in range(SLOW_ROUNDS):
        took["a step that changes places with another kernel"] += [
            k.step({"code": "print(len(d))"}, '"stdout":"1000\\n"')
            for k in kernels]
    for k in kernels:
        k.end()


def forked(site, took):
    _, parent = create(site)
    parent.step({"code": PANDAS})
    for _ in range(SLOW_ROUNDS):
        ms, r = parent.request("POST", "/fork")
        if r.status != 201:
            sys.exit("bench: a fork: %r" % r)
        took["a fork of a kernel with pandas"].append(ms)
        Kernel(site, r).end()
    parent.end()


def kernel(bench):
    """Steps of a live kernel."""
    took = {name: [] for name in (
        "/healthz", "/runtimes", "an empty step", "`print(1)`",
        "a new session, interpreter waiting",
        "a step that changes places with another kernel",
        "a fork of a kernel with pandas")}
    with started(False, kernel_warm=0) as site:
        steps(site, took)
        forked(site, took)
    with started(True, kernel_warm=1, warm_max=1) as site:
        took["a new session, interpreter waiting"] = created(site)
    with started(False, kernel_warm=0, kernel_slots=1) as site:
        restored(site, took)
    part = Part("Live kernels",
                "Python, through Caddy, one request after the other; steps, "
                "`/healthz` (which asks the runner for its kernels) and "
                "`/runtimes` (which asks nobody) in turns.")
    part.table(["ms", "median", "p95", "p99", "lowest"],
               [row(name, values) for name, values in took.items()])
    part.goal("an empty step / `/healthz`, medians",
              statistics.median(took["an empty step"])
              / statistics.median(took["/healthz"]), "<=", 1.5)
    part.bar("/healthz", took["/healthz"], "beside")
    part.bar("Python, step of a kernel", took["`print(1)`"], "warm")
    return part
