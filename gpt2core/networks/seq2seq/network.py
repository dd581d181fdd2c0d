"""Sequence to sequence as an implementation of networks/network.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gpt2core.networks.network import InFiles
from gpt2core.networks.seq2seq.tensors import PRESETS, Seq2seq, model_of, tensors, weight_specs
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import FUSIONS
from gpt2core.step import slicing
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpt2core.networks.network import Weights
    from gpt2core.step.builder import Builder


class Seq2seqNetwork(InFiles):
    """A bidirectional GRU (Cho et al. 2014) and a GRU with the attention of Luong et al. 2015, `dot`, trained by
    teacher forcing. Methods import what needs Numba or NumPy."""

    model = Seq2seq
    presets = PRESETS
    fusions = FUSIONS
    files = "gpt2core.networks.seq2seq.checkpoint:FILES"

    def tensors(self, config: TrainConfig) -> Mapping[str, list[TensorSpec]]:
        return tensors(config)

    def forward(self, config: TrainConfig, step: Builder) -> None:
        from gpt2core.networks.seq2seq import program

        program.forward(step, config)

    def data(self, config: TrainConfig) -> Mapping[str, NDArray[np.generic]]:
        import numpy as np

        from gpt2core.data import pairs

        sample, position = (np.array(table, np.int32) for table in slicing.row_tables(config, time_major=True))
        found = pairs.open_pairs(config)
        return {
            "sources": found.sources.reshape(-1), "answers": found.targets.reshape(-1),
            "lengths": found.lengths.reshape(-1), "row_batch": sample, "row_time": position,
        }  # fmt: skip

    def checksums(self, config: TrainConfig) -> Mapping[str, str]:
        from gpt2core.data import pairs

        return pairs.checksums(config.data)

    def initialise(self, config: TrainConfig, weights: Weights) -> None:
        from gpt2core.networks import torch_modules

        H = model_of(config).hidden

        def inputs(name: str) -> int:
            return H // 2 if name.startswith("encoder") else 2 * H if name == "combine" else H

        torch_modules.initial_weights(weight_specs(model_of(config)), config.seed, weights, inputs)

    def claims(self, names: Collection[str]) -> bool:
        return {"source_embedding.weight", "decoder.weight_hh_l0"} <= set(names)


NETWORK = Seq2seqNetwork()
