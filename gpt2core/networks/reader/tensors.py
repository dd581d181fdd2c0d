"""Sizes of an attention-over-attention reader and tables of its tensors. No Numba and no NumPy: a server sizes runs
with them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from gpt2core.networks import classes, encoder
from gpt2core.optimizers import state
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import CLOZE, MISSING
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import check_int
from gpt2core.spec.networks import Model
from gpt2core.step.tensors import TensorSpec

GATES = 3
MOST_UNITS, MOST_POSITIONS = 1 << 16, 1 << 20


@dataclass(frozen=True)
class Reader(Model):
    """E embedding, H hidden units of each direction, V vocabulary, Q words of a query at most; documents have `seq`."""

    network: ClassVar[str] = "reader"
    reads: ClassVar[str] = CLOZE
    metrics: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({"data": "synthetic"})

    embedding: int = 128
    hidden: int = 128
    vocab: int = 8000
    query: int = 32
    context: int = 1024
    name: str = "reader"

    def __post_init__(self) -> None:
        check_int("model.embedding", self.embedding, 1, MOST_UNITS)
        check_int("model.hidden", self.hidden, 1, MOST_UNITS)
        check_int("model.query", self.query, 1, MOST_POSITIONS)
        check_int("model.context", self.context, 1, MOST_POSITIONS)
        check_int("model.vocab", self.vocab, MISSING + 2, 1 << 16)  # tokens are uint16
        if not isinstance(self.name, str):
            raise ConfigError("model.name", self.name, "a string")

    def conflicts(self, config: TrainConfig) -> Iterator[ConfigError]:
        if not config.has_gradients and config.logits != "all":
            accepted = "all, since the outputs of network reader are probabilities of all words of a document"
            yield ConfigError("logits", config.logits, accepted)

    def step_flop(self, samples: int, positions: int) -> int:
        """Model FLOP of a step whose documents all have `positions` words and queries Q: 6 x weights in products, and
        the products of their states."""
        E, H, Q = self.embedding, self.hidden, self.query
        return 6 * samples * ((positions + Q) * 2 * GATES * H * (E + H) + positions * Q * 2 * H)


# Weights by name with their bias: (name, rows, columns, bias).
@functools.lru_cache(maxsize=16)
def matrices(model: Reader) -> tuple[tuple[str, int, int, str | None], ...]:
    """Every matrix in the order in which the weights lie: (out, in), as torch's."""
    E, H = model.embedding, model.hidden
    gates = [each for name in ("document", "query") for each in encoder.matrices(name, E, H)]
    return (("embedding", model.vocab, E, None), *gates)


@functools.lru_cache(maxsize=16)
def weight_specs(model: Reader) -> tuple[TensorSpec, ...]:
    """Each matrix, then the bias of its rows."""
    specs = []
    for name, rows, columns, bias in matrices(model):
        specs.append(TensorSpec(name, (rows, columns)))
        if bias:
            specs.append(TensorSpec(bias, (rows,)))
    return tuple(specs)


def model_of(config: TrainConfig) -> Reader:
    """The sizes of the model that a configuration trains. Raises TypeError for another network's."""
    if not isinstance(config.model, Reader):
        raise TypeError(f"{config.model} is not a reader")
    return config.model


def tensors(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """Every tensor by its arena. N = B*T rows of documents, B*Q of queries.

    In the reverse pass the gates, `hidden`, `scores` and `probabilities` become their own gradients.
    """
    model, B, T = model_of(config), config.batch, config.seq
    E, H, Q, N = model.embedding, model.hidden, model.query, B * T
    accuracy = classes.specs(config)
    trained = state.arenas_with(state.names(config), weight_specs(model), keeps_gradients=config.fused != "all")
    return {
        **state.in_precision(config, trained, [name for name, *_ in matrices(model)]),
        "activations": [
            TensorSpec("document", (N,), "int32"), TensorSpec("query", (B * Q,), "int32"),
            *(TensorSpec(name, (B,), "int32") for name in ("answers", "document_lengths", "query_lengths")),
            *(TensorSpec(name, (N, width)) for name, width in encoder.widths("document_", E, H).items()),
            *(TensorSpec(name, (B * Q, width)) for name, width in encoder.widths("query_", E, H).items()),
            *(TensorSpec(name, (N, Q)) for name in ("scores", "row_shares")),
            *(TensorSpec(name, (B, Q)) for name in ("mean_shares", "dmean_shares")),
            *(TensorSpec(name, (N,)) for name in ("attended", "dattended")),
            TensorSpec("probabilities", (B, T)),
            *([TensorSpec("loss", (B,))] if "loss" in config.phases else []),
            *accuracy["activations"],
        ],
        "temporary": [
            *accuracy["temporary"],
            *state.for_update(config, [(rows, columns) for _, rows, columns, _ in matrices(model)]),
        ],
    }  # fmt: skip


PRESETS = {
    "reader-tiny": Reader(16, 16, 64, name="reader-tiny"),
    "reader-cbt": Reader(384, 256, 53000, name="reader-cbt"),
}
