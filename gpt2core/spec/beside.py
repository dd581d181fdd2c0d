"""The step that a run may have beside its own, in the same memory: of its evaluations, or the one before its steps that
reads the whole prompt."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from gpt2core.spec import modes
from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.spec.roles import with_role


class PromptConfig(TrainConfig):
    """The settings of the step that reads the prompt and chooses the first token. The run's steps follow it."""

    reads_prompt: ClassVar[bool] = True


def step_beside(config: TrainConfig) -> TrainConfig | None:
    """The settings of that step; None: the run has none."""
    if config.evaluate_every:
        return _evaluation(config.part)
    return _prompt(config) if config.generate and not config.reads_prompt else None


def _evaluation(config: TrainConfig) -> TrainConfig:
    """What evaluations repeat: inference of one batch, with its loss."""
    return dataclasses.replace(
        modes.in_mode(config, "infer", DEFAULTS), score=True, split=config.read_split, steps=1, warmup=0, trace=None,
        fusion=None, op_threads=None,
    )  # fmt: skip


def _prompt(config: TrainConfig) -> PromptConfig:
    """All of the prompt at once. Its slices are automatic, and all threads take part."""
    defaults = {name: DEFAULTS[name] for name in (*with_role("slices", "output"), "op_threads")}
    own = {"fusion": config.fused, "seq": len(config.prompt or ()), "steps": 1, "warmup": 0}
    return PromptConfig(**vars(config) | defaults | own)
