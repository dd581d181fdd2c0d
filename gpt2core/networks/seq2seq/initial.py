"""A new sequence-to-sequence model's weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpt2core.networks.normal import Normals
from gpt2core.networks.seq2seq.tensors import Seq2seq, weight_specs

Weights = Mapping[str, NDArray[np.float32]]

WEIGHTS_STREAM = 0  # the seed's second word, so that weights and data of one seed are drawn independently


def initial_weights(model: Seq2seq, seed: int, weights: Weights) -> None:
    """Fill the weights of a new model: the same numbers for the same seed on every machine.

    Embeddings are normal with standard deviation 1, all else is uniform within 1 / sqrt(H) of the layer, as of
    torch.nn.Embedding, torch.nn.GRU and torch.nn.Linear.
    """
    uniforms = np.random.Generator(np.random.PCG64([seed, WEIGHTS_STREAM, 1]))
    normals = Normals([seed, WEIGHTS_STREAM])
    H = model.hidden
    for spec in weight_specs(model):
        out = weights[spec.name]
        if spec.name.endswith("embedding"):
            normals.fill(out, 1.0)
            continue
        width = H // 2 if spec.name.startswith("encoder") else 2 * H if spec.name == "combine" else H
        bound = np.float32(1 / math.sqrt(width))
        uniforms.random(dtype=np.float32, out=out)
        out *= 2 * bound
        out -= bound
