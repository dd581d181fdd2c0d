"""GPT-2 as an implementation of networks/network.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from gpt2core.networks import generation, token_rows
from gpt2core.networks.gpt2.tensors import model_of, tensors
from gpt2core.networks.network import InFiles
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import FUSIONS
from gpt2core.spec.models import PRESETS, ModelConfig
from gpt2core.step.rank import Rank
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpt2core.networks.network import AtFirst, Weights
    from gpt2core.step.builder import Builder


class Gpt2(InFiles):
    """Radford et al. 2019. Methods import what needs Numba or NumPy."""

    model = ModelConfig
    presets = PRESETS
    fusions = FUSIONS
    files = "gpt2core.networks.gpt2.checkpoint"

    def tensors(self, config: TrainConfig) -> Mapping[str, list[TensorSpec]]:
        return tensors(config)

    def forward(self, config: TrainConfig, step: Builder) -> None:
        from gpt2core.networks.gpt2.generation import Generation
        from gpt2core.networks.gpt2.program import Forward

        (Generation if config.generate else Forward)(step, config).add()

    def data(self, config: TrainConfig) -> Mapping[str, NDArray[np.generic]]:
        return generation.data(config) if config.generate else token_rows.data(config)

    def initialise(self, config: TrainConfig, weights: Weights) -> None:
        from gpt2core.networks.gpt2 import initial

        initial.initial_weights(model_of(config), config.seed, weights)

    def fill(self, config: TrainConfig, rank: int, weights: Weights) -> None:
        if config.matrix_ranks == 1:
            super().fill(config, rank, weights)
            return
        from gpt2core.networks.gpt2.parts import fill_part

        fill_part(model_of(config), Rank(rank, config.matrix_ranks), weights, partial(super().fill, config, rank))

    def whole(self, config: TrainConfig, weights: Weights, at_first: AtFirst) -> Weights:
        if config.matrix_ranks == 1:
            return super().whole(config, weights, at_first)
        from gpt2core.networks.gpt2.parts import whole_of

        parts = {name: at_first(part) for name, part in weights.items()}
        return {name: whole_of(name, each) for name, each in parts.items() if each}


NETWORK = Gpt2()
