"""The step program of a configuration, whatever its network."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpt2core.networks import exchanged
from gpt2core.networks.memory import plan
from gpt2core.networks.reverse import add_step
from gpt2core.optimizers.update import update_of
from gpt2core.ranks.row_layout import RowLayout
from gpt2core.spec import schedulers
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Program
from gpt2core.step.tensors import ArenaPlan

if TYPE_CHECKING:
    from gpt2core.ranks.exchange import Exchange

MAX_SLICES = 512  # GPT-2 124M then has 75,000 tasks


def decided(config: TrainConfig) -> TrainConfig:
    """The config with the automatic settings of its step decided: slices, fusion and warm-up."""
    return dataclasses.replace(slicing.resolve(config), fusion=config.fused, warmup=config.warmup_steps)


def build(config: TrainConfig, arenas: Mapping[str, ArenaPlan] | None = None, rank: int = 0) -> Program:
    """One step of the run's mode on the tensors of the network, of one rank. arenas: those of the config and the rank,
    where the config is `decided`. Raises ConfigError if it would be too large.
    """
    if arenas is None:
        config = decided(config)
        arenas = plan(config, rank)
    part = config.part
    exchange: Exchange | None = None
    _check_slices(part, config.grad_accum)
    step = Builder(arenas, part.fused)
    if config.ranks > 1:
        from gpt2core.ranks.exchange import Exchange, RowExchange

        in_turn = schedulers.scheduler(config.scheduler).holds_threads
        layout = exchanged.layout_of(config, rank)
        step.has_fillers = not layout.buckets
        if isinstance(layout, RowLayout):
            exchange = of_rows = RowExchange(layout, in_turn)
            step.matrix_rank, step.rows = layout.rank, of_rows.rows
        else:
            exchange = Exchange(layout, in_turn)
            step.rank = layout.rank
    add_step(step, part, update_of(part, exchange), exchange)
    return step.build(part.phases)


def _check_slices(config: TrainConfig, micros: int) -> None:
    """Raise ConfigError if slices are so small that the graph would be too large to build and prove. config: a rank's
    part; micros: its micro-batches."""
    slices = slicing.count(config)
    if slices > MAX_SLICES:
        accepted = f"a size that cuts the batch into at most {MAX_SLICES} slices, not {slices}"
        raise ConfigError("token_slice", slicing.sizes(config)[1], accepted)
    if micros * slices > MAX_SLICES:
        raise ConfigError(
            "grad_accum", micros, f"at most {MAX_SLICES // slices} micro-batches of {slices} slices"
        )
