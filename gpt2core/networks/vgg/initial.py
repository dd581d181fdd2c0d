"""A new VGG's weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpt2core.networks.normal import Normals
from gpt2core.networks.vgg.tensors import DENSE, Vgg, convolutions, dense_shapes

Weights = Mapping[str, NDArray[np.float32]]

WEIGHTS_STREAM = 0  # the seed's second word, so that weights and data of one seed are drawn independently


def initial_weights(model: Vgg, seed: int, weights: Weights) -> None:
    """Fill the weights of a new VGG: the same numbers for the same seed on every machine.

    Weights are normal: of convolutions with variance 2 / fan out, of dense layers with variance 2 / fan in. Biases are
    0. Source: He et al. 2015.
    """
    normals = Normals([seed, WEIGHTS_STREAM])
    for each in convolutions(model):
        normals.fill(weights[each.weight], math.sqrt(2 / (each.OC * each.size**2)))
        weights[each.bias][:] = 0
    for name, (_, inputs) in zip(DENSE, dense_shapes(model), strict=True):
        normals.fill(weights[f"{name}.weight"], math.sqrt(2 / inputs))
        weights[f"{name}.bias"][:] = 0
