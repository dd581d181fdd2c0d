"""One result for analyses: the measurements of one fresh process. The sample consists of processes, not of their
steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from gpt2core.spec import schedulers
from gpt2core.spec.result import (
    communication_per_step,
    instructions_per_step,
    median,
    phase_medians_s,
    tokens_per_step,
    useful_s,
)
from gpt2core.spec.series import LATER_SETTINGS

T = TypeVar("T")


def canary_s(result: Mapping[str, Any]) -> float | None:
    """Time of the canary (gpt2core/run/canary.py): the lower quartile of its repetitions, so that a disturbance before
    or after the steps does not count. None if the result has none."""
    times = sorted(float(s) for s in (result.get("canary") or {}).get("times_s") or [])
    return times[len(times) // 4] if times else None


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts that a process shares with its repetitions. Readers of many processes use one object for equal facts, so
    that derived values are computed once."""

    variant: Mapping[str, Any]
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    losses: Sequence[float]
    weights_sha256: str  # "" without update
    outputs_sha256: str = ""  # "" of training
    outputs_sketch: Sequence[float] = ()
    _followed: dict[Callable[[Facts], Any], Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, result: Mapping[str, Any], variant: Mapping[str, Any]) -> Facts:
        """Facts of a result. Raises KeyError if the result lacks one."""
        return cls(
            variant,
            {**LATER_SETTINGS, **result["config"]},
            result["environment"],
            result["losses"],
            str(result.get("weights_sha256") or ""),
            str(result.get("outputs_sha256") or ""),
            result.get("outputs_sketch") or (),
        )

    def once(self, follows: Callable[[Facts], T]) -> T:
        """Result of `follows`, a function of these facts only, computed once."""
        if follows not in self._followed:
            self._followed[follows] = follows(self)
        found: T = self._followed[follows]
        return found


@dataclass(frozen=True)
class Process:
    """A TrainResult as JSON, or a server's digest of it (`facts`, and the rest as `result`), and its place in the
    experiment's design.

    `pair` is equal for processes that ran in one block on one node and its cores; None: paired with none. `occasion`
    is equal for processes of one experiment on one node, whose blocks ran in the order of `block`; None: unknown.
    """

    run_id: int
    result: Mapping[str, Any]
    variant: Mapping[str, Any] = field(default_factory=dict)
    pair: Hashable = None
    occasion: Hashable = None
    block: int = 0
    stop_rule: bool = False  # the number of processes was not fixed beforehand, or is not complete
    leave_out_flagged: bool = False  # the declared rule for flagged steps
    experiment_id: int | None = None
    shared: Facts | None = None  # None: the facts of the result

    @cached_property
    def facts(self) -> Facts:
        return self.shared or Facts.of(self.result, self.variant)

    @property
    def config(self) -> Mapping[str, Any]:
        return self.facts.config

    @property
    def environment(self) -> Mapping[str, Any]:
        return self.facts.environment

    @property
    def losses(self) -> Sequence[float]:
        return self.facts.losses

    @property
    def mode(self) -> str:
        return str(self.config["mode"])

    @property
    def weights_sha256(self) -> str:
        return self.facts.weights_sha256

    @cached_property
    def timed_s(self) -> tuple[float, ...]:
        """The steps after warm-up. The rule may exclude flagged ones, if others remain."""
        timed = self.after_warmup_s
        if not self.leave_out_flagged:
            return timed
        flagged = (self.result.get("flagged") or [[]] * len(self.result["step_s"]))[self.config["warmup"] :]
        return tuple(s for s, reasons in zip(timed, flagged, strict=True) if not reasons) or timed

    @cached_property
    def after_warmup_s(self) -> tuple[float, ...]:
        """The steps after warm-up, flagged ones too."""
        return tuple(float(s) for s in self.result["step_s"][self.config["warmup"] :])

    @cached_property
    def flagged(self) -> Sequence[Sequence[str]]:
        """The reasons of each timed step that is flagged."""
        return [step for step in (self.result.get("flagged") or [])[self.config["warmup"] :] if step]

    @cached_property
    def foreign_share(self) -> float | None:
        """The share of its cores' time that other processes used during its timed steps; None if unknown."""
        found = (self.result.get("validity") or {}).get("foreign")
        if not found or not found.get("cores"):
            return None
        return float(found["foreign_s"]) / (math.fsum(self.after_warmup_s) * len(found["cores"]))

    @cached_property
    def median_step_s(self) -> float:
        return median(self.timed_s)

    @cached_property
    def canary_s(self) -> float | None:
        return canary_s(self.result)

    @property
    def canary_sha256(self) -> str | None:
        """Hash of the canary's work; None if the result has no canary."""
        return None if self.canary_s is None else str(self.result["canary"].get("sha256"))

    @cached_property
    def instructions(self) -> tuple[float | None, str]:
        """Instructions of a timed step, or None and the reason."""
        kept = self.result.get("instructions_per_step")
        return instructions_per_step(self.result) if kept is None else (kept[0], kept[1])

    @cached_property
    def communication(self) -> Sequence[Mapping[str, float]]:
        """What each rank's exchanges took in the mean of a timed step; empty for one rank."""
        kept: Sequence[Mapping[str, float]] | None = self.result.get("communication_per_step")
        return communication_per_step(self.result) if kept is None else kept

    @cached_property
    def useful_s(self) -> Sequence[float]:
        """Seconds in tasks of each thread of all ranks over the timed steps; empty if the result lacks one."""
        return self.result.get("useful_s") or useful_s(self.result) or ()

    @property
    def phases_overlap(self) -> bool:
        facts = schedulers.facts(self.config["scheduler"])
        return facts is not None and facts.overlaps(self.config["sync"])

    @cached_property
    def median_phase_s(self) -> Mapping[str, float]:
        """The median of each phase over the steps after warm-up.

        If phases overlap (task with sync step or none), a phase's span contains tasks of other phases. The value is
        then the time of the phase's own tasks divided by the threads, without waiting.
        """
        return self._phase_medians_s("share" if self.phases_overlap else "span")

    @cached_property
    def busy_phase_s(self) -> Mapping[str, float]:
        """The median time of each phase's own tasks, over all threads."""
        return self._phase_medians_s("busy")

    def _phase_medians_s(self, kind: str) -> Mapping[str, float]:
        kept = self.result.get("phase_medians_s")
        return {phase: float(s) for phase, s in (kept or phase_medians_s(self.result))[kind].items()}

    @property
    def tokens(self) -> int:
        """Tokens trained on in the timed steps."""
        return tokens_per_step(self.config) * len(self.timed_s)


def distinct(processes: Iterable[Process]) -> list[Facts]:
    """The distinct facts of processes, in their order."""
    return list(dict.fromkeys(process.facts for process in processes))
