"""Plays tunings: what a node measures, and the decisions of a server that waits for `decide`."""

import asyncio

from taskloom.server.read.tuning.decisions import Tunings

BASE = {"model": "tiny", "scheduler": "fork-join", "batch_slice": 1, "token_slice": 64}
SPACE = {"scheduler": ["fork-join", "task"], "sync": ["phase", "step", "none"], "threads": [1, 2]}
TUNE = {"runs": 6, "batch": 3, "confirm": 6, "fresh": 4, "seed": 2}


def submit(api, status=201, space=SPACE, tune=None, **more):
    return api.submit(status, base=BASE, space=space, tune={**TUNE, **(tune or {})}, **more)


def decide(api):
    """Decide once about every tuning that waits."""
    pool, control = api.reading.answers.pool, api.context.control
    return asyncio.run(Tunings(api.context.database, pool, control).look())


def seconds(spec):
    """Tasks on two threads without a wait are fastest."""
    s = 4.0 / spec["threads"]
    return s if spec["scheduler"] == "fork-join" else s * {"phase": 0.95, "step": 0.9, "none": 0.8}[spec["sync"]]


def settings_of(spec):
    return {name: spec[name] for name in ("scheduler", "sync", "threads", "fusion", "policy")}


def run_block(node, make_result, runs, fails=lambda _: False, scale=1.0):
    for _ in range(runs):
        lease = node.claim()
        spec = lease["spec"]
        if fails(spec):
            node.upload(lease, error={"slug": "boom", "detail": "it burst"})
        else:
            s = seconds(spec) * scale
            node.upload(lease, make_result([9, s, s], **settings_of(spec)))


def open_runs(api, made):
    states = [run["state"] for run in api.runs(made["id"])]
    return states.count("queued")


def play(api, node, make_result, made, most=40, **how):
    """Execute blocks until the tuning ends."""
    for number in range(most):
        run_block(node, make_result, open_runs(api, made), scale=1 + 0.01 * (number % 5), **how)
        decide(api)
        shown = api.get(f"/experiments/{made['id']}")
        if shown["tuning"]["phase"] == "ended":
            return shown
    raise AssertionError("it does not end")


def answer(api, made):
    return api.get(f"/experiments/{made['id']}/tuning")
