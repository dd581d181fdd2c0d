"""What each mode of a run computes, and the settings that a mode does not read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpt2core.spec import generation, optimizers
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.phases import MODES, Mode

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig

OF_UPDATES = ("optimizer", "lr_schedule", *(name for name, _ in optimizers.READERS), "save", "evaluate_every")
OF_BOTH = ("grad_clip", "ranks", "parallel")  # of gradients and of updates


def _unread(name: str, mode: Mode) -> dict[str, str]:
    """Settings that the mode of this name does not read, and why."""
    found = {} if mode.updates else dict.fromkeys((*OF_UPDATES, *OF_BOTH), f"mode {name} updates no weight")
    if not mode.has_gradients:
        return found | dict.fromkeys(("grad_accum", *OF_BOTH), f"mode {name} computes no gradient")
    found |= dict.fromkeys(("logits", "score"), f"mode {name} computes the loss from all logits")
    return found | dict.fromkeys(generation.SETTINGS, f"mode {name} generates nothing")


UNREAD: Mapping[str, Mapping[str, str]] = {name: _unread(name, mode) for name, mode in MODES.items()}


def phases(mode: str, score: bool) -> tuple[str, ...]:
    """The phases of a step in their order. Without gradients a loss is computed only to score."""
    of = MODES[mode]
    return tuple(phase for phase in of.phases if of.has_gradients or score or phase != "loss")


def read_split(config: TrainConfig) -> str | None:
    """The split that inference or evaluations read; None: a run that only trains."""
    if not config.updates:
        return config.split or "train"
    return (config.split or "val") if config.evaluate_every else None


def fusion(config: TrainConfig) -> str:
    """The kernels that share a task by default. With sync phase, updates are a separate phase, under every scheduler,
    so that all compute the same tasks; op_threads names single ops."""
    if config.op_threads:
        return "none"
    if not config.updates:
        return "rows"
    return "rows" if config.needs_whole_gradients or config.sync == "phase" else "all"


def in_mode(config: TrainConfig, mode: str, defaults: Mapping[str, Any]) -> TrainConfig:
    """The run in another mode, with defaults for the settings that either mode does not read."""
    if config.mode == mode:
        return config
    unread = {name: defaults[name] for names in UNREAD.values() for name in names} | {"split": None, "stop_at": None}
    fusion = None if config.fusion == "all" else config.fusion
    return dataclasses.replace(config, mode=mode, fusion=fusion, **unread)


def conflicts(config: TrainConfig, defaults: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Settings that the run's mode does not read."""
    given = vars(config)
    for name, why in UNREAD[config.mode].items():
        if given[name] is not defaults[name] and given[name] != defaults[name]:
            yield ConfigError(name, given[name], f"the default {defaults[name]!r}, since {why}")
    if config.split is not None and config.read_split is None:
        accepted = "the default None without evaluate_every, since mode train trains on the images for training"
        yield ConfigError("split", config.split, accepted)
    if config.fusion == "all" and not config.updates:
        yield ConfigError("fusion", "all", f"none or rows, since mode {config.mode} updates no weight")
