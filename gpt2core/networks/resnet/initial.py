"""A new ResNet's weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpt2core.networks.normal import Normals
from gpt2core.networks.resnet.tensors import Resnet, convolutions

Weights = Mapping[str, NDArray[np.float32]]

WEIGHTS_STREAM = 0  # the seed's second word, so that weights and data of one seed are drawn independently


def initial_weights(model: Resnet, seed: int, weights: Weights) -> None:
    """Fill the weights of a new ResNet: the same numbers for the same seed on every machine.

    Convolutions are normal with variance 2 / fan out; fc.weight is uniform within sqrt(6 / in), fc.bias within
    1 / sqrt(in). Source: He et al. 2015; AWNN.
    """
    normals = Normals([seed, WEIGHTS_STREAM])
    for each in convolutions(model):
        normals.fill(weights[each.weight], math.sqrt(2 / (each.OC * each.size**2)))
    uniforms = np.random.Generator(np.random.PCG64([seed, WEIGHTS_STREAM, 1]))
    for name, limit in (("fc.weight", math.sqrt(6 / model.features)), ("fc.bias", 1 / math.sqrt(model.features))):
        out, bound = weights[name], np.float32(limit)
        uniforms.random(dtype=np.float32, out=out)
        out *= 2 * bound
        out -= bound
