"""The reason why a queued run waits, according to the workers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from taskloom.server.queue.runs.queue import Present, Wish, waiting_for

WISH = Wish(labels=frozenset(), cores=2, pinned_cores=frozenset(), memory_bytes=100, timeout_s=60.0, kept_by=None)


def wish(**changes: Any) -> Wish:
    return dataclasses.replace(WISH, **changes)


def offer(cores: int = 2, **changes: Any) -> Present:
    numbers = range(cores)
    given: dict[str, Any] = {
        "node": "n1", "cores": frozenset(numbers), "core_set": ",".join(map(str, numbers)), "memory_bytes": 200,
        "remaining_s": math.inf,        "labels": frozenset(), "busy": False,
    }  # fmt: skip
    return Present(**(given | changes))


GPU, FAST, LIBOMP, TWO_NODES = ("arch", "gpu"), ("disk", "fast"), ("runtime-libomp", "installed"), ("nodes", "2")


@pytest.mark.parametrize(
    ("asked", "offers", "reason", "text"),
    [
        (WISH, [], "no-worker", "none of the registered workers (3) is present"),
        (wish(labels=frozenset({GPU})), [offer()], "no-label", "no worker has the label arch=gpu"),
        (
            wish(labels=frozenset({GPU, FAST})),
            [offer(labels=frozenset({GPU})), offer(labels=frozenset({FAST}))],
            "no-label",
            "all of the labels arch=gpu, disk=fast",
        ),
        (wish(labels=frozenset({TWO_NODES})), [offer()], "no-label", "no worker has 2 nodes"),
        (wish(labels=frozenset({LIBOMP})), [offer()], "no-runtime", "no worker has the OpenMP runtime libomp"),
        (wish(cores=4), [offer(2), offer(3)], "too-few-cores", "needs 4 cores; the largest worker has 3"),
        (
            wish(cores=4, labels=frozenset({GPU})),
            [offer(8), offer(2, labels=frozenset({GPU}))],
            "too-few-cores",
            "needs 4 cores; the largest worker has 2",
        ),
        (wish(pinned_cores=frozenset({5})), [offer(4)], "other-cores", "the cores 5"),
        (wish(memory_bytes=1000), [offer()], "too-little-memory", "needs 1,000 bytes of memory; the largest"),
        (WISH, [offer(remaining_s=59.0), offer(1)], "too-little-time", "with the most time left has 59 s"),
        (wish(cores=4), [offer(2), offer(4, busy=True)], "too-few-cores", "the largest idle worker has 2"),
        (WISH, [offer(busy=True), offer(busy=True)], "all-busy", "could run it (2) is busy"),
        (WISH, [offer(busy=True), offer(measuring=True)], "measuring-peaks", "is measuring peaks"),
        (WISH, [offer(), offer(measuring=True)], "next", "it is the next run"),
        (wish(kept_by=("n1", "0,1")), [offer(busy=True), offer(node="n2")], "block-bound", "cores 0,1 of n1"),
        (wish(cores=3, kept_by=("n1", "0,1")), [offer(), offer(4, node="n2")], "block-bound", "which does not meet"),
        (wish(kept_by=("gone", "0,1")), [offer()], "next", "it is the next run"),
        (wish(kept_by=("n1", "0,1")), [offer(), offer(node="n2", busy=True)], "next", "it is the next run"),
        (WISH, [offer()], "next", "it is the next run"),
    ],
)
def test_every_reason(asked: Wish, offers: list[Present], reason: str, text: str) -> None:
    answer = waiting_for(asked, offers, registered=3, runs_before=0)
    assert answer[0] == reason
    assert text in answer[1]


def test_without_workers_at_all() -> None:
    assert waiting_for(WISH, [], 0, 0) == ("no-worker", "no worker is registered")


def test_runs_before_are_the_reason_only_where_it_could_run() -> None:
    assert waiting_for(WISH, [offer()], 1, 7) == ("runs-before", "7 runs before it in the queue")
    assert waiting_for(wish(cores=9), [offer()], 1, 7)[0] == "too-few-cores"
