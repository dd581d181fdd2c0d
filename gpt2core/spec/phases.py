"""Modes of a run and the phases of a step in each: the one list, for programs, records, results and analyses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True)
class Mode:
    """What the steps of a run compute: their phases in their order, the stage that a worker names meanwhile, and the
    fields by which results agree, which every result of the mode has."""

    phases: tuple[str, ...]
    stage: str
    evidence: tuple[str, ...]

    @property
    def has_gradients(self) -> bool:
        """Whether a step has a reverse pass."""
        return "backward" in self.phases

    @property
    def updates(self) -> bool:
        """Whether a step updates the weights."""
        return "update" in self.phases


MODES: Mapping[str, Mode] = {
    "train": Mode(("data", "forward", "loss", "backward", "update"), "training", ("weights_sha256",)),
    "infer": Mode(("data", "forward", "loss"), "inferring", ("latency", "outputs_sha256", "outputs_sketch")),
}
PHASES = tuple(dict.fromkeys(phase for mode in MODES.values() for phase in mode.phases))
PASSES = ("forward", "backward")  # through the layers: analyses judge each of them by itself


def in_order(phases: Iterable[str]) -> list[str]:
    """Some phases, without repeats, in their order."""
    found = set(phases)
    return [phase for phase in PHASES if phase in found]


def by_phase(values: Mapping[str, Value]) -> dict[str, Value]:
    """The values of the phases that a mapping has, in the order of the phases."""
    return {phase: values[phase] for phase in in_order(values)}
