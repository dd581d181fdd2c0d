"""Forecasts for more ranks: steps that can be drawn by hand, bounds of any step, and what a report shows of them."""

from __future__ import annotations

import dataclasses
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskloom.analysis.forecast import task_step_s
from taskloom.analysis.outlook import outlook, sources, usable_runs
from taskloom.analysis.processes import Process
from taskloom.analysis.profile import SCHEMA, profile_of
from taskloom.analysis.rank_forecast import NO_LINK, Link, rank_step_s
from taskloom.analysis.rank_work import Ranks
from taskloom.analysis.report import page
from tests.support.exchanges import exchanged
from tests.support.report_example import make_report

LINK = Link(0.1, 100.0)
OPS = ["forward", "loss_send", "loss_arrived", "backward", "backward", "gradients_send", "gradients_arrived",
       "fold+adamw", "weights_send", "weights_arrived"]  # fmt: skip
PHASES = ["forward", "loss", "loss", "backward", "backward", *["update"] * 5]


def make(forward=1.0, first=1.0, second=1.0, updates=(0.5, 0.5), sizes=(100, 100), call=0.0):
    """The profile of one of two ranks: two buckets of 2 x `sizes` bytes, whose gradients `first` and `second` compute.
    Tasks that wait took a second each, those that send a bucket `call`."""
    op_first = [0, 1, 2, 3, 4, 5, 7, 9, 11, 13, 15]
    ops = [op for op, (a, b) in enumerate(itertools.pairwise(op_first)) for _ in range(a, b)]
    bucket = [(5, 7), (6, 8), (7, 9), (8, 10), (9, 11), (10, 12), (11, 13), (12, 14)]
    edges = [(0, 1), (1, 2), (0, 3), (3, 4), (3, 5), (4, 6), *bucket]
    around = [(0, task + 1) for task in range(15)] + [(task + 1, 16) for task in range(15)]
    return profile_of({
        "schema": SCHEMA, "config": {}, "environment": {}, "ops": list(zip(OPS, PHASES, strict=True)),
        "tasks": {
            "op": ops, "layer": [None] * 15, "label": [""] * 15, "flop": [0] * 15,
            "mean_s": [forward, 0.0, 1.0, first, second, call, call, 1.0, 1.0, *updates, call, call, 1.0, 1.0],
            "bytes": [0] * 5 + [*sizes] * 5,
        },
        "op_first": op_first, "nodes": [-1, *range(15), -1],
        "edges": sorted([*((a + 1, b + 1) for a, b in edges), *around]), "crossing": [(16, 0)],
    })  # fmt: skip


def step_s(scheduler, ranks, way="strong", threads=1, link=LINK):
    return rank_step_s(make(), Ranks(2, ranks, way), scheduler, link, threads)


def test_messages_of_fork_join_follow_the_backward_pass_and_the_update():
    """Loss 0.1; both gradients 2.1; both weights 2.1."""
    assert step_s("fork-join", 2) == pytest.approx(4.0 + 0.1 + 2.1 + 2.1)
    assert step_s("serial", 2) == step_s("fork-join", 2)
    assert step_s("fork-join", 2, threads=2) == pytest.approx(3.5 + 4.3)


def test_messages_of_task_travel_while_tasks_run():
    """One thread sends both gradients at 3, and the first weights when the link is free at 5; two send the first
    gradient at 2."""
    assert step_s("task", 2) == pytest.approx(7.1)
    assert step_s("task", 2, threads=2) == pytest.approx(6.1)


def test_a_cut_batch_takes_less_work_and_larger_messages():
    assert step_s("fork-join", 4) == pytest.approx(2.0 + 0.1 + 2 * (3.0 + 0.1))
    assert step_s("fork-join", 1) == step_s("task", 1) == pytest.approx(8.0)


