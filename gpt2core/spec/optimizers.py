"""Registry of optimizers and of learning-rate schedules: plain data, so that nothing else is loaded to check a run.

Each names the settings of TrainConfig that it reads; the settings themselves are declared there, as all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpt2core.spec.errors import ConfigError
from gpt2core.spec.registry import Registry

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig


@dataclass(frozen=True)
class Optimizer:
    """`module`: its `update` implements optimizers/optimizer.py; it is imported when a step is built.

    settings: of TrainConfig, in the order in which its kernel reads them. state: names of its tensors, each laid out as
    the weights are, and for each the setting without which it is not needed; "" for always.
    """

    module: str
    settings: tuple[str, ...]
    state: Mapping[str, str] = field(default_factory=dict)

    def tensors(self, config: TrainConfig) -> tuple[str, ...]:
        """Names of its tensors in a run."""
        return tuple(name for name, needed in self.state.items() if not needed or getattr(config, needed))


@dataclass(frozen=True)
class Schedule:
    """A learning rate over the steps. `factor` of a configuration and a step, counted from 0, multiplies `lr`."""

    settings: tuple[str, ...] = ()
    factor: Callable[[TrainConfig, int], float] | None = None  # None: always 1


def cosine(config: TrainConfig, step: int) -> float:
    """Linear warm-up to 1 in `lr_warmup` steps, then a cosine down to `lr_final`, which the step after the last has.

    Source: Loshchilov & Hutter 2017; torch.optim.lr_scheduler.CosineAnnealingLR.
    """
    if step < config.lr_warmup:
        return (step + 1) / config.lr_warmup
    done = (step - config.lr_warmup) / max(1, config.steps - config.lr_warmup)
    return config.lr_final + (1 - config.lr_final) * (1 + math.cos(math.pi * done)) / 2


def steps(config: TrainConfig, step: int) -> float:
    """`lr_decay` for every `lr_every` steps that are complete, the first time after `lr_hold` steps.

    Source: torch.optim.lr_scheduler.StepLR; Zaremba et al. 2014 (with `lr_hold`).
    """
    hold = config.lr_every if config.lr_hold is None else config.lr_hold
    return config.lr_decay ** (0 if step < hold else 1 + (step - hold) // config.lr_every)


# Optimizer by name.
OPTIMIZERS = {
    "adamw": Optimizer(
        "gpt2core.optimizers.adamw", ("lr", "beta1", "beta2", "eps", "weight_decay"),
        {"first_moment": "", "second_moment": ""},
    ),
    "sgd": Optimizer(
        "gpt2core.optimizers.sgd", ("lr", "momentum", "nesterov", "weight_decay"), {"velocity": "momentum"}
    ),
}  # fmt: skip

# Learning-rate schedule by name.
SCHEDULES = {
    "constant": Schedule(),
    "cosine": Schedule(("lr_warmup", "lr_final"), cosine),
    "steps": Schedule(("lr_decay", "lr_every", "lr_hold"), steps),
}

# With those of other packages, by the setting that chooses.
KNOWN: Mapping[str, Registry[Any]] = {
    "optimizer": Registry("optimizers", OPTIMIZERS), "lr_schedule": Registry("schedules", SCHEDULES)
}  # fmt: skip


def optimizer_of(config: TrainConfig) -> Optimizer:
    found: Optimizer = KNOWN["optimizer"][config.optimizer]
    return found


def schedule_of(config: TrainConfig) -> Schedule:
    found: Schedule = KNOWN["lr_schedule"][config.lr_schedule]
    return found


def learning_rates(config: TrainConfig) -> list[float]:
    """The learning rate of each step; empty if it is `lr` in all."""
    factor = schedule_of(config).factor
    return [] if factor is None else [config.lr * factor(config, step) for step in range(config.steps)]


# Every setting that some optimizer, or some schedule, reads: with the setting that chooses.
READERS = [
    (name, setting)
    for setting, known in (("optimizer", OPTIMIZERS), ("lr_schedule", SCHEDULES))
    for name in dict.fromkeys(name for each in known.values() for name in each.settings)
]


def conflicts(config: TrainConfig, defaults: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Settings that neither the optimizer nor the schedule of a run reads, or that do not fit together."""
    given = vars(config)
    for name, setting in READERS:
        if given[name] is defaults[name] or given[name] == defaults[name]:
            continue
        reads = KNOWN[setting][given[setting]].settings
        if name not in reads:
            accepted = f"the default {defaults[name]!r}, since {setting} {given[setting]} "
            yield ConfigError(name, given[name], accepted + (f"reads {', '.join(reads)}" if reads else "reads none"))
    if config.nesterov and not config.momentum:
        yield ConfigError("nesterov", True, "false without momentum")
    if config.lr_schedule == "cosine" and config.lr_warmup >= config.steps:
        yield ConfigError("lr_warmup", config.lr_warmup, f"less than steps ({config.steps})")
