"""Describe doubts about a run's samples: flagged steps, and other processes on its cores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from taskloom.analysis.processes import Process

FOREIGN_SHARE = 0.02  # minimum share of the cores' time over the timed steps, and at least FOREIGN_S
FOREIGN_S = 0.05


def foreign_share(process: Process) -> float | None:
    """The share of a run's core time that other processes used during its timed steps; None if unknown."""
    found = (process.result.get("validity") or {}).get("foreign")
    if not found or not found.get("cores"):
        return None
    return float(found["foreign_s"]) / (math.fsum(process.timed_s) * len(found["cores"]))


def disturbed(process: Process) -> bool:
    """Whether other processes used so much of the cores that the trainer's rule marks the run."""
    share, cores = foreign_share(process), int(process.config["threads"])
    return share is not None and share > max(FOREIGN_SHARE, FOREIGN_S / (math.fsum(process.timed_s) * cores))


def marks(processes: Sequence[Process]) -> list[str]:
    """A line for each run with doubtful samples."""
    return [f"run {process.run_id}: {mark}" for process in processes for mark in _marks(process)]


def summary(processes: Sequence[Process]) -> list[str]:
    """The lines of `marks` in one: how many runs were disturbed, and how much; none if no run was."""
    loads = [foreign_share(process) or 0.0 for process in processes if disturbed(process)]
    flagged = sum(bool(_flagged(process)) for process in processes)
    count = sum(disturbed(process) or bool(_flagged(process)) for process in processes)
    if not count:
        return []
    reasons = []
    if loads:
        low, high = f"{min(loads):.0%}".removesuffix("%"), f"{max(loads):.0%}".removesuffix("%")
        reasons.append(f"foreign load {high} %" if low == high else f"foreign load {low} to {high} %")
    if flagged:
        reasons.append(f"flagged steps in {flagged}")
    return [f"{count} of {len(processes)} runs disturbed ({', '.join(reasons)})"]


def _flagged(process: Process) -> list[list[str]]:
    """The reasons of each timed step that is flagged."""
    return [step for step in (process.result.get("flagged") or [])[process.config["warmup"] :] if step]


def _marks(process: Process) -> list[str]:
    found = []
    flagged = _flagged(process)
    if flagged:
        reasons = Counter(reason for step in flagged for reason in step)
        told = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
        steps = len(process.result["step_s"]) - process.config["warmup"]
        found.append(f"{len(flagged)} of {steps} timed steps are flagged ({told})")
    if disturbed(process):
        found.append(f"foreign load: other processes used {foreign_share(process):.1%} of its cores")
    return found
