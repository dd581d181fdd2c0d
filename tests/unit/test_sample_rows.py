"""Samples of a raw result, also of one that is older than some of its lists."""

from __future__ import annotations

from taskloom.server.queue.runs.details import sample_rows

FOUND = {
    "config": {"warmup": 1}, "losses": [3.0, 2.0], "step_s": [0.5, 0.25],
    "phase_s": {"data": [0.1, 0.1], "forward": [0.2, 0.1]},
}  # fmt: skip


def test_steps_of_a_network_with_classes_have_an_accuracy() -> None:
    rows = sample_rows({**FOUND, "accuracy": [0.25, 0.5]})
    assert [row.accuracy for row in rows] == [0.25, 0.5]
    found = [(row.step, row.warmup, row.loss, row.step_s) for row in rows]
    assert found == [(0, True, 3.0, 0.5), (1, False, 2.0, 0.25)]


def test_older_results_have_none() -> None:
    assert [row.accuracy for row in sample_rows(FOUND)] == [None, None]
    assert [row.loss for row in sample_rows({**FOUND, "losses": [], "accuracy": []})] == [None, None]
