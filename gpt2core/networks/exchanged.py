"""What the ranks of a run exchange, whatever its network. No Numba and no NumPy: servers size runs with it."""

from __future__ import annotations

import functools

from gpt2core.networks.lifetimes import no_update, small
from gpt2core.networks.network import fusion_of, network_of
from gpt2core.networks.reverse import Training
from gpt2core.ranks.layout import Layout, layout
from gpt2core.spec.config import TrainConfig
from gpt2core.step.parameters import Parameter
from gpt2core.step.rank import Rank
from gpt2core.step.sketch import Sketch
from gpt2core.step.tensors import plan_arena


def layout_of(config: TrainConfig, rank: int) -> Layout:
    """The layout of one rank of a run of several."""
    return layout(_parameters(small(config.part)), Rank(rank, config.ranks), config.grad_clip > 0)


@functools.lru_cache(maxsize=16)
def _parameters(config: TrainConfig) -> tuple[Parameter, ...]:
    """The parameters in the order in which their gradients become complete. A sketch has no blocks."""
    plans = {kind: plan_arena(specs) for kind, specs in network_of(config).tensors(config).items()}
    training = Training(Sketch(plans, fusion_of(config)), config, no_update)
    training.add(network_of(config))
    return tuple(training.complete)
