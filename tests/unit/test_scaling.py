import math
from typing import Any

import pytest

from taskloom.analysis.processes import Process
from taskloom.analysis.scaling import scaling


@pytest.fixture
def processes(make_result):
    """Processes of variants given as (scheduler, threads, median step, more settings)."""

    def build(*variants, repetitions=1):
        made: list[Any] = []
        for _ in range(repetitions):
            for scheduler, threads, step_s, *more in variants:
                settings = {"scheduler": scheduler, "threads": threads, **(more[0] if more else {})}
                variant, block = {"scheduler": scheduler, "threads": threads}, (len(made) // len(variants))
                result = make_result([9.0, step_s, step_s], **settings)
                made.append(Process(len(made) + 1, result, variant, ("e", block), "e", block))
        return made

    return build


def row(table, scheduler, threads):
    return next(r for r in table.rows if (r.scheduler, r.threads) == (scheduler, threads))


def test_speedup_is_relative_to_one_thread_of_the_same_scheduler_and_to_the_best(processes):
    table = scaling(
        processes(("serial", 1, 1.0), ("fork-join", 1, 1.2), ("fork-join", 2, 0.8), ("task", 1, 1.1), ("task", 2, 0.5))
    )
    task, fork = row(table, "task", 2), row(table, "fork-join", 2)
    assert (task.speedup, task.speedup_best_serial, task.efficiency) == pytest.approx((2.2, 2.0, 1.1))
    assert (fork.speedup, fork.speedup_best_serial, fork.efficiency) == pytest.approx((1.5, 1.25, 0.75))
    assert row(table, "serial", 1).speedup == 1.0
    assert "T(1) of task 1x64 1100 ms" in table.base
    assert "best one-thread median: serial 1x64 1000 ms" in table.base


def test_efficiency_of_each_phase_comes_from_its_own_times(make_result):
    one = Process(1, make_result([9.0, 1.0, 1.0], scheduler="fork-join"), {"threads": 1})
    two = Process(
        2,
        make_result([9.0, 0.6, 0.6], scheduler="fork-join", threads=2, phase_share={"forward": 0.5, "backward": 0.4}),
        {"threads": 2},
    )
    found = row(scaling([one, two]), "fork-join", 2)
    assert found.efficiency_forward == pytest.approx(0.3 / 0.3 / 2)
    assert found.efficiency_backward == pytest.approx(0.5 / 0.24 / 2)
    assert (found.speedup_forward, found.speedup_backward) == pytest.approx((1.0, 0.5 / 0.24))
    assert found.phases_overlap is False


def test_tokens_per_second_are_total_work_by_total_time(make_result):
    a = Process(1, make_result([9.0, 1.0, 1.0]))
    b = Process(2, make_result([9.0, 3.0, 3.0]))
    table = scaling([a, b])
    assert table.rows[0].runs == 2
    assert table.rows[0].tokens_per_s == pytest.approx(4 * 4 * 64 / 8.0)


def test_a_variant_that_disagrees_gets_no_speedup(processes):
    given = processes(
        ("serial", 1, 1.0), ("fork-join", 1, 1.0), ("fork-join", 2, 0.5), ("task", 2, 0.4, {"weights_sha256": "bad"})
    )
    table = scaling(given)
    bad = row(table, "task", 2)
    assert bad.agrees is False
    assert (bad.speedup, bad.speedup_best_serial, bad.efficiency, bad.efficiency_forward) == (None,) * 4
    assert row(table, "fork-join", 2).agrees is True
    assert any("task 1x64 with 2 threads disagrees" in warning for warning in table.warnings)
    assert not any("no one-thread run" in warning for warning in table.warnings)


def test_a_disagreeing_one_thread_run_is_no_base(processes):
    table = scaling(processes(("serial", 1, 1.0), ("task", 1, 0.1, {"losses": [1.0, 1.0, 1.0]}), ("task", 2, 0.5)))
    assert row(table, "task", 2).speedup is None
    assert row(table, "task", 2).speedup_best_serial == 2.0


def test_one_bad_repetition_marks_its_variant(processes):
    given = processes(("serial", 1, 1.0), ("task", 1, 1.0), repetitions=3)
    given[-1].result["losses"][-1] += 1e-9
    table = scaling(given)
    assert row(table, "task", 1).agrees is False
    assert row(table, "serial", 1).agrees is True


def test_other_slices_need_not_be_bit_identical_and_other_problems_are_no_base(processes):
    table = scaling(
        processes(
            ("serial", 1, 1.0),
            ("task", 2, 0.5, {"token_slice": 32, "weights_sha256": "x", "losses": [5.0, 4.9, 4.80001]}),
            ("task", 4, 0.1, {"batch": 8, "weights_sha256": "y"}),
        )
    )
    assert row(table, "task", 2).agrees
    assert row(table, "task", 2).speedup_best_serial == 2.0
    assert row(table, "task", 4).speedup_best_serial is None


def test_speedup_has_an_interval(processes):
    found = row(scaling(processes(("task", 1, 1.0), ("task", 2, 0.5), repetitions=6)), "task", 2)
    assert (found.speedup_low, found.speedup, found.speedup_high) == pytest.approx((2.0, 2.0, 2.0))
    assert (found.step_s.n, found.step_s.processes) == (6, 6)


def test_speedups_of_phases_and_against_the_best_have_intervals_over_processes(make_result):
    times = {("task", 1): [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], ("task", 2): [0.5] * 6, ("serial", 1): [0.8] * 6}
    given = [
        Process(i, make_result([9.0, s, s], scheduler=scheduler, threads=threads), {"s": scheduler, "threads": threads},
                ("e", i), "e", i)
        for (scheduler, threads), medians in times.items()
        for i, s in enumerate(medians)
    ]
    found = row(scaling(given), "task", 2)
    assert found.phases_overlap is True
    for value, low, high in (
        (found.speedup_forward, found.speedup_forward_low, found.speedup_forward_high),
        (found.speedup_backward, found.speedup_backward_low, found.speedup_backward_high),
    ):
        assert value == pytest.approx(1.25 / 0.5, rel=0.01)
        assert (low, high) == pytest.approx((1.0 / 0.5, 1.5 / 0.5))
    best = found.speedup_best_serial, found.speedup_best_serial_low, found.speedup_best_serial_high
    assert best == pytest.approx((1.6, 1.6, 1.6))


def test_fewer_than_six_pairs_have_a_speedup_without_an_interval(processes):
    found = row(scaling(processes(("task", 1, 1.0), ("task", 2, 0.5), repetitions=5)), "task", 2)
    assert (found.speedup, found.speedup_low, found.speedup_high) == (pytest.approx(2.0), None, None)


def test_runs_that_drift_are_named(make_result):
    given = [Process(i, make_result([9.0, 1 + 0.01 * i, 1 + 0.01 * i]), {}, ("e", i), "e", i) for i in range(12)]
    (found,) = scaling(given).rows
    assert any("a drift over the blocks" in finding for finding in found.diagnosis)


def test_an_outlier_is_labelled_and_counts(processes):
    given = processes(("task", 1, 1.0), repetitions=7)
    given[3].result["step_s"] = [9.0, 3.0, 3.0]
    found = row(scaling(given), "task", 1)
    assert found.outliers == [4]
    assert found.step_s.n == 7


def test_an_unlike_machine_and_too_few_cores_are_warned_of(make_result):
    a = Process(1, make_result(environment={"kernel": "6.1"}), {"threads": 1})
    b = Process(2, make_result(threads=2, allow_oversubscription=True, environment={"kernel": "6.2", "cores": [0]}),
                {"threads": 2})  # fmt: skip
    warnings = scaling([a, b]).warnings
    assert "the environments of the runs differ: kernel: 6.1 / 6.2" in warnings
    assert any("fewer cores than threads" in warning for warning in warnings)


def test_no_results_give_an_empty_table():
    table = scaling([])
    assert table.rows == []
    assert table.base.startswith("no one-thread run")


def test_overlapping_phases_count_by_their_own_tasks(make_result):
    """If phases overlap, the span of a phase is meaningless; its busy time divided by the threads is used instead."""
    for sync, forward_s in (("phase", 0.06), ("step", 0.05)):
        result = make_result(scheduler="task", sync=sync, threads=2, step_s=(0.9, 0.2, 0.2))
        result["phase_busy_s"]["forward"] = [0.1, 0.1, 0.1]
        assert Process(1, result).median_phase_s["forward"] == pytest.approx(forward_s)


def test_a_speedup_over_pairs_that_resemble_each_other_has_no_interval(make_result):
    made: list[Any] = []
    for i in range(20):
        for threads, step_s in ((1, 2.0), (2, 1.0 + 0.01 * math.sin(i * math.pi / 5))):
            result = make_result([9.0, step_s, step_s], scheduler="task", threads=threads)
            made.append(Process(len(made) + 1, result, {"threads": threads}, (1, i), "e", i))
    (row,) = (row for row in scaling(made).rows if row.threads == 2)
    assert row.speedup == pytest.approx(2.0, rel=0.01)
    assert (row.speedup_low, row.speedup_high) == (None, None)
    steady = [p for p in made if p.block in (0, 5, 10, 1, 11, 6)]
    (row,) = (row for row in scaling(steady).rows if row.threads == 2)
    assert row.speedup_low is not None
