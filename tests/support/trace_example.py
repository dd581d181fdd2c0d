"""A trace that is small enough to draw by hand."""

from __future__ import annotations

from gpt2core.spec.config import TrainConfig
from taskloom.analysis.trace import BARRIER, STARVATION

# Three tasks of one layer and a loss of two calls; two threads, two steps. Task 1 waits for task 0 of the other thread.
FOUND = {
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
