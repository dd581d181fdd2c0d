"""The step that reads the whole prompt of a run that generates, before the run's steps and in their memory.

What the steps need of it lies at the same place in both plans (networks/generation.py): keys and values or the state,
and the tokens. All else of its memory is theirs when it has ended.
"""

from __future__ import annotations

import threading

from gpt2core.gemm.table import Products
from gpt2core.run.execute import Stages
from gpt2core.run.prepare import RunPlan, silent
from gpt2core.schedulers import dispatch
from gpt2core.step.memory import Memory


def read_prompt(planned: RunPlan, arenas: Memory, products: Products, stop: threading.Event | None) -> float:
    """Read the prompt and choose the first token; the seconds that it took. planned: that of the prompt; arenas: the
    run's."""
    memory = Memory(planned.arenas, arenas.arenas)
    bound = dispatch.bind(planned.program, memory, planned.config.threads, products)
    stages = Stages(planned, memory, bound, silent, stop, timed=False)
    stages.stage(0, 1)
    arenas.arrays["control"][...] = 0  # the first step's may lie where the prompt's scratch was
    return float(stages.measured.step_times(1)[0])
