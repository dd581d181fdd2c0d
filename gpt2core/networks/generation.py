"""Generation of tokens, which networks for next-token prediction share. One step reads the whole prompt and chooses the
first token; then a step reads a token and chooses the next one.

Both kinds of steps lie in the same arenas, one after the other. What a step leaves for the next one lies first in the
temporary arena, so at the same place for both. No Numba and no NumPy when it is imported: servers size runs with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpt2core.gemm.sizes import PANEL
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


def specs(
    config: TrainConfig, columns: int, longest: int, lasting: Sequence[TensorSpec]
) -> dict[str, list[TensorSpec]]:
    """The tensors of a step, by their arenas: logits of so many columns, and what lasts from step to step. longest: the
    most columns of a weight, for those of bfloat16 that the step of the prompt widens.
    """
    generated = config.generate
    widened = TensorSpec("widened", (config.threads, PANEL * longest))
    return {
        "activations": [
            TensorSpec(INPUT.name, (config.seq,), "int32"),
            TensorSpec(POSITION.name, (config.seq,), "int32"),
            TensorSpec(LOGITS.name, (1, columns)),
        ],
        "temporary": [
            TensorSpec(PROMPT.name, (len(config.prompt or ()),), "int32", True),
            TensorSpec(TOKENS.name, (generated,), "int32"),
            TensorSpec(DRAWS.name, (generated,), "float64", True),
            TensorSpec(TEMPERATURE.name, (1,), "float64", True),
            *lasting,
            *([widened] if config.reads_prompt and config.has_half_weights else []),
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


def load(step: Builder, config: TrainConfig) -> None:
    """Add the reading of a step's tokens."""
    from gpt2core.layers import generation

    first = 0 if config.reads_prompt else len(config.prompt or ())
    generation.load(step, inputs=INPUT, position=POSITION, prompt=PROMPT, tokens=TOKENS, first=first)


def head(step: Builder, config: TrainConfig, *, inp: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Add the logits of one row and the choice of the next token."""
    from gpt2core.layers import columns, generation

    columns.apply(step, "logits", None, out=LOGITS, inp=inp, weight=weight, bias=bias)
    generation.choose(
        step, tokens=TOKENS, logits=LOGITS, draws=DRAWS, temperature=TEMPERATURE, vocab=config.model.vocab,
        first=0 if config.reads_prompt else 1,
    )  # fmt: skip
