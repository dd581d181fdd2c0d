"""What each mode of a run computes, and the settings that a mode does not read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpt2core.spec import generation, optimizers, schedulers
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.phases import MODES

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig

NO_UPDATE, NO_GRADIENTS = "mode infer updates no weight", "mode infer computes no gradient"
# Settings that one mode does not read, by mode, and why.
UNREAD: Mapping[str, Mapping[str, str]] = {
    "train": {
        **dict.fromkeys(("logits", "score"), "mode train computes the loss from all logits"),
        **dict.fromkeys(generation.SETTINGS, "mode train generates nothing"),
    },
    "infer": {
        **dict.fromkeys(("optimizer", "lr_schedule", *(name for name, _ in optimizers.READERS)), NO_UPDATE),
        **dict.fromkeys(("grad_accum", "grad_clip", "ranks"), NO_GRADIENTS),
        **dict.fromkeys(("save", "evaluate_every"), NO_UPDATE),
    },
}


def phases(mode: str, score: bool) -> tuple[str, ...]:
    """The phases of a step in their order. Inference computes a loss only to score."""
    return tuple(phase for phase in MODES[mode] if mode == "train" or score or phase != "loss")


def fusion(config: TrainConfig) -> str:
    """The kernels that share a task by default. With sync phase, updates are a separate phase; op_threads names single
    ops."""
    if config.op_threads:
        return "none"
    if config.mode == "infer":
        return "rows"
    by_graph = schedulers.scheduler(config.scheduler).order == "graph"
    return "rows" if config.needs_whole_gradients or (by_graph and config.sync == "phase") else "all"


def in_mode(config: TrainConfig, mode: str, defaults: Mapping[str, Any]) -> TrainConfig:
    """The run in another mode, with defaults for the settings that either mode does not read."""
    if config.mode == mode:
        return config
    unread = {name: defaults[name] for names in UNREAD.values() for name in names} | {"split": None, "stop_at": None}
    fusion = None if config.fusion == "all" else config.fusion
    return dataclasses.replace(config, mode=mode, fusion=fusion, **unread)


def evaluation(config: TrainConfig, defaults: Mapping[str, Any]) -> TrainConfig:
    """What a training run's evaluations repeat: inference of one batch, with its loss."""
    own = in_mode(config, "infer", defaults)
    return dataclasses.replace(
        own, score=True, split=config.read_split, steps=1, warmup=0, trace=None, fusion=None, op_threads=None
    )


def conflicts(config: TrainConfig, defaults: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Settings that the run's mode does not read."""
    given = vars(config)
    for name, why in UNREAD[config.mode].items():
        if given[name] is not defaults[name] and given[name] != defaults[name]:
            yield ConfigError(name, given[name], f"the default {defaults[name]!r}, since {why}")
    if config.split is not None and config.read_split is None:
        accepted = "the default None without evaluate_every, since mode train trains on the images for training"
        yield ConfigError("split", config.split, accepted)
    if config.mode == "infer" and config.fusion == "all":
        yield ConfigError("fusion", "all", f"none or rows, since {NO_GRADIENTS}")
