"""Analyses give the same figures from a result's digest as from the complete result."""

import dataclasses
import json
import random
from typing import Any

import pytest

from taskloom.analysis.causes import efficiencies, rooflines
from taskloom.analysis.comparison import compare
from taskloom.analysis.history import series
from taskloom.analysis.processes import Facts, Process
from taskloom.analysis.scaling import scaling
from taskloom.analysis.sweep import sweep
from taskloom.analysis.validity import marks
from taskloom.server.queue.attempts.digest import digest

PEAKS = {"threads": {str(n): {"gflop_per_s": 100.0 * n, "triad_gb_per_s": 11.0 * n} for n in (1, 2, 3)}}


@pytest.fixture
def results(make_result):
    """Results of three schedulers and numbers of threads; some are flagged, disturbed, have counters or another
    Linux."""
    pick = random.Random(3)

    def make(block, scheduler, sync, threads):
        step_s = [9.0, *(pick.gauss(1 / threads, 0.01) for _ in range(6))]
        result = make_result(
            step_s, scheduler=scheduler, sync=sync, threads=threads, allow_oversubscription=True,
            environment={"load_average": [pick.random()], "peaks": PEAKS, "kernel": "6.2" if block == 5 else "6.1"},
        )  # fmt: skip
        timed_s = sum(step_s[1:])
        shares = (("useful_s", 0.9), ("starvation_s", 0.04), ("idle_s", 0.03), ("barrier_s", 0.01))
        return result | {
            "phase_busy_s": {p: [s * pick.uniform(0.8, 1) for s in v] for p, v in result["phase_busy_s"].items()},
            "ops": [
                {"op": op, "phase": phase, "calls": 4, "time_s": pick.random(), "flop": flop, "bytes": 4000, "blas": ""}
                for op, flop in (("qkv", 10**6), ("gelu", 0)) for phase in ("forward", "backward")
            ],
            "threads": [{"thread": t, **{name: share * timed_s for name, share in shares}} for t in range(threads)],
            "graph": {"t1_s": pick.random(), "tinf_s": 0.1, "fork_join_tinf_s": 0.2, "tasks": 9},
            "counters": {"threads": [{"instructions": 10**9, "cycles": 10**9, "task_clock_ns": 1}] * threads},
            "memory_bytes": {"weights": 1, "peak_rss": 2 + block},
            "resident_bytes": {"interpreter": 1},
            "flagged": [[] for _ in step_s] if block else [[], ["switches"], *([] for _ in step_s[2:])],
            "validity": {"steps": {"x": [1]}, "foreign": {"cores": [0], "foreign_s": 9.0 if block == 1 else 0.0}},
        }  # fmt: skip

    variants = [("serial", "step", 1), ("fork-join", "step", 1), ("fork-join", "step", 3), ("task", "none", 3)]
    found = []
    for block in range(7):
        for scheduler, sync, threads in variants:
            variant = {"scheduler": scheduler, "threads": threads}
            found.append((make(block, scheduler, sync, threads), variant, ("e", block), block))
    return found


@pytest.fixture
def both(results):
    """The same processes from complete results and from their digests."""
    whole = [Process(i, result, variant, pair, "e", block) for i, (result, variant, pair, block) in enumerate(results)]
    kept: list[Any] = []
    alike: dict[Any, Any] = {}
    for process in whole:
        parts = {name: json.loads(part) for name, part in digest(process.result).items()}
        shared = alike.setdefault(json.dumps(parts["facts"]), Facts.of(parts["facts"], process.variant))
        kept.append(dataclasses.replace(process, result=parts["measured"] | parts["causes"], shared=shared))
    assert len(alike) == 8  # of 28 results
    return whole, kept


@pytest.mark.parametrize(
    "of",
    [scaling, sweep, efficiencies, rooflines, marks, lambda p: series(p, {}), lambda p: compare(p[1::4], p[2::4]),
     lambda p: scaling([dataclasses.replace(each, leave_out_flagged=True) for each in p])],
)  # fmt: skip
def test_analyses_of_what_is_kept_are_those_of_the_whole_result(both, of):
    whole, kept = both
    assert of(kept) == of(whole)


def test_what_is_kept_has_the_sizes_of_memory(both):
    whole, kept = both
    for name in ("memory_bytes", "resident_bytes"):
        assert [process.result[name] for process in kept] == [process.result[name] for process in whole]


def test_nothing_momentary_keeps_equal_facts_apart(results):
    (one, *_), (other, *_) = results[0], results[4]
    assert one["environment"] != other["environment"]
    assert digest(one)["facts"] == digest(other)["facts"]