def test_a_held_batch_takes_the_same_work_and_smaller_updates():
    assert step_s("fork-join", 4, "weak") == pytest.approx(3.0 + 0.5 + 0.1 + 2 * (3.0 + 0.1))
    assert step_s("fork-join", 1, "weak") == pytest.approx(3.0 + 2.0)
    assert step_s("fork-join", 2, "weak") == step_s("fork-join", 2)


def test_calls_that_send_take_time_in_proportion_to_the_bytes():
    """Of a bucket a rank sends 1 / 2 with two ranks, 3 / 4 with four, nothing alone."""
    found = [rank_step_s(make(call=0.1), Ranks(2, ranks, "weak"), "fork-join", NO_LINK) for ranks in (1, 2, 4)]
    assert found == [pytest.approx(each) for each in (5.0, 4.0 + 4 * 0.1, 3.5 + 4 * 0.15)]


def chain(tasks):
    """A profile of one of two ranks, whose tasks follow each other: name, phase, seconds, bytes, and the share that
    each rank has whole."""
    names, phases, seconds, sizes, whole = zip(*tasks, strict=True)
    count = len(tasks)
    return profile_of({
        "schema": SCHEMA, "config": {}, "environment": {}, "ops": list(zip(names, phases, strict=True)),
        "tasks": {
            "op": list(range(count)), "layer": [None] * count, "label": [""] * count, "flop": [0] * count,
            "mean_s": seconds, "bytes": sizes, "whole": whole,
        },
        "op_first": list(range(count + 1)), "nodes": [-1, *range(count), -1],
        "edges": [(number, number + 1) for number in range(count + 1)], "crossing": [(count + 1, 0)],
    })  # fmt: skip


def messages(kind, phase, call_s=0.2, size=100):
    """Tasks that send and wait. The latter took 9 seconds."""
    return [(f"{kind}_send", phase, call_s, size, 0), (f"{kind}_arrived", phase, 9.0, size, 0)]


def divided():
    """Ranks that divide the matrices and exchange rows of 100 bytes. Sums of their parts read and write 300 bytes."""
    return chain([
        ("tokens", "data", 0.1, 0, 1), ("projection", "forward", 1.0, 0, 0), *messages("projection", "forward"),
        ("projection_fold+residual", "forward", 0.6, 300, 0), *messages("loss", "loss", 0.0, 0),
        ("adamw", "update", 0.5, 0, 0),
    ])  # fmt: skip


@pytest.mark.parametrize("scheduler", ["fork-join", "task"])
@pytest.mark.parametrize(("ranks", "way", "expected_s"), [
    (2, "strong", 0.1 + 1.0 + 0.2 + (1.0 + 0.1) + 0.6 + 0.1 + 0.5),
    (2, "weak", 0.1 + 1.0 + 0.2 + (1.0 + 0.1) + 0.6 + 0.1 + 0.5),
    (4, "strong", 0.1 + 0.5 + 0.6 + (3.0 + 0.1) + 0.6 * 5 / 3 + 0.1 + 0.25),  # the sum has two further parts
    (4, "weak", 0.2 + 1.0 + 1.2 + (6.0 + 0.1) + 1.2 * 5 / 3 + 0.1 + 0.25),
    (1, "strong", 0.1 + 2.0 + 0.6 * 2 / 3 + 1.0),
])  # fmt: skip
def test_ranks_that_divide_the_matrices_send_their_rows_to_all_others(scheduler, ranks, way, expected_s):
    found_s = rank_step_s(divided(), Ranks(2, ranks, way, "tensor"), scheduler, LINK)
    assert found_s == pytest.approx(expected_s)


def hybrid():
    """Ranks that gather rows between convolutions, whose batch they divide, and dense layers, whose matrices they
    divide but for the last one, of which each has all. A fifth of what a rank updates is such."""
    return chain([
        ("conv", "forward", 1.0, 0, 0), *messages("gather", "forward"), ("fc", "forward", 1.0, 0, 0),
        *messages("fc", "forward"), ("fc_fold+relu", "forward", 0.6, 300, 0), ("logits", "forward", 0.4, 0, 1),
        *messages("gather_dinp", "backward"), ("gather_dinp_fold", "backward", 0.6, 300, 0),
        *messages("gradients", "update"), ("sgd", "update", 0.5, 0, 0.2), *messages("weights", "update"),
    ])  # fmt: skip


