"""What the ranks of a run exchange, whatever its network. No Numba and no NumPy: servers size runs with it."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable

from gpt2core.networks.lifetimes import no_update, sketch, small
from gpt2core.networks.network import network_of
from gpt2core.networks.reverse import Training
from gpt2core.ranks.layout import Layout, layout
from gpt2core.ranks.row_layout import RowLayout, Rows
from gpt2core.spec.config import TrainConfig
from gpt2core.step.builder import Builder, no_messages
from gpt2core.step.grid import F32, Range
from gpt2core.step.ops import Tensor
from gpt2core.step.parameters import Parameter
from gpt2core.step.rank import Rank, Way
from gpt2core.step.tensors import plan_arena


def layout_of(config: TrainConfig, rank: int) -> Layout:
    """The layout of one rank of a run of several."""
    me, limited = Rank(rank, config.ranks), config.grad_clip > 0
    if config.matrix_ranks == 1:
        return layout(_parameters(small(config.part)), me, limited)
    part = small(config)
    kinds = tuple(each._replace(times=each.times * config.grad_accum) for each in _rows(part))
    folded = _parameters(part) if config.batch_ranks > 1 else ()
    divided = _divided(part) + tuple(span for each in folded for span in each.spans)
    buckets = layout(folded, me, keeps_shards=False).buckets
    return RowLayout(me, buckets, limited, config=config, exchanged=kinds, divided=divided)


@functools.lru_cache(maxsize=16)
def _parameters(config: TrainConfig) -> tuple[Parameter, ...]:
    """The parameters whose gradients ranks fold, in the order in which these become complete. A sketch has no blocks.
    """
    return tuple(_sketched(config).complete)


@functools.lru_cache(maxsize=16)
def _divided(config: TrainConfig) -> tuple[Range, ...]:
    """Elements of a rank's weights of which no other rank has any: those tensors that one rank alone has in another
    shape."""
    mine, whole = (network_of(each).tensors(each)["weights"] for each in (config, dataclasses.replace(config, ranks=1)))
    places = zip(mine, whole, plan_arena(mine).offsets, strict=True)
    return tuple((at // F32, at // F32 + spec.size) for spec, one, at in places if spec.shape != one.shape)


@functools.lru_cache(maxsize=16)
def _rows(config: TrainConfig) -> tuple[Rows, ...]:
    """The exchanges of rows in a micro-batch, in the order in which each kind begins."""
    found: Counter[tuple[str, int, Way]] = Counter()

    def note(
        step: Builder, name: str, _phase: str, _layer: int | None, own: Tensor, _others: Tensor, way: Way = "sum", /
    ) -> None:
        found[name, step.shape(own)[1], way] += 1

    _sketched(config, note)
    return tuple(Rows(kind, width, times, way) for (kind, width, way), times in found.items())


def _sketched(config: TrainConfig, rows: Callable[..., None] = no_messages) -> Training:
    """The step of a configuration, without kernels and tiles. rows: see Builder."""
    step = sketch(config)
    step.rows = rows
    training = Training(step, config, no_update)
    training.add()
    return training
