"""What a run that generates does before its steps: it reads the whole prompt in one step of its own."""

from __future__ import annotations

from typing import ClassVar

from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.spec.roles import with_role


class PromptConfig(TrainConfig):
    """The settings of the step that reads the prompt and chooses the first token. The run's steps follow it, in the
    same memory."""

    reads_prompt: ClassVar[bool] = True


def prompt_config(config: TrainConfig) -> PromptConfig | None:
    """The step that a run begins with; None: it generates nothing. Its slices are automatic, and all threads take part.
    """
    if not config.generate or config.reads_prompt:
        return None
    defaults = {name: DEFAULTS[name] for name in (*with_role("slices", "output"), "op_threads")}
    own = {"fusion": config.fused, "seq": len(config.prompt or ()), "steps": 1, "warmup": 0}
    return PromptConfig(**vars(config) | defaults | own)
