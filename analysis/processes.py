"""One result as analysis sees it: what one fresh process measured. Processes, not their steps, are what is sampled."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpt2core.spec import schedulers
from gpt2core.spec.config import PHASES
from gpt2core.spec.result import instructions_per_step, median, tokens_per_step

LATER_SETTINGS = {"grad_accum": 1, "grad_clip": 0.0}  # what a result did that is older than these settings


@dataclass(frozen=True)
class Process:
    """A TrainResult as JSON gives it, and where it stands in its experiment's design.

    `pair` is equal for processes that ran in one block on one node and its cores; None: paired with none. `occasion`
    is equal for processes of one experiment on one node, whose blocks ran in the order of `block`; None: unknown.
    """

    run_id: int
    result: Mapping[str, Any]
    variant: Mapping[str, Any] = field(default_factory=dict)
    pair: Hashable = None
    occasion: Hashable = None
    block: int = 0
    stop_rule: bool = False  # how many processes there are was decided by looking at them
    leave_out_flagged: bool = False  # the rule that was declared for steps that the trainer flagged

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return {**LATER_SETTINGS, **self.result["config"]}

    @property
    def environment(self) -> Mapping[str, Any]:
        environment: Mapping[str, Any] = self.result["environment"]
        return environment

    @property
    def losses(self) -> Sequence[float]:
        losses: Sequence[float] = self.result["losses"]
        return losses

    @property
    def weights_sha256(self) -> str:
        return str(self.result["weights_sha256"])

    @cached_property
    def timed_s(self) -> tuple[float, ...]:
        """The steps after warm-up; without those that are flagged, if that is the rule and others are left."""
        timed = tuple(float(s) for s in self.result["step_s"][self.config["warmup"] :])
        if not self.leave_out_flagged:
            return timed
        flagged = (self.result.get("flagged") or [[]] * len(self.result["step_s"]))[self.config["warmup"] :]
        return tuple(s for s, reasons in zip(timed, flagged, strict=True) if not reasons) or timed

    @cached_property
    def median_step_s(self) -> float:
        return median(self.timed_s)

    @cached_property
    def canary_s(self) -> float | None:
        """Time of the frozen work beside the steps (gpt2core/run/canary.py); None: the result has none."""
        times = (self.result.get("canary") or {}).get("times_s") or []
        return median([float(s) for s in times]) if times else None

    @property
    def canary_sha256(self) -> str | None:
        """Which frozen work that was; None: the result has none."""
        return None if self.canary_s is None else str(self.result["canary"].get("sha256"))

    @cached_property
    def instructions(self) -> tuple[float | None, str]:
        """Instructions of a timed step, or None and why; a result's digest holds just that."""
        kept = self.result.get("instructions_per_step")
        return instructions_per_step(self.result) if kept is None else (kept[0], kept[1])

    @property
    def phases_overlap(self) -> bool:
        facts = schedulers.facts(self.config["scheduler"])
        return facts is not None and facts.overlaps(self.config["sync"])

    def timed_phase_s(self, phase: str) -> list[float]:
        """A phase in each step after warm-up.

        Where phases overlap (task with sync step or none) a phase's span holds tasks of the others too: there it is
        the time of the phase's own tasks divided by the threads, which leaves the waiting out.
        """
        warmup = self.config["warmup"]
        if self.phases_overlap:
            threads = int(self.config["threads"])
            return [busy_s / threads for busy_s in self.result["phase_busy_s"][phase][warmup:]]
        return [float(span_s) for span_s in self.result["phase_s"][phase][warmup:]]

    @cached_property
    def median_phase_s(self) -> Mapping[str, float]:
        """The median of each phase over the steps after warm-up: see timed_phase_s."""
        return {phase: median(self.timed_phase_s(phase)) for phase in PHASES}

    @property
    def tokens(self) -> int:
        """Tokens trained on in the timed steps."""
        return tokens_per_step(self.config) * len(self.timed_s)
