"""Generation of tokens, which networks for next-token prediction share: a step reads a token and chooses the next one.

No Numba and no NumPy when it is imported: servers size runs with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt2core.spec.config import TrainConfig
from gpt2core.step.ops import Tensor
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpt2core.step.builder import Builder

INPUT, POSITION, PROMPT, TOKENS = Tensor("inputs"), Tensor("position"), Tensor("prompt"), Tensor("tokens")
LOGITS, DRAWS, TEMPERATURE = Tensor("logits"), Tensor("draws"), Tensor("temperature")
DRAWS_STREAM = 2  # the seed's second word, so that weights, data and draws of one seed are independent


def specs(config: TrainConfig, columns: int) -> dict[str, list[TensorSpec]]:
    """The tensors of a step, by their arenas, with logits of so many columns."""
    generated = config.generate
    return {
        "activations": [
            TensorSpec(INPUT.name, (1,), "int32"),
            TensorSpec(POSITION.name, (1,), "int32"),
            TensorSpec(LOGITS.name, (1, columns)),
        ],
        "temporary": [
            TensorSpec(PROMPT.name, (len(config.prompt or ()),), "int32", True),
            TensorSpec(TOKENS.name, (generated,), "int32"),
            TensorSpec(DRAWS.name, (generated,), "float64", True),
            TensorSpec(TEMPERATURE.name, (1,), "float64", True),
        ],
    }


def data(config: TrainConfig) -> dict[str, NDArray[np.generic]]:
    """The prompt, and a uniform number for each token."""
    import numpy as np

    return {
        PROMPT.name: np.array(config.prompt, np.int32),
        DRAWS.name: np.random.Generator(np.random.PCG64([config.seed, DRAWS_STREAM])).random(config.generate),
        TEMPERATURE.name: np.array([config.temperature]),
    }


def load(step: Builder) -> None:
    """Add the reading of a step's token."""
    from gpt2core.layers import generation

    generation.load(step, inputs=INPUT, position=POSITION, prompt=PROMPT, tokens=TOKENS)


def head(step: Builder, config: TrainConfig, *, inp: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Add the logits and the choice of the next token."""
    from gpt2core.layers import columns, generation

    columns.apply(step, "logits", None, out=LOGITS, inp=inp, weight=weight, bias=bias)
    generation.choose(
        step, tokens=TOKENS, logits=LOGITS, draws=DRAWS, temperature=TEMPERATURE, vocab=config.model.vocab,
        prompt=len(config.prompt or ()),
    )  # fmt: skip