@pytest.mark.parametrize("scheduler", ["fork-join", "task"])
@pytest.mark.parametrize(("ranks", "way", "compute_s", "calls_s", "sent"), [
    (2, "strong", [1.0, 1.0, 0.6, 0.4, 0.6, 0.5], 5 * [0.2], 5 * [100]),
    # To each of three a rank sends half as many of its own rows, all rows of the sums, and half as large a shard.
    (4, "strong", [0.5, 0.5, 1.0, 0.4, 0.5, 0.3], [0.3, 0.6, 0.3, 0.3, 0.3], [150, 300, 150, 150, 150]),
    (4, "weak", [1.0, 1.0, 2.0, 0.8, 1.0, 0.3], [0.6, 1.2, 0.6, 0.3, 0.3], [300, 600, 300, 150, 150]),
])  # fmt: skip
def test_hybrid_ranks_gather_their_rows_and_exchange_shards(scheduler, ranks, way, compute_s, calls_s, sent):
    found_s = rank_step_s(hybrid(), Ranks(2, ranks, way, "hybrid"), scheduler, LINK)
    assert found_s == pytest.approx(sum(compute_s) + sum(calls_s) + sum(sent) / 100 + 5 * 0.1)


def test_one_rank_sends_nothing():
    found_s = rank_step_s(hybrid(), Ranks(2, 1, "strong", "hybrid"), "fork-join", LINK)
    assert found_s == pytest.approx(2.0 + 2.0 + 0.6 * 2 / 3 + 0.4 + 2 * 0.6 * 2 / 3 + 0.5 * 1.8)


def test_the_forecast_knows_what_ranks_divide(make_result):
    made: list[Process] = []
    for ranks, parallel, step_s in ((2, "tensor", 3.6), (1, "data", 3.5), (4, "data", 9.0)):
        variant = {"scheduler": "fork-join", "batch": 4, "ranks": ranks, "parallel": parallel}
        result = make_result([9, step_s, step_s], threads=1, fusion="rows", **variant)
        result["memory_bytes"] = result["resident_bytes"] = {}
        result["communication"] = exchanged((0.1, 0.2, 0.1), (0.1, 0.2, 0.1)) if ranks > 1 else []
        for rank in result["communication"][1:]:
            rank |= {"latency_s": 0.1, "bytes_per_s": 100.0}
        made.append(Process(len(made) + 1, result, variant, (1, len(made))))
    (found,) = outlook(made, {1: divided()}).ranks
    strong, weak = found.curves
    assert [(p.ranks, p.batch) for p in strong.points] == [(1, 4), (2, 4), (4, 4)]  # which divide the 12 heads
    assert [(p.ranks, p.batch) for p in weak.points] == [(1, 2), (2, 4), (4, 8)]
    assert [p.measured_s for p in strong.points] == [3.5, 3.6, None]  # four ranks that divide the batch took 9 s
    assert [p.error for p in strong.points] == [pytest.approx(0), pytest.approx(0), None]
    assert any(each.startswith("ranks divide the matrices") for each in found.assumptions)
    assert any("(projection and loss)" in each for each in found.assumptions)


def test_hybrid_ranks_have_a_forecast(make_result):
    variant = {"scheduler": "fork-join", "batch": 4, "ranks": 2, "parallel": "hybrid"}
    images = {"model": {"network": "vgg", "hidden": 96}, "seq": 1, "token_slice": 1, "data": "synthetic"}
    result = make_result([9, 10.6, 10.6], threads=1, fusion="rows", **images, **variant)
    result["communication"] = exchanged((0.1, 0.2, 0.1), (0.1, 0.2, 0.1))
    result["communication"][1] |= {"latency_s": 0.1, "bytes_per_s": 100.0}
    (found,) = outlook([Process(1, result, variant, (1, 1))], {1: hybrid()}).ranks
    strong, weak = found.curves
    assert [p.ranks for p in strong.points] == [1, 2, 4]  # which divide the batch
    assert [(p.ranks, p.batch) for p in weak.points] == [(n, 2 * n) for n in (1, 2, 4, 8, 16, 32)]  # and 96 columns
    assert found.worst_error == pytest.approx(0)
    assert any(each.startswith("ranks divide the batch of some layers and the mat") for each in found.assumptions)


