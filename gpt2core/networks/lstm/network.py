"""The LSTM as an implementation of networks/network.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gpt2core.networks import generation, token_rows
from gpt2core.networks.lstm.tensors import PRESETS, Lstm, model_of, tensors
from gpt2core.networks.network import InFiles
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import FUSIONS
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpt2core.networks.network import Weights
    from gpt2core.step.builder import Builder


class LstmNetwork(InFiles):
    """Hochreiter & Schmidhuber 1997 as a language model of Zaremba et al. 2014, without dropout. Methods import what
    needs Numba or NumPy."""

    model = Lstm
    presets = PRESETS
    fusions = FUSIONS
    files = "gpt2core.networks.lstm.checkpoint"

    def tensors(self, config: TrainConfig) -> Mapping[str, list[TensorSpec]]:
        return tensors(config)

    def forward(self, config: TrainConfig, step: Builder) -> None:
        from gpt2core.networks.lstm import program

        program.forward(step, config)

    def data(self, config: TrainConfig) -> Mapping[str, NDArray[np.generic]]:
        return generation.data(config) if config.generate else token_rows.data(config, time_major=True)

    def initialise(self, config: TrainConfig, weights: Weights) -> None:
        from gpt2core.networks.lstm import initial

        initial.initial_weights(model_of(config), config.seed, config.init_scale, weights)

    def claims(self, names: Collection[str]) -> bool:
        return any(name.startswith("lstm.") for name in names)


NETWORK = LstmNetwork()
