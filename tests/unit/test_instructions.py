"""Instructions as a second metric: a ratio if they were counted, otherwise null with the reason."""

from __future__ import annotations

import pytest

from gpt2core.spec.result import instructions_per_step
from taskloom.analysis.comparison import compare
from taskloom.analysis.processes import Process
from taskloom.analysis.sweep import sweep
from tests.support.present import present


def counted(make_result, per_thread=(1e9, 3e9), busy=1.0, unavailable=None, **settings):
    """Two threads' counters over two timed steps of a second; both threads are busy for a share of the time."""
    result = make_result([9.0, 1.0, 1.0], threads=2, **settings)
    for times in result["phase_busy_s"].values():
        times[:] = [busy * each for each in times]
    threads = [{"instructions": each, "cycles": None} for each in per_thread]
    return {**result, "counters": {"threads": threads, "unavailable": unavailable or {}}}


def test_a_steps_instructions_are_those_of_all_threads(make_result):
    assert instructions_per_step(counted(make_result)) == (2e9, "")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"per_thread": (None, None), "unavailable": {"instructions": "perf_event_open: the kernel forbids it"}},
         "the kernel forbids it"),
        ({"per_thread": (1e9, None)}, "not counted"),
        ({"per_thread": ()}, "not counted"),
        ({"busy": 0.94}, "waited for more than 5%"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_null_with_its_reason(make_result, changed, reason):
    value, why = instructions_per_step(counted(make_result, **changed))
    assert value is None
    assert reason in why


def test_a_result_without_counters_says_so(make_result):
    assert instructions_per_step(make_result()) == (None, "instructions were not counted")


def sides(make_result, blocks=7, **b):
    """Blocks of a variant with 4e9 instructions and of one with `b`."""
    return [
        [Process(100 * side + i, counted(make_result, **{"scheduler": name, **extra}), {"scheduler": name}, ("d", i),
                 "d", i)
         for i in range(blocks)]
        for side, (name, extra) in enumerate([("fork-join", {}), ("task", b)])
    ]  # fmt: skip


def test_a_comparison_tells_of_instructions_beside_the_time(make_result):
    a, b = sides(make_result, per_thread=(1e9, 1e9))
    found = compare(a, b)
    assert found.verdict == "same"
    instructions = present(found.instructions)
    assert (instructions.ratio, instructions.n) == (pytest.approx(2.0), 7)
    assert instructions.ratio_low == instructions.ratio_high == pytest.approx(2.0)
    (row,) = sweep([*a, *b]).rows
    assert row.instructions == instructions


def test_instructions_that_drift_have_no_interval(make_result):
    a, b = sides(make_result, per_thread=(1e9, 1e9), blocks=12)
    for i, process in enumerate(b):
        for thread in process.result["counters"]["threads"]:
            thread["instructions"] *= 1 + 0.01 * i
    found = present(compare(a, b).instructions)
    assert (found.ratio_low, found.ratio_high, found.n) == (None, None, 12)
    assert 1.8 < present(found.ratio) < 2.0
    assert "the values show a drift over the blocks" in found.reason or "neighbours resemble" in found.reason


def test_one_process_that_was_not_counted_leaves_no_ratio(make_result):
    a, b = sides(make_result)
    b[3].result["counters"]["threads"][0]["instructions"] = None
    found = present(compare(a, b).instructions)
    assert (found.ratio, found.ratio_low, found.reason) == (None, None, "instructions were not counted")
