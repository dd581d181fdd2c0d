"""A new LSTM's weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpt2core.networks import halves
from gpt2core.networks.lstm.tensors import Lstm, weight_specs
from gpt2core.networks.normal import Normals

Weights = Mapping[str, NDArray[np.float32]]

WEIGHTS_STREAM = 0  # the seed's second word, so that weights and data of one seed are drawn independently


def initial_weights(model: Lstm, seed: int, scale: float, weights: Weights) -> None:
    """Fill the weights of a new LSTM: the same numbers for the same seed on every machine.

    All weights are uniform within `scale`, as Zaremba et al. 2014. With a scale of 0 the embedding is normal with
    standard deviation 1 and all else is uniform within 1 / sqrt(H), as of torch.nn.Embedding, torch.nn.LSTM and
    torch.nn.Linear.
    """
    bound = np.float32(scale or 1 / math.sqrt(model.hidden))
    uniforms = np.random.Generator(np.random.PCG64([seed, WEIGHTS_STREAM, 1]))
    for spec in weight_specs(model):
        out = weights[spec.name]
        normals = Normals([seed, WEIGHTS_STREAM]) if spec.name == "embedding" and not scale else None
        for part in halves.parts(out):
            if normals:
                normals.fill(part, 1.0)
            else:
                uniforms.random(dtype=np.float32, out=part)
                part *= 2 * bound
                part -= bound
