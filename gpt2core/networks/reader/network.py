"""The attention-over-attention reader as an implementation of networks/network.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gpt2core.networks.network import InFiles
from gpt2core.networks.reader.tensors import PRESETS, Reader, model_of, tensors, weight_specs
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import FUSIONS
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpt2core.networks.network import Weights
    from gpt2core.step.builder import Builder


class ReaderNetwork(InFiles):
    """The attention-over-attention reader of Cui et al. 2017 without re-ranking: which word of a document is missing in
    a query. Methods import what needs Numba or NumPy."""

    model = Reader
    presets = PRESETS
    fusions = FUSIONS
    files = "gpt2core.networks.reader.checkpoint:FILES"

    def tensors(self, config: TrainConfig) -> Mapping[str, list[TensorSpec]]:
        return tensors(config)

    def forward(self, config: TrainConfig, step: Builder) -> None:
        from gpt2core.networks.reader import program

        program.forward(step, config)

    def data(self, config: TrainConfig) -> Mapping[str, NDArray[np.generic]]:
        from gpt2core.data import cloze

        found = cloze.open_records(config)
        return {
            "documents": found.documents.reshape(-1), "queries": found.queries.reshape(-1),
            "solutions": found.answers, "lengths": found.lengths.reshape(-1),
        }  # fmt: skip

    def checksums(self, config: TrainConfig) -> Mapping[str, str]:
        from gpt2core.data import cloze

        return cloze.checksums(config.data)

    def initialise(self, config: TrainConfig, weights: Weights) -> None:
        from gpt2core.networks import torch_modules

        model = model_of(config)
        torch_modules.initial_weights(weight_specs(model), config.seed, weights, lambda _: model.hidden)

    def claims(self, names: Collection[str]) -> bool:
        return {"embedding.weight", "document.weight_hh_l0"} <= set(names)


NETWORK = ReaderNetwork()
