"""What the ranks of a run exchange, whatever its network. No Numba and no NumPy: servers size runs with it."""

from __future__ import annotations

import dataclasses

from gpt2core.networks.lifetimes import sketched, small
from gpt2core.networks.network import network_of
from gpt2core.ranks.layout import Layout, layout
from gpt2core.ranks.row_layout import RowLayout, Rows, own_elements
from gpt2core.spec.config import TrainConfig
from gpt2core.step.rank import Rank


def layout_of(config: TrainConfig, rank: int) -> Layout:
    """The layout of one rank of a run of several."""
    me, limited = Rank(rank, config.ranks), config.grad_clip > 0
    part = small(config.part)
    step, complete = sketched(part)
    if config.matrix_ranks == 1:
        return layout(complete, me, limited)
    kinds = tuple(
        Rows(kind, width, times * config.grad_accum, way) for (kind, width, way), times in step.exchanged.items()
    )
    folded = complete if config.batch_ranks > 1 else ()
    mine, whole = (network_of(each).tensors(each)["weights"] for each in (part, dataclasses.replace(part, ranks=1)))
    divided = own_elements(mine, whole) + tuple(span for each in folded for span in each.spans)
    buckets = layout(folded, me, keeps_shards=False).buckets
    return RowLayout(me, buckets, limited, config=config, exchanged=kinds, divided=divided)
