"""The part of each weight that one rank of several has, where ranks divide the matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gpt2core.networks.gpt2.checkpoint import Weights
from gpt2core.networks.gpt2.tensors import DIVIDED, weight_specs
from gpt2core.spec.models import ModelConfig
from gpt2core.step.rank import Rank


def fill_part(model: ModelConfig, rank: Rank, weights: Weights, fill: Callable[[Weights], None]) -> None:
    """Fill a rank's weights with its part of what `fill` writes to those of the whole model, which are in memory
    meanwhile."""
    whole = {spec.name: np.empty(spec.shape, np.float32) for spec in weight_specs(model)}
    fill(whole)
    for name, part in weights.items():
        part[...] = part_of(name, whole[name], rank)


def part_of(name: str, whole: NDArray[np.float32], rank: Rank) -> NDArray[np.float32]:
    """A rank's part of a weight. qkv has the queries of all heads, then their keys, then their values."""
    if name not in DIVIDED:
        return whole
    axis, kinds = DIVIDED[name], _kinds(name)
    before, size, after = whole.shape[:axis], whole.shape[axis] // rank.total, whole.shape[axis + 1 :]
    parts = whole.reshape(*before, kinds, rank.total, size // kinds, *after)
    return parts.take(rank.number, axis + 1).reshape(*before, size, *after)


def whole_of(name: str, parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """A weight of the whole model, from the parts of all ranks."""
    if name not in DIVIDED:
        return parts[0]
    axis, kinds, shape = DIVIDED[name], _kinds(name), parts[0].shape
    before, after = shape[:axis], shape[axis + 1 :]
    pieces = [part.reshape(*before, kinds, -1, *after) for part in parts]
    return np.concatenate(pieces, axis + 1).reshape(*before, shape[axis] * len(parts), *after)


def _kinds(name: str) -> int:
    """Matrices that lie one after the other in a weight's divided dimension."""
    return 3 if name.startswith("qkv") else 1