def test_each_task_costs_its_scheduling_too():
    silent = rank_step_s(make(), Ranks(2, 2, "weak"), "fork-join", NO_LINK, overhead_s=0.25)
    assert silent == pytest.approx(4.0 + 0.25 * (15 - 5))  # those that wait end when their messages arrive


seconds = st.floats(0.01, 10)


@given(
    st.tuples(seconds, seconds, seconds), st.tuples(seconds, seconds),
    st.tuples(st.integers(1, 10_000), st.integers(1, 10_000)), st.floats(0, 1), st.floats(1, 1e6),
    st.integers(1, 3), st.sampled_from([2, 4, 8]),
)  # fmt: skip
def test_a_step_lies_between_its_parts_and_their_sum(work, updates, sizes, latency_s, bytes_per_s, threads, ranks):
    profile, link = make(work[0], work[1], work[2], updates, sizes), Link(latency_s, bytes_per_s)
    share = 2 / ranks
    work_s = share * (sum(work) + sum(updates))
    wire_s = 4 * sum(sizes) * (ranks - 1) / ranks / bytes_per_s
    for scheduler in ("fork-join", "task"):
        found_s = rank_step_s(profile, Ranks(2, ranks, "strong"), scheduler, link, threads)
        silent_s = rank_step_s(profile, Ranks(2, ranks, "strong"), scheduler, NO_LINK, threads)
        slack = 1 - 1e-9
        assert found_s >= slack * max(work_s / threads, wire_s, silent_s * (threads == 1))
        assert found_s * slack <= work_s + wire_s + 5 * latency_s
        if scheduler == "fork-join":
            assert found_s == pytest.approx(silent_s + wire_s + 3 * latency_s)


def test_a_replay_without_messages_is_that_of_cores():
    profile = profile_of({
        "schema": SCHEMA, "config": {}, "environment": {}, "ops": [["forward", "forward"]], "op_first": [0, 4],
        "tasks": {"op": [0] * 4, "layer": [None] * 4, "label": [""] * 4, "mean_s": [1.0, 2.0, 3.0, 4.0],
                  "flop": [0] * 4, "bytes": [0] * 4},
        "nodes": [-1, 0, 1, 2, 3, -1], "edges": [(0, n) for n in range(1, 5)] + [(n, 5) for n in range(1, 5)],
        "crossing": [(5, 0)],
    })  # fmt: skip
    assert rank_step_s(profile, Ranks(2, 2, "weak"), "task", LINK, 2) == task_step_s(profile, 2)


@pytest.fixture
def processes(make_result):
    """Two ranks of two schedulers; one rank with the whole batch, and with half of it."""
    made: list[Process] = []
    for scheduler, ranks, batch, step_s in (
        ("fork-join", 2, 4, 8.3), ("fork-join", 1, 4, 8.4), ("fork-join", 1, 2, 5.0), ("task", 2, 4, 7.1),
        ("omp-task", 2, 4, 8.0),
    ):  # fmt: skip
        variant = {"scheduler": scheduler, "ranks": ranks, "batch": batch}
        result = make_result([9, step_s, step_s], **variant, threads=1, fusion="rows")
        result["memory_bytes"] = result["resident_bytes"] = {}
        if ranks > 1:
            result["communication"] = exchanged((0.1, 0.2, 0.1), (0.1, 0.2, 0.1))
            result["communication"][1] |= {"latency_s": 0.1, "bytes_per_s": 100.0}
        made.append(Process(len(made) + 1, result, variant, (1, len(made))))
    return made


