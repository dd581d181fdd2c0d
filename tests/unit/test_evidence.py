"""Evidence of timed steps from planted readings, and the rule that flags them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gpt2core.measure import evidence, usage
from gpt2core.measure.evidence import Reading, Watcher

QUIET = Reading(ticks=0, busy_s=5.0, steal_s=0.5, own_s=1.0, throttled_s=0.0, run_queue=2, frequency_hz=3e9)
STEPS = 4
BOUNDS = np.array([100, 200, 300, 400, 500])


def watcher(*later: dict[str, Any], cores: tuple[int, ...] = (0, 1)) -> Watcher:
    """Readings at ticks 0, 1000 and so on, each with changes to the previous one."""
    readings = [QUIET]
    for change in later:
        readings.append(dataclasses.replace(readings[-1], ticks=readings[-1].ticks + 1000, **change))
    return Watcher(cores, readings)


def usages(threads: int = 2) -> np.ndarray:
    """Readings of undisturbed threads."""
    found = np.zeros((threads, STEPS + 1, 8), np.int64)
    found[:, :, usage.READ] = BOUNDS
    found[:, :, usage.CORE] = np.arange(threads)[:, None]
    return found


def collected(readings: np.ndarray | None = None, watching: Watcher | None = None, warmup: int = 0) -> dict[str, Any]:
    found = usages() if readings is None else readings
    return evidence.collect(watching or watcher({}), [(found, BOUNDS)], warmup, seconds_per_tick=0.01)


def test_counts_are_summed_over_threads_and_delays_are_the_worst_threads():
    found = usages()
    found[0, 2:, usage.INVOLUNTARY] = 3
    found[1, 2:, usage.INVOLUNTARY] = 4
    found[0, 1:, usage.RUN_DELAY_NS] = 10_000
    found[1, 1:, usage.RUN_DELAY_NS] = 30_000
    found[1, 3:, usage.MAJOR] = 1
    columns = collected(found)["steps"]
    assert columns["involuntary_switches"] == [0, 7, 0, 0]
    assert columns["run_delay_s"] == [pytest.approx(3e-5), 0, 0, 0]
    assert columns["major_faults"] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("read_at", "delay_ticks", "booked"),
    [
        ([100, 201, 300, 400, 500], [0, 30, 30, 30, 30], [0.29, 0.01, 0, 0]),  # delayed during the first step
        ([100, 290, 300, 400, 500], [0, 80, 80, 80, 80], [0, 0.8, 0, 0]),  # at its end, until late in the second
        ([100, 390, 395, 400, 500], [0, 250, 250, 250, 250], [0.6, 1, 0.9, 0]),  # for longer than any step takes
        ([100, 390, 395, 400, 500], [0, 900, 900, 900, 900], [1, 1, 0.9, 0]),  # by more than the time since a reading
        ([100, 0, 0, 450, 500], [0, 0, 0, 40, 40], [0, 0, 0, 0.4]),  # without work in the steps between
        ([100, 0, 0, 0, 0], [7, 0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_a_delay_belongs_to_the_step_during_which_the_thread_did_not_run(read_at, delay_ticks, booked):
    """A delayed thread reads its counts late: what it then reads is not all of the step that it has left."""
    found = usages()
    found[1, :, usage.READ] = read_at
    found[1, :, usage.RUN_DELAY_NS] = np.array(delay_ticks) * 10_000_000
    delays = collected(found)["steps"]["run_delay_s"]
    assert delays == pytest.approx(booked)
    assert max(delays) <= 1.0  # a step's duration


def test_no_step_lost_more_than_its_time_on_each_core():
    columns = collected(watching=watcher({"steal_s": 90.5, "throttled_s": 50.0}))["steps"]
    assert columns["steal_s"] == columns["throttled_s"] == [pytest.approx(2.0)] * STEPS


def test_a_thread_without_a_reading_stays_where_it_was():
    found = usages()
    found[1, :, usage.MINOR] = [5, 0, 0, 9, 9]
    found[1, 1:3] = 0
    assert collected(found)["steps"]["minor_faults"] == [0, 0, 4, 0]
    assert collected(found)["steps"]["migrations"] == [0, 0, 0, 0]


def test_another_core_is_a_migration():
    found = usages()
    found[0, 2, usage.CORE] = 7
    assert collected(found)["steps"]["migrations"] == [0, 1, 1, 0]


def test_warm_up_has_no_evidence():
    columns = collected(warmup=3)["steps"]
    assert columns["minor_faults"] == [None] * 3 + [0] * STEPS
    assert columns["steal_s"] == [None] * 3 + [0.0] * STEPS


def test_what_is_not_known_is_null_with_a_reason():
    found = usages()
    found[:, :, usage.RUN_DELAY_NS] = usage.UNKNOWN
    silent = watcher({"frequency_hz": None, "throttled_s": None})
    validity = collected(found, silent)
    for name in ("run_delay_s", "frequency_hz", "throttled_s"):
        assert validity["steps"][name] is None
        assert validity["unavailable"][name]
    assert validity["steps"]["steal_s"] is not None
    assert "steal_s" not in validity["unavailable"]


def test_a_sum_is_shared_out_evenly_between_readings():
    grown = collected(watching=watcher({"steal_s": 1.5}))["steps"]["steal_s"]
    assert grown == [pytest.approx(0.1)] * STEPS


def test_what_is_read_around_a_step_counts_for_it():
    readings = [dataclasses.replace(QUIET, ticks=t, run_queue=q) for t, q in ((50, 1), (250, 6), (320, 2), (600, 3))]
    columns = collected(watching=Watcher((0,), readings))["steps"]
    assert columns["run_queue"] == [6, 6, 6, 3]


def test_foreign_load_is_what_the_cores_did_and_this_process_did_not():
    validity = collected(watching=watcher({"busy_s": 25.0, "own_s": 11.0}))
    assert validity["foreign"]["foreign_s"] == pytest.approx((20 - 10) * 0.4)
    (warning,) = evidence.warnings(validity, [[]] * STEPS, timed_s=4.0)
    assert warning == "foreign load: other processes used 50.0% of the run's cores"
    assert evidence.warnings(validity, [[]] * STEPS, timed_s=400.0) == []
    quiet = collected(watching=watcher({"busy_s": 15.0, "own_s": 11.0}))
    assert evidence.warnings(quiet, [[]] * STEPS, timed_s=4.0) == []


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("run_delay_s", 0.02, "run_delay"),
        ("migrations", 1, "migrations"),
        ("major_faults", 1, "major_faults"),
        ("steal_s", 0.03, "steal"),
        ("throttled_s", 0.001, "throttled"),
        ("frequency_hz", 2.5e9, "frequency"),
    ],
)
def test_each_disturbance_flags_its_step(column, value, reason):
    validity = collected()
    assert evidence.flags(validity, [1.0] * STEPS, cores=2) == [[]] * STEPS
    validity["steps"][column][2] = value
    flagged = evidence.flags(validity, [1.0] * STEPS, cores=2)
    assert flagged == [[], [], [reason], []]
    assert reason in validity["rule"]
    assert evidence.warnings(validity, flagged, 4.0) == [f"1 of 4 timed steps are flagged ({reason} 1)"]


def test_small_disturbances_do_not_flag():
    validity = collected()
    for column, value in (("run_delay_s", 0.009), ("steal_s", 0.019), ("minor_faults", 9), ("involuntary_switches", 1)):
        validity["steps"][column][1] = value
    assert evidence.flags(validity, [1.0] * STEPS, cores=2) == [[]] * STEPS


def test_switches_flag_only_where_the_delay_is_not_known():
    validity = collected()
    validity["steps"]["involuntary_switches"][1] = 1
    validity["steps"]["run_delay_s"] = None
    assert evidence.flags(validity, [1.0] * STEPS, cores=2) == [[], ["involuntary_switches"], [], []]
