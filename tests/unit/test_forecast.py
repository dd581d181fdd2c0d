"""Forecast schedules that can be drawn by hand, and properties of any schedule."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskloom.analysis.forecast import Ceiling, curves, fork_join_step_s, task_step_s
from taskloom.analysis.profile import SCHEMA, profile_of
from taskloom.analysis.roofline import Peaks
from taskloom.analysis.work_span import span


def make(seconds, op_first, edges, crossing=None, flop=None, size=None, waits=True, filler=None):
    """A profile whose nodes are begin, the tasks in their order, end; edges are between tasks."""
    count = len(seconds)
    nodes = [-1, *range(count), -1]
    inner = [(a + 1, b + 1) for a, b in edges]
    around = [(0, t + 1) for t in range(count)] + [(t + 1, count + 1) for t in range(count)] if waits else []
    return profile_of(
        {
            "schema": SCHEMA,
            "config": {},
            "environment": {},
            "ops": [["op", "forward"]],
            "tasks": {
                "op": [0] * count,
                "layer": [None] * count,
                "label": [""] * count,
                "mean_s": seconds,
                "flop": flop or [1] * count,
                "bytes": size or [0] * count,
                **({} if filler is None else {"filler": filler}),
            },
            "op_first": op_first,
            "nodes": nodes,
            "edges": sorted([*inner, *around]),
            "crossing": [(count + 1, 0)] if crossing is None else [(a + 1, b + 1) for a, b in crossing],
        }
    )


# Two rows of two tasks with alternating costs: a barrier between the ops costs 2 on two cores.
ROWS = make([1.0, 3.0, 3.0, 1.0], [0, 2, 4], [(0, 2), (1, 3)])


def test_fillers_wait_until_nothing_else_is_ready():
    """Two fillers precede a chain of two tasks: on two cores they run beside it."""
    given = ([1.0] * 4, [0, 2, 3, 4], [(2, 3)])
    assert task_step_s(make(*given), 2, iterations=1) == pytest.approx(3.0)
    assert task_step_s(make(*given, filler=[True, True, False, False]), 2, iterations=1) == pytest.approx(2.0)


def test_tasks_go_past_each_other_where_fork_join_waits():
    assert task_step_s(ROWS, 2) == pytest.approx(4.0)
    assert fork_join_step_s(ROWS, 2) == pytest.approx(6.0)
    assert task_step_s(ROWS, 1) == fork_join_step_s(ROWS, 1) == pytest.approx(8.0)


def test_static_shares_wait_where_dynamic_ones_do_not():
    uneven = make([3.0, 1.0, 1.0, 1.0], [0, 4], [])
    assert fork_join_step_s(uneven, 2) == pytest.approx(4.0)
    assert fork_join_step_s(uneven, 2, dynamic=True) == pytest.approx(3.0)


def test_steps_that_overlap_take_what_the_next_one_adds():
    # Task 1 is long and no task waits for it: on two cores it runs beside the next step's task 0.
    chained = make([2.0, 2.0], [0, 1, 2], [(0, 1)], crossing=[(0, 0)], waits=False)
    assert task_step_s(chained, 2, iterations=6) == pytest.approx(2.0)
    assert task_step_s(make([2.0, 2.0], [0, 1, 2], [(0, 1)]), 2) == pytest.approx(4.0)


def test_tasks_below_the_ridge_share_the_bandwidth():
    # Each task moves 10 GB in 1 s; two cores together get 15 GB/s: 20 GB take 4/3 s.
    memory = make([1.0, 1.0], [0, 2], [], size=[10_000_000_000] * 2)
    ceiling = Ceiling((Peaks(1, 100.0, 10.0), Peaks(2, 200.0, 15.0)))
    assert fork_join_step_s(memory, 2, ceiling) == pytest.approx(4 / 3)
    assert task_step_s(memory, 2, ceiling) == pytest.approx(4 / 3)
    assert fork_join_step_s(memory, 1, ceiling) == pytest.approx(2.0)
    compute = make([1.0, 1.0], [0, 2], [], size=[10_000_000_000] * 2, flop=[10**15] * 2)
    assert fork_join_step_s(compute, 2, ceiling) == pytest.approx(1.0)


def test_a_task_beside_memory_traffic_ends_when_the_traffic_lets_it():
    # 2 s of computing beside 1 s and 1 s of memory on three cores: 20 GB at 10 GB/s are done at 2 s, all together.
    mixed = make([2.0, 1.0, 1.0], [0, 3], [], size=[0, 10**10, 10**10])
    held = Ceiling((Peaks(1, 100.0, 10.0),), "held")
    assert fork_join_step_s(mixed, 3, held) == pytest.approx(2.0)
    assert fork_join_step_s(mixed, 3, Ceiling((Peaks(1, 100.0, 10.0),))) == pytest.approx(2.0)


def test_peaks_beyond_and_between_the_measured_ones():
    ceiling = Ceiling((Peaks(1, 100.0, 10.0), Peaks(4, 400.0, 16.0)))
    assert ceiling.at(2) == Peaks(2, 200.0, 12.0)
    assert ceiling.at(8) == Peaks(8, 800.0, 32.0)
    assert Ceiling(ceiling.measured, "held").at(8) == Peaks(8, 800.0, 16.0)


def test_the_error_against_what_was_measured_is_shown():
    fork, task = curves(ROWS, [1, 2], None, measured_s={("task", 2): 5.0})
    assert [p.error for p in fork.points] == [None, None]
    assert task.points[1].error == pytest.approx(-0.2)
    assert task.points[1].speedup == pytest.approx(2.0)


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 12))
    seconds = draw(st.lists(st.floats(0.01, 10), min_size=count, max_size=count))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return seconds, sorted(edges)


@settings(max_examples=60)
@given(graphs(), st.integers(1, 6))
def test_any_forecast_is_within_the_bounds_of_greedy_schedules(graph, cores):
    seconds, edges = graph
    profile = make(seconds, [0, len(seconds)], edges)
    work_s, span_s = sum(seconds), span(seconds, edges)
    found_s = task_step_s(profile, cores)
    assert max(work_s / cores, span_s) * (1 - 1e-9) <= found_s <= (work_s / cores + span_s) * (1 + 1e-9)


def test_a_cycle_is_an_error():
    cyclic = dataclasses.replace(make([1.0, 1.0], [0, 2], []), edges=[(1, 2), (2, 1)])
    with pytest.raises(ValueError, match="never completes"):
        task_step_s(cyclic, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"schema": "x"}, "schema"), ({"op_first": [0, 1]}, "op_first"), ({"nodes": [0, 0]}, "each task once"),
     ({"edges": [[0, 9]]}, "not there"), ({"tasks": {}}, "lacks")],
)  # fmt: skip
def test_a_broken_profile_says_what_is_wrong(change, reason):
    good = {"schema": SCHEMA, "config": {}, "environment": {}, "ops": [["a", "data"]],
            "tasks": {"op": [0, 0], "mean_s": [1, 1], "flop": [1, 1], "bytes": [1, 1]}, "op_first": [0, 2],
            "nodes": [0, 1], "edges": [], "crossing": []}  # fmt: skip
    assert len(profile_of(good).seconds) == 2
    with pytest.raises(ValueError, match=reason):
        profile_of({**good, **change})


def test_schedulers_are_replayed_in_the_order_that_they_keep():
    four = curves(ROWS, [1, 2], None, schedulers=("fork-join", "omp-for", "task", "omp-task"))
    steps = [[point.step_s for point in curve.points] for curve in four]
    assert steps[0] == steps[1] != steps[2] == steps[3]
    (cheap,), (dear,) = (curves(ROWS, [2], None, overhead_s, schedulers=("omp-task",)) for overhead_s in (0.0, 0.5))
    assert dear.points[0].step_s > cheap.points[0].step_s
