"""Traces that are small enough to draw by hand, of one rank and of two."""

from __future__ import annotations

from typing import Any

from gpt2core.spec.config import TrainConfig
from taskloom.analysis.trace import BARRIER, STARVATION

# Three tasks of one layer and a loss of two calls; two threads, two steps. Task 1 waits for task 0 of the other thread.
FOUND: dict[str, Any] = {
    "schema": "taskloom-trace-1",
    "config": TrainConfig(threads=2, batch_slice=1, token_slice=16).to_dict(),
    "environment": {},
    "ops": [["qkv", "forward"], ["attention", "forward"], ["cross_entropy+logits_dinp", "loss"]],
    "tasks": {
        "op": [0, 1, 1, 2], "layer": [0, 0, 0, None], "label": ["s0", "s0", "s1", ""], "mean_s": [1e-6] * 4,
        "flop": [10] * 4, "bytes": [7] * 4,
    },
    "op_first": [0, 1, 3, 4],
    "call_ops": [["qkv", "forward"], ["attention", "forward"], ["cross_entropy", "loss"], ["logits_dinp", "backward"]],
    "calls": {"op": [0, 1, 1, 2, 3], "task": [0, 1, 2, 3, 3]},
    "nodes": [-1, 0, 1, 2, 3, -1],
    "edges": [[0, 1], [1, 2], [1, 3], [2, 4], [3, 4], [4, 5]],
    "crossing": [[5, 0], [4, 1]],
    "cores": [4, 9],
    "first_step": 2,
    "step_end_ns": [10_000, 21_000],
    "threads": [
        {"what": [0, 2, 3, 4, 0, 2, 3, 4], "step": [2, 2, 2, 2, 3, 3, 3, 3],
         "gap_ns": [100, 50, 1200, 0, 200, 50, 2000, 0],
         "duration_ns": [4000, 2000, 1500, 1000, 4000, 2000, 800, 2000]},
        {"what": [STARVATION, 1, BARRIER, 1], "step": [-1, 2, -1, 3],
         "gap_ns": [0, 150, 0, 100], "duration_ns": [4000, 2500, 8000, 2000]},
    ],
    "complete": True,
}  # fmt: skip


def of_rank(number: int, fc_ns: int, begin_ns: int, completed: tuple[int, ...] = ()) -> dict[str, Any]:
    """One of two ranks in two steps of 8 us: it computes, sends what it has computed, waits, and uses what arrives.
    completed: when it did, where a thread waits without holding the task."""
    end = 100 + fc_ns
    spans = [(0, 100, fc_ns), (1, 50, 100), (2, 50, 100 if completed else 7500 - end - 200)]
    at = end + 50 + 100 + 50 + spans[2][2]
    spans.append((3, 7600 - at, 400))
    more = {"completed": {"task": [2], "at_ns": [[at_ns, 8000 + at_ns] for at_ns in completed]}} if completed else {}
    return {
        "ops": [["fc", "backward"], ["gradients_send", "update"], ["gradients_arrived", "update"], ["fold", "update"]],
        "tasks": {
            "op": [0, 1, 2, 3], "layer": [0, None, None, None], "label": ["s0", "fc b0", "fc b0", "fc b0 p0"],
            "mean_s": [1e-6] * 4, "flop": [10] * 4, "bytes": [7] * 4,
        },
        "op_first": [0, 1, 2, 3, 4],
        "call_ops": [["fc", "backward"], ["gradients_send", "update"], ["gradients_arrived", "update"],
                     ["fold", "update"]],
        "calls": {"op": [0, 1, 2, 3], "task": [0, 1, 2, 3]},
        "nodes": [-1, 0, 1, 2, 3, -1], "edges": [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]], "crossing": [[5, 0]],
        "cores": [number], "first_step": 1, "step_end_ns": [8000, 16_000], "flagged": [[], []], "complete": True,
        "threads": [{"what": [0, 1, 2, 3] * 2, "step": [1] * 4 + [2] * 4, "gap_ns": [gap for _, gap, _ in spans] * 2,
                     "duration_ns": [ns for *_, ns in spans] * 2}],
        "begin_ns": begin_ns, "sends": {"task": [1], "to": [1 - number], "bytes": [4096 * (number + 1)]}, **more,
    }  # fmt: skip


# Rank 1's steps begin 300 ns after those of rank 0.
OF_RANKS: dict[str, Any] = {
    **{name: FOUND[name] for name in ("schema", "environment")},
    "config": TrainConfig(threads=1, ranks=2, batch=4, batch_slice=1, token_slice=16, fusion="rows").to_dict(),
    **of_rank(0, 3000, 0, (5900,)), "ranks": [of_rank(1, 5000, 300, (5550,))],
}  # fmt: skip
HELD = {**OF_RANKS, **of_rank(0, 3000, 0), "ranks": [of_rank(1, 5000, 300)]}
del HELD["completed"]
