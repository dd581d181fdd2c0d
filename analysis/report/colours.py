"""Which colour of tokens.py each scheduler, phase, op and kind of memory has, in all figures of a report."""

from __future__ import annotations

import itertools

from gpt2core.spec.optimizers import OPTIMIZERS
from gpt2core.spec.phases import PHASES
from gpt2core.spec.schedulers import SCHEDULERS
from taskloom.analysis.report.svg import INK

SCHEDULER = {name: f"var(--{name})" for name in ("serial", "fork-join", "task")}
PHASE = {phase: f"var(--{phase})" for phase in PHASES}
TIME = {"useful": "var(--useful)", "no work": "var(--no-work)", "at barriers": "var(--barrier)",
        "scheduling": "var(--scheduling)"}  # fmt: skip
OTHERS = tuple(f"var(--series-{number})" for number in range(1, 5))  # of other schedulers, in the registry's order
ARENA = ("var(--task)", OTHERS[3], OTHERS[1], OTHERS[2], OTHERS[0], "var(--loss)")
MODES = {"train": "var(--task)", "infer": OTHERS[1]}


def colour_of(scheduler: str) -> str:
    """The colour of a scheduler's lines; black for one of another version."""
    others = [name for name in SCHEDULERS if name not in SCHEDULER]
    known = SCHEDULER | dict(zip(others, itertools.cycle(OTHERS), strict=False))
    return known.get(scheduler, INK)


def op_colour(op: str) -> str:
    """One colour for a kind of op, forward or backward, in every report."""
    for names, colour in (
        (("attention", "cross_attention", "pointer_sum"), "attention"),
        (("qkv", "projection", "fc", "logits", "gates_in", "recurrence", "combine", "match", "conv"), "products"),
        (("gelu", "relu", "tanh", "residual", "layernorm", "pool"), "elementwise"),
        ((*OPTIMIZERS, "update"), "update-op"),
        (("cross_entropy", "pointer_loss", "mean_loss", "mean_accuracy", "end_at_goal"), "loss-op"),
    ):
        if op.startswith(names):
            return f"var(--{colour})"
    return "var(--other-op)"


OP_KINDS = (
    ("matrix products", "var(--products)"), ("attention", "var(--attention)"),
    ("elementwise", "var(--elementwise)"), ("loss", "var(--loss-op)"), ("update", "var(--update-op)"),
    ("other", "var(--other-op)"),
)  # fmt: skip
