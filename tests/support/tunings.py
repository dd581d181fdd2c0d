"""Plays tunings: what a node measures, and the decisions of a server that waits for `decide`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from taskloom.server.read.tuning.decisions import Tunings
from tests.support.caller import Caller, Node

BASE = {"model": "tiny", "scheduler": "fork-join", "batch_slice": 1, "token_slice": 64}
SPACE = {"scheduler": ["fork-join", "task"], "sync": ["phase", "step", "none"], "threads": [1, 2]}
Spec = Mapping[str, Any]
TUNE = {"runs": 6, "batch": 3, "confirm": 6, "fresh": 4, "seed": 2}


def submit(
    api: Caller, status: int = 201, space: Mapping[str, Any] = SPACE, tune: Mapping[str, Any] | None = None, **more: Any
) -> Any:
    return api.submit(status, base=BASE, space=space, tune={**TUNE, **(tune or {})}, **more)


def decide(api: Caller) -> object:
    """Decide once about every tuning that waits."""
    pool, control = api.reading.answers.pool, api.context.control
    return asyncio.run(Tunings(api.context.database, pool, control).look())


def seconds(spec: Spec) -> float:
    """Tasks on two threads without a wait are fastest."""
    s: float = 4.0 / spec["threads"]
    return s if spec["scheduler"] == "fork-join" else s * {"phase": 0.95, "step": 0.9, "none": 0.8}[spec["sync"]]


def settings_of(spec: Spec) -> dict[str, Any]:
    return {name: spec[name] for name in ("scheduler", "sync", "threads", "fusion", "policy")}


def run_block(
    node: Node, make_result: Callable[..., dict[str, Any]], runs: int, fails: Callable[[Spec], bool] = lambda _: False,
    scale: float = 1.0, disturbed: bool = False,
) -> None:  # fmt: skip
    """Claim and answer the runs of a block. disturbed: whether a step of each is flagged."""
    for _ in range(runs):
        lease = node.claim()
        spec = lease["spec"]
        if fails(spec):
            node.upload(lease, error={"slug": "boom", "detail": "it burst"})
        else:
            s = seconds(spec) * scale
            result = make_result([9, s, s], **settings_of(spec))
            node.upload(lease, {**result, "flagged": [[], ["steal"], []]} if disturbed else result)


def open_runs(api: Caller, made: Mapping[str, Any]) -> int:
    states = [run["state"] for run in api.runs(made["id"])]
    return states.count("queued")


def play(
    api: Caller, node: Node, make_result: Callable[..., dict[str, Any]], made: Mapping[str, Any], most: int = 40,
    **how: Any,
) -> Any:  # fmt: skip
    """Execute blocks until the tuning ends."""
    for number in range(most):
        run_block(node, make_result, open_runs(api, made), scale=1 + 0.01 * (number % 5), **how)
        decide(api)
        shown = api.get(f"/experiments/{made['id']}")
        if shown["tuning"]["phase"] == "ended":
            return shown
    raise AssertionError("it does not end")


def answer(api: Caller, made: Mapping[str, Any]) -> Any:
    return api.get(f"/experiments/{made['id']}/tuning")
