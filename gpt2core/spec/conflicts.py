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
    if config.seq < config.model.shortest:
        accepted = f"{config.model.shortest} or more, since network {config.model.network} has no shorter samples"
        yield ConfigError("seq", config.seq, accepted)
    if config.ranks > 1:
        yield from of_ranks(config)
    if config.batch_slice is not None and config.batch_slice > max(config.batch // config.batch_ranks, 1):
        whole = f"batch ({config.batch})" + (f" / ranks ({config.ranks})" if config.batch_ranks > 1 else "")
        yield ConfigError("batch_slice", config.batch_slice, f"1 to {whole}")
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
        accepted = "none or rows: grad_accum, grad_clip and ranks that divide the batch need all gradients at once"
        yield ConfigError("fusion", "all", accepted)
    yield from optimizers.conflicts(config, defaults)
    yield from networks.conflicts(config, defaults)
    if config.op_threads is not None:
        yield from caught(parse_op_threads, config.op_threads, config.threads)
    if any(getattr(config, name) != defaults[name] for name in ("scheduler", "threads")):  # by default none is loaded
        yield from caught(schedulers.scheduler(config.scheduler).check, config)
    if config.cores is not None and config.total_threads > len(config.cores) and not config.allow_oversubscription:
        most = f"at most the number of cores given ({len(config.cores)})"
        if config.ranks > len(config.cores):
            yield ConfigError("ranks", config.ranks, most)
        else:
            each = f" / ranks ({config.ranks})" if config.ranks > 1 else ""
            yield ConfigError("threads", config.threads, most + each)


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


MOST_PARTS = 4096  # of a step, over all micro-batches and ranks
# Settings that several ranks do not support.
OF_ONE_RANK = {"carry_state": "a rank's part of a batch is a micro-batch, which carries no state"}


def of_ranks(config: TrainConfig) -> Iterator[ConfigError]:
    """Settings that do not fit several ranks."""
    if config.batch % config.batch_ranks:
        yield ConfigError("ranks", config.ranks, f"a divisor of batch ({config.batch})")
    if config.grad_accum * config.batch_ranks > MOST_PARTS:
        yield ConfigError("ranks", config.ranks, f"at most {MOST_PARTS} / grad_accum ({config.grad_accum})")
    for name, why in OF_ONE_RANK.items():
        value, default = getattr(config, name), type(config).__dataclass_fields__[name].default
        if value != default:
            yield ConfigError(name, value, f"the default {default!r} with ranks ({config.ranks}), since {why}")
