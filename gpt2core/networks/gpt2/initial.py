"""A new GPT-2's weights."""

from __future__ import annotations

import numpy as np

from gpt2core.networks import halves
from gpt2core.networks.gpt2.checkpoint import Weights, check_buffers
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.networks.normal import Normals
from gpt2core.spec.models import ModelConfig

WEIGHT_STD = 0.02
POSITION_STD = 0.01
WEIGHTS_STREAM = 0  # the seed's second word, so that weights and data of one seed are drawn independently


def initial_weights(model: ModelConfig, seed: int, weights: Weights) -> None:
    """Fill the weights of a new GPT-2: the same numbers for the same seed on every machine.

    Matrices and wte are normal with standard deviation 0.02, wpe with 0.01, the two projections onto the residual
    stream with 0.02 / sqrt(2L). LayerNorm's weights are 1; every bias and the padded rows of wte are 0.
    Source: Radford et al. 2019, section 2.3 (the residual scale), and OpenAI's GPT-2 code (the deviations; Hugging
    Face uses 0.02 for wpe too).
    """
    check_buffers(model, weights)
    normals = Normals([seed, WEIGHTS_STREAM])
    residual_std = WEIGHT_STD / float(np.sqrt(2 * model.layers))
    for spec in weight_specs(model):
        out = weights[spec.name]
        if spec.name.endswith("b"):
            out[...] = 0.0
        elif spec.name.startswith("ln"):
            out[...] = 1.0
        else:
            std = {"wpe": POSITION_STD, "attprojw": residual_std, "fcprojw": residual_std}.get(spec.name, WEIGHT_STD)
            for part in halves.parts(out[: model.vocab] if spec.name == "wte" else out):
                normals.fill(part, std)
    weights["wte"][model.vocab :] = 0
