"""Forecasts of an experiment: one for each way to cut tiles and to order fork-join's loops."""

from __future__ import annotations

from typing import Any

import pytest

from taskloom.analysis.outlook import outlook
from taskloom.analysis.processes import Process
from taskloom.analysis.profile import SCHEMA, profile_of

LSTM = {"model": "lstm-tiny", "batch": 4, "batch_slice": 4, "token_slice": 16}


def profile(op_first, edges):
    """Four tasks of one second: of two layers and two chunks of time."""
    return profile_of(
        {
            "schema": SCHEMA, "config": {}, "environment": {}, "ops": [["recurrence", "forward"]],
            "tasks": {"op": [0] * 4, "layer": [None] * 4, "label": [""] * 4, "mean_s": [1.0] * 4, "flop": [1] * 4,
                      "bytes": [0] * 4},
            "op_first": op_first, "nodes": [-1, 0, 1, 2, 3, -1], "edges": sorted([(0, 1), (4, 5), *edges]),
            "crossing": [(5, 0)],
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    "axis",
    [("op_order", "layers", "diagonals", "by diagonals"), ("unit_slice", 32, 8, "8 units"),
     ("fusion", "rows", "all", "fusion all"), ("precision", "fp32", "bf16", "precision bf16")],
    ids=lambda axis: axis[0],
)
def test_each_order_of_ops_and_each_slicing_has_its_own_forecast(make_result, axis):
    name, first, second, shown = axis
    found = {first: profile([0, 1, 2, 3, 4], [(1, 2), (1, 3), (2, 4), (3, 4)]),
             second: profile([0, 1, 3, 4], [(1, 2), (1, 3), (2, 4), (3, 4)])}  # fmt: skip
    processes: list[Any] = []
    profiles: dict[Any, Any] = {}
    for value in (first, second):
        for threads, step_s in ((1, 4.0), (2, 4.0 if value == first else 3.0)):
            settings = {"scheduler": "fork-join", "threads": threads, name: value}
            run_id = len(processes) + 1
            result = make_result([9.0, step_s, step_s], **LSTM, **settings)
            processes.append(Process(run_id, result, settings, ("pair", run_id), "e", run_id))
            if threads == 1:
                profiles[run_id] = found[value]
    ahead = outlook(processes, profiles, (2,))
    assert {one.source.variant[name]: one.fork_join_span_s for one in ahead.forecasts} == {first: 4.0, second: 3.0}
    assert [one.worst_error for one in ahead.forecasts] == [pytest.approx(0.0, abs=1e-6)] * 2
    assert f"fork-join 4x16, {shown}, 1 thread" in [one.source.name for one in ahead.forecasts]
    assert f"slices 4x16, {shown}: no one-thread run has a profile" in outlook(processes, {}, (2,)).missing
