"""Describes doubts about a run's samples: flagged steps, and other processes on its cores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from taskloom.analysis.processes import Process

FOREIGN_SHARE = 0.02  # minimum share of the cores' time over the timed steps, and at least FOREIGN_S
FOREIGN_S = 0.05


def disturbed(process: Process) -> bool:
    """Whether other processes used so much of the cores that the trainer's rule marks the run."""
    if process.foreign_share is None:
        return False
    core_s = math.fsum(process.timed_s) * int(process.config["threads"])
    return process.foreign_share > max(FOREIGN_SHARE, FOREIGN_S / core_s)


def doubtful(process: Process) -> bool:
    """Whether any of its samples are doubtful: flagged steps or foreign load."""
    return bool(process.flagged) or disturbed(process)


def marks(processes: Sequence[Process]) -> list[str]:
    """A line for each run with doubtful samples."""
    return [f"run {process.run_id}: {mark}" for process in processes for mark in _marks(process)]


def summary(processes: Sequence[Process]) -> list[str]:
    """The lines of `marks` in one: the number of disturbed runs, and how much; none if no run was disturbed."""
    beside = [process for process in processes if disturbed(process)]
    loads = [process.foreign_share or 0.0 for process in beside]
    flagged = sum(bool(process.flagged) for process in processes)
    count = sum(map(doubtful, processes))
    if not count:
        return []
    reasons = []
    if loads:
        low, high = (f"{100 * load:.0f}" for load in (min(loads), max(loads)))
        reasons.append(f"foreign load {high} %" if low == high else f"foreign load {low} to {high} %")
    if flagged:
        reasons.append(f"flagged steps in {flagged}")
    return [f"{count} of {len(processes)} runs disturbed ({', '.join(reasons)})"]


def _marks(process: Process) -> list[str]:
    found = []
    if process.flagged:
        reasons = Counter(reason for step in process.flagged for reason in step)
        text = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        steps = len(process.result["step_s"]) - process.config["warmup"]
        found.append(f"{len(process.flagged)} of {steps} timed steps are flagged ({text})")
    if disturbed(process):
        found.append(f"foreign load: other processes used {process.foreign_share:.1%} of its cores")
    return found