def test_measured_steps_stand_beside_the_forecast(processes):
    assert usable_runs(processes) == [1, 2, 3, 4, 5]
    assert sources(processes, {1, 4}) == [1, 4]
    found = outlook(processes, {1: make(), 4: make()})
    fork_join, task = found.ranks
    assert (fork_join.source_run_id, fork_join.source_ranks, task.source_run_id) == (1, 2, 4)
    assert (fork_join.latency_s, fork_join.bytes_per_s) == (0.1, 100.0)
    strong, weak = fork_join.curves
    assert [(p.ranks, p.batch) for p in strong.points] == [(1, 4), (2, 4), (4, 4)]  # 8 ranks do not divide 4
    assert [(p.ranks, p.batch) for p in weak.points] == [(n, 2 * n) for n in (1, 2, 4, 8, 16, 32, 64)]
    assert [p.measured_s for p in strong.points] == [8.4, 8.3, None]
    assert [p.error for p in strong.points] == [pytest.approx(8 / 8.4 - 1), pytest.approx(0), None]
    assert [p.measured_s for p in weak.points[:3]] == [5.0, 8.3, None]
    assert fork_join.worst_error == pytest.approx(1 - 8 / 8.4)
    two = strong.points[1]
    assert (two.ideal_s, two.exposed_s) == (pytest.approx(4.0), pytest.approx(4.3))
    assert two.efficiency == pytest.approx(4.0 / 8.3)
    assert weak.points[1].ideal_s == pytest.approx(5.0)
    assert found.missing == [
        "omp-task 1x64, 2 ranks, batch 4, 1 thread: steps of omp-task are not replayed",
        "slices 1x64, batch 2: no one-thread run has a profile",
        "slices 1x64, batch 4: no one-thread run has a profile",
    ]


def test_a_forecast_far_from_what_was_measured_has_no_other_point(processes):
    processes[1].result["step_s"][1:] = [16.0, 16.0]
    fork_join = outlook(processes, {1: make(), 4: make()}).ranks[0]
    assert not fork_join.given
    assert [[p.ranks for p in curve.points] for curve in fork_join.curves] == [[1, 2], [1, 2]]
    missing = outlook(processes, {1: make()}).missing
    assert any("differs from measured steps by up to 50%" in reason for reason in missing)


def test_what_is_lacking_is_said(processes):
    name = "fork-join 1x64, 2 ranks, batch 4, 1 thread: "
    del processes[0].result["communication"][1]["bytes_per_s"]  # as in older results
    found = outlook(processes, {1: make()})
    assert found.ranks == []
    assert name.replace("fork-join", "task") + "no run of several ranks has a profile" in found.missing
    assert name + "latency and bandwidth between the ranks were not measured" in found.missing


def test_exchanges_of_another_kind_are_not_forecast(processes):
    known = make()
    kinds = [("blocks_send", "loss") if kind[0] == "loss_send" else kind for kind in known.kinds]
    odd = dataclasses.replace(known, kinds=kinds)
    missing = outlook(processes, {1: odd}).missing
    assert "fork-join 1x64, 2 ranks, batch 4, 1 thread: exchanges by blocks_send are not forecast" in missing


def test_the_report_has_the_forecast(processes, monkeypatch):
    monkeypatch.setattr("tests.support.report_example.profile_of", lambda _: make())
    report = make_report([each for each in processes if each.config["ranks"] == 2])
    text = page(report)
    section = text.partition("<h2>Forecast for more ranks</h2>")[2].partition("<h2>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", section)]
    assert ["strong", "2", "4", "8,300", "4,000", "48.2%", "4,300", "8,300", "-0.0%"] in [
        [cell.replace("+0.0%", "-0.0%") for cell in row] for row in rows
    ]
    assert "fork-join 1x64, 2 ranks, batch 4, 1 thread, from run 1." in section
    assert "a message takes 100000.0 us" in section
