"""What a request is expanded to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.schedulers import scheduler
from taskloom.server.queue.experiments.canonical import sha256_of_text, text

# What two runs may differ in and still take as long per step.
NOT_SHAPE = (
    "steps", "warmup", "seed", "data", "distribution", "checkpoint", "save", "trace", "lr", "beta1", "beta2", "eps",
    "weight_decay", "cores",
)  # fmt: skip


def parts_of(spec: Mapping[str, Any]) -> tuple[str, str]:
    """As text, what decides how long a step takes on one node, and the rest."""
    rest = {name: spec[name] for name in NOT_SHAPE if name in spec}
    return text({name: value for name, value in spec.items() if name not in rest}), text(rest)


def shape_of(spec: Mapping[str, Any]) -> str:
    """Equal for configurations whose steps take equally long on one node."""
    return sha256_of_text(parts_of(spec)[0])


@dataclass(frozen=True)
class Variant:
    """One combination of the axes' values: what varies, the whole configuration, and what it needs."""

    values: Mapping[str, Any]
    config: TrainConfig
    spec: Mapping[str, Any]  # the configuration as JSON
    shape: str  # `shape_of` that
    memory_bytes: int

    @property
    def runtime(self) -> str | None:
        """The OpenMP runtime that it needs of its node, if it needs one."""
        needed: str | None = scheduler(self.config.scheduler).runtime_of(self.config)
        return needed

    def cores_needed(self, asked: int | None) -> int:
        if asked is not None:
            return asked
        if self.config.cores is not None:
            return len(self.config.cores)
        return 1 if self.config.allow_oversubscription else self.config.threads


@dataclass(frozen=True)
class Planned:
    """A run to be: its place in the experiment's order. Runs of one block are paired. Repetitions count from 1."""

    position: int
    block: int
    repetition: int
    variant: int


@dataclass(frozen=True)
class Capacity:
    """The largest of what the known nodes have; None: no node is known."""

    cores: int | None = None
    memory_bytes: int | None = None
    runtimes: frozenset[str] | None = None  # labels of OpenMP runtimes that some node has
