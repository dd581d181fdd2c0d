"""Settings of a run that are accepted each by itself, but not beside the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gpt2core.spec import generation, modes, networks, optimizers, schedulers
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import caught, parse_op_threads
from gpt2core.spec.goals import parse_goal

if TYPE_CHECKING:
    from gpt2core.spec.config import TrainConfig


def conflicts(config: TrainConfig, defaults: Mapping[str, Any]) -> Iterator[ConfigError]:
    """The settings that do not fit together, each as an error."""
    if config.seq > config.model.context:
        yield ConfigError("seq", config.seq, f"at most the model's context ({config.model.context})")
    if config.batch_slice is not None and config.batch_slice > config.batch:
        yield ConfigError("batch_slice", config.batch_slice, f"1 to batch ({config.batch})")
    if config.token_slice is not None and config.token_slice > config.seq:
        yield ConfigError("token_slice", config.token_slice, f"1 to seq ({config.seq})")
    if config.warmup is not None and config.warmup >= config.steps:
        yield ConfigError("warmup", config.warmup, f"less than steps ({config.steps})")
    if config.evaluate_every > config.steps:
        yield ConfigError("evaluate_every", config.evaluate_every, f"at most steps ({config.steps})")
    if config.stop_at is not None:
        yield from caught(_check_goal, config)
    yield from modes.conflicts(config, defaults)
    yield from generation.conflicts(config, defaults)
    if config.fusion == "all" and config.needs_whole_gradients:
        yield ConfigError("fusion", "all", "none or rows: grad_accum and grad_clip need all gradients at once")
    yield from optimizers.conflicts(config, defaults)
    yield from networks.conflicts(config, defaults)
    if config.op_threads is not None:
        yield from caught(parse_op_threads, config.op_threads, config.threads)
    if any(getattr(config, name) != defaults[name] for name in ("scheduler", "threads")):  # by default none is loaded
        yield from caught(schedulers.scheduler(config.scheduler).check, config)
    if config.cores is not None and config.threads > len(config.cores) and not config.allow_oversubscription:
        yield ConfigError("threads", config.threads, f"at most the number of cores given ({len(config.cores)})")


def _check_goal(config: TrainConfig) -> None:
    """Raise ConfigError unless the run computes what its goal is about."""
    (metric,) = parse_goal(config.stop_at)
    if "loss" not in config.phases:
        accepted = "the default None, since mode infer computes no loss without score"
        raise ConfigError("stop_at", config.stop_at, accepted)
    if metric not in config.model.metrics:
        found = " or ".join(config.model.metrics)
        raise ConfigError(
            "stop_at", config.stop_at, f"a goal of {found}, since network {config.model.network} has no {metric}"
        )
