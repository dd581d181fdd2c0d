"""Runs of a program under a scheduler, through the interface that runs and METG use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from gpt2core.measure.tracing import Record, new_record
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.scheduler import Job, Stage
from gpt2core.spec import schedulers
from gpt2core.step import graph
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Program


def run_program(
    step: Program,
    memory: Memory,
    scheduler: str,
    cores: Sequence[int],
    steps: int,
    sync: str = "step",
    tasks: graph.Graph | None = None,
    watch: Callable[[], None] = lambda: None,
    inside: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
    events: int = 0,
    **options: Any,
) -> Record:
    """Run all steps and return the record. tasks: a graph instead of the program's. events: see new_record."""
    if tasks is None:
        tasks = graph.build(step, sync)
        graph.validate(step, tasks)
    bound = dispatch.bind(step, memory, len(cores))
    record = new_record(
        len(cores), steps, 0, len(bound.kinds), events, later=len(bound.waits), moments=len(bound.later)
    )
    control = memory.arrays["control"].view(np.int64)
    job = Job(step, tasks, bound, control, tuple(cores), options)
    cost_s = [1.0] * len(step.tasks)
    schedulers.scheduler(scheduler).prepare(job).run(Stage(0, steps, record, cost_s, watch, inside))
    return record
