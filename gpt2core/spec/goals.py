"""A run's goal (`stop_at`): the run ends after the first step whose loss or accuracy reaches it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt2core.spec.errors import ConfigError

LOSS, ACCURACY = METRICS = ("loss", "accuracy")
NOT_REACHED = "the goal was not reached"
ACCEPTED = "loss=X or accuracy=X, with X a number of 0 or more, of accuracy above 0 and at most 1"


def parse_goal(value: object) -> dict[str, float]:
    """A goal from "loss=2.5" or from a mapping with one metric. Raises ConfigError."""
    given = value
    if isinstance(value, str):
        metric, _, number = (part.strip() for part in value.partition("="))
        try:
            given = {metric: float(number)}
        except ValueError:
            raise ConfigError("stop_at", value, ACCEPTED) from None
    if not isinstance(given, Mapping) or len(given) != 1:
        raise ConfigError("stop_at", value, ACCEPTED)
    ((metric, limit),) = given.items()
    if metric not in METRICS:
        raise ConfigError("stop_at", value, "a metric of " + " or ".join(METRICS) + f", not {metric!r}: " + ACCEPTED)
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not is_number or not 0 <= limit <= sys.float_info.max:  # nan compares false
        raise ConfigError("stop_at", value, ACCEPTED)
    if metric == ACCURACY and not 0 < limit <= 1:
        raise ConfigError("stop_at", value, ACCEPTED)
    return {metric: float(limit)}


@dataclass(frozen=True)
class Goal:
    """A loss of at most `value`, or an accuracy of at least `value`."""

    metric: str
    value: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Goal | None:
        """The goal of a configuration as JSON; None: it has none."""
        found = config.get("stop_at")
        return cls(*next(iter(found.items()))) if found else None

    def is_met(self, value: float) -> bool:
        """Whether a step's value reaches the goal. Not-a-number does not."""
        return bool(value <= self.value if self.metric == LOSS else value >= self.value)

    def steps(self, values: Sequence[float]) -> int | None:
        """Number of steps up to the first whose value reaches the goal; None: no step reaches it."""
        return next((number for number, value in enumerate(values, start=1) if self.is_met(value)), None)


def steps_run(reached: int | None, warmup: int, most: int) -> int:
    """Number of steps that a run takes whose goal was reached after so many steps: it times at least one step."""
    return most if reached is None else min(most, max(reached, warmup + 1))
