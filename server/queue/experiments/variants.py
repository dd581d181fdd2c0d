"""Variants and planned runs of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.roles import with_role
from gpt2core.spec.schedulers import scheduler
from taskloom.server.queue.experiments.canonical import sha256

# Settings that do not affect the time of a step.
NOT_SHAPE = frozenset(with_role("values", "seed", "place", "length", "output"))


def shaping(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that determine the time of a step on one node."""
    return {name: value for name, value in spec.items() if name not in NOT_SHAPE}


def shape_of(spec: Mapping[str, Any], nodes: int = 1) -> str:
    """SHA-256 of what determines the time of a step on a kind of node: the settings, and the number of nodes."""
    return sha256(shaping(spec) | ({"nodes": nodes} if nodes > 1 else {}))


@dataclass(frozen=True)
class Variant:
    """One combination of the axes' values, its complete configuration, and its requirements."""

    values: Mapping[str, Any]
    config: TrainConfig
    spec: Mapping[str, Any]  # the configuration as JSON
    shape: str  # `shape_of` the spec and the nodes
    memory_bytes: int  # on each of its nodes
    nodes: int = 1

    @property
    def runtime(self) -> str | None:
        """The OpenMP runtime that its node must have, if any."""
        needed: str | None = scheduler(self.config.scheduler).runtime_of(self.config)
        return needed

    def cores_needed(self, cores: int | None) -> int:
        """Cores that it needs on each of its nodes. cores: those that the request requires."""
        if cores is not None:
            return cores
        if self.config.cores is not None:
            return len(self.config.cores)
        return 1 if self.config.allow_oversubscription else self.config.total_threads // self.nodes


@dataclass(frozen=True)
class Planned:
    """A planned run: its position in the experiment's order, its block, its repetition (from 1), the index of its
    variant, and its role in a tuning. Runs of one block are paired."""

    position: int
    block: int
    repetition: int
    variant: int
    role: str | None = None
