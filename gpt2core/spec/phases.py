"""Modes of a run and the phases of a step in each: the one list, for programs, records, results and analyses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = TypeVar("Value")

# Phases of each mode, in their order.
MODES = {
    "train": ("data", "forward", "loss", "backward", "update"),
    "infer": ("data", "forward", "loss"),
}
PHASES = tuple(dict.fromkeys(phase for phases in MODES.values() for phase in phases))


def in_order(phases: Iterable[str]) -> list[str]:
    """Some phases, without repeats, in their order."""
    found = set(phases)
    return [phase for phase in PHASES if phase in found]


def by_phase(values: Mapping[str, Value]) -> dict[str, Value]:
    """The values of the phases that a mapping has, in the order of the phases."""
    return {phase: values[phase] for phase in in_order(values)}
