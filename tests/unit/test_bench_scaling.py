"""What bench.scaling makes of its processes."""

from __future__ import annotations

from typing import Any

import pytest

from bench.scaling import row, table

STEPS_S = {"task 1": 8.0, "task 4": 2.0, "fork-join 1": 9.0, "fork-join 4": 3.0}
USEFUL_S = {"task 1": 8.0, "task 4": 2.2, "fork-join 1": 9.0, "fork-join 4": 2.5}  # of a thread, in a step
FORECASTS = {"task": {"grows": {1: 8.8, 4: 1.8}}, "fork-join": {"grows": {1: 8.8, 4: 3.3}}}


def runs() -> list[dict[str, Any]]:
    """Six rounds, each slower than the one before; the first of three steps is warm-up."""
    return [
        {"variant": name, "step_s": [99.0, step_s * (1 + 0.01 * i), step_s * (1 + 0.01 * i)],
         "threads": [{"useful_s": 2 * USEFUL_S[name] * (1 + 0.01 * i)}] * int(name[-1])}
        for i in range(6)
        for name, step_s in STEPS_S.items()
    ]  # fmt: skip


def test_speedup_is_over_one_thread_of_the_same_scheduler_and_the_ratio_is_to_task_on_as_many():
    found = row("fork-join", 4, runs(), 1, FORECASTS)
    assert found["speedup"]["ratio"] == pytest.approx(3.0)
    assert found["over_task"]["ratio"] == pytest.approx(1.5)
    assert found["useful_share"] == pytest.approx(2.5 / 3)
    assert found["work_of_one_thread"] == pytest.approx(4 * 2.5 / 9)
    assert found["forecast_s"] == {"grows": 3.3}


def test_the_table_shows_the_forecast_relative_to_the_measured_step():
    rows = [row(scheduler, count, runs(), 1, FORECASTS) for scheduler in FORECASTS for count in (1, 4)]
    machine = {"cpu_model": "A", "cores": 4, "memory_bytes": 1 << 30, "kernel": "6", "load_average": [0.0]}
    cut = {"batch_slice": 1, "token_slice": 16, "op_order": "diagonals"}
    text = table({"machine": machine, "slices": cut, "at": "2026-11-29", "rows": rows}, "lstm-tiny")
    assert text.startswith("# Scaling, lstm-tiny, slices 1x16, by diagonals, 2026-11-29\n")
    last = text.splitlines()[-1].split("|")
    assert [cell.strip() for cell in (last[1], last[2], last[4], last[6], last[10])] == [
        "fork-join", "4", "3.00", "1.500", "3300.0 (+7%)",
    ]  # fmt: skip
