"""Ops of a step in two trees: what is summed, compared and shown."""

from __future__ import annotations

import pytest

from bench import ops
from bench.combine import by_occasion, combined

HOURS = ("2026-11-24T18:00:00+00:00", "2026-11-24T20:00:00+00:00")
COMMITS = {"ours": "a1", "before": "b2"}


def result(gelu_s, more=(), losses=(1.0,)):
    """Two timed steps of half a second on two threads."""
    found = [{"op": "gelu", "phase": "forward", "time_s": gelu_s}, {"op": "fc", "phase": "forward", "time_s": 1.0}]
    return {"config": {"warmup": 1}, "step_s": [9.0, 0.4, 0.6], "threads": [{}, {}], "ops": [*found, *more],
            "losses": list(losses)}  # fmt: skip


def rounds(ours, before):
    return [{"round": i, "of": {"ours": ops.figures(ours), "before": ops.figures(before)}} for i in range(6)]


def record(at, ours, before):
    made = rounds(ours, before)
    machine = {"cpu_model": "CPU", "cores": 2, "kernel": "6", "load_average": [0.0]}
    return {"schema": "taskloom.bench.ops/1", "at": at, "machine": machine, "command": [], "revisions": COMMITS,
            "case": "tiny", "rounds": made, "rows": ops.rows(made)}  # fmt: skip


def test_an_op_has_its_time_in_a_step_and_the_step_that_of_all_threads():
    found = ops.figures(result(0.5))["op_s"]
    assert found == {"gelu, forward": 0.25, "fc, forward": 0.5, ops.STEP: pytest.approx(1.0)}


def test_an_op_of_one_tree_only_has_no_ratio():
    more = [{"op": "rounding", "phase": "forward", "time_s": 0.1}]
    rows = {row["op"]: row for row in ops.rows(rounds(result(0.6, more), result(0.5)))}
    assert list(rows) == [ops.STEP, "fc, forward", "gelu, forward", "rounding, forward"]
    assert rows["gelu, forward"]["ratio"] == pytest.approx(1.2)
    assert rows["gelu, forward"]["ratio_interval"] == pytest.approx([1.2, 1.2])
    assert (rows["rounding, forward"]["ratio"], rows["rounding, forward"]["before_s"]) == (None, None)


def test_a_table_says_whether_losses_agree():
    same, other = result(0.5), result(0.5, losses=(1.1,))
    assert "losses are the same." in ops.table(record(HOURS[0], same, same))
    text = ops.table(record(HOURS[0], other, same))
    assert "losses are not the same." in text
    assert "| gelu, forward | 250 | 250 | 1.000 | 1.000 to 1.000 | 6 |" in text


def test_occasions_are_combined_by_op():
    made = [record(HOURS[0], result(0.6), result(0.5)), record(HOURS[1], result(0.55), result(0.5))]
    rows = {row["case"]: row for row in combined(made)}
    gelu = rows["tiny, gelu, forward, a1 against b2"]
    assert (gelu["variant"], gelu["rounds"]) == ("ours", [6, 6])
    assert gelu["ratio"] == pytest.approx((1.2 * 1.1) ** 0.5)
    figures = {row["figure"]: row["values"] for row in by_occasion(made)}
    assert figures["tiny: gelu, forward of a1"] == [pytest.approx(300), pytest.approx(275)]
