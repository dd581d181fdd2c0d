"""Sizes of a sequence-to-sequence model and shapes of its tensors; places of activations follow from their lifetimes
(networks/lifetimes.py). No Numba and no NumPy: a server sizes runs with them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from gpt2core.networks import encoder, token_rows
from gpt2core.optimizers import state
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import BEGIN, PAIRS
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import check_int
from gpt2core.spec.networks import Model
from gpt2core.step.tensors import TensorSpec

GATES = 3
MOST_UNITS = 1 << 16


@dataclass(frozen=True)
class Seq2seq(Model):
    """E embedding, H hidden units of the decoder and of both directions of the encoder together, V vocabulary of both
    sequences."""

    network: ClassVar[str] = "seq2seq"
    reads: ClassVar[str] = PAIRS
    shortest: ClassVar[int] = 2  # a word and the end of its sequence
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({"data": "synthetic"})

    embedding: int = 256
    hidden: int = 512
    vocab: int = 8000
    context: int = 1024
    name: str = "seq2seq"

    def __post_init__(self) -> None:
        check_int("model.embedding", self.embedding, 1, MOST_UNITS)
        check_int("model.hidden", self.hidden, 2, MOST_UNITS)
        check_int("model.context", self.context, self.shortest, 1 << 20)
        check_int("model.vocab", self.vocab, BEGIN + 2, 1 << 16)  # tokens are uint16
        if self.hidden % 2:
            raise ConfigError("model.hidden", self.hidden, "an even number, half of it for each direction")
        if not isinstance(self.name, str):
            raise ConfigError("model.name", self.name, "a string")

    def conflicts(self, config: TrainConfig) -> Iterator[ConfigError]:
        if not config.has_gradients and config.logits != "all":
            yield ConfigError("logits", config.logits, "all, since the last positions of network seq2seq are padding")

    def step_flop(self, samples: int, positions: int) -> int:
        """Model FLOP of a step whose sequences all have `positions` tokens: 6 x weights in products, and attention."""
        E, H, V = self.embedding, self.hidden, self.vocab
        encoder, decoder = GATES * H * (E + H // 2), GATES * H * (E + H)
        return 6 * samples * positions * (encoder + decoder + 2 * H * H + H * V + 2 * positions * H)


# Weights by name with their bias: (name, rows, columns, bias). Those of the encoder's input have both directions' rows.
@functools.lru_cache(maxsize=16)
def matrices(model: Seq2seq) -> tuple[tuple[str, int, int, str | None], ...]:
    """Every matrix in the order in which the weights lie: (out, in), as torch's."""
    E, H, V = model.embedding, model.hidden, model.vocab
    return (
        ("source_embedding", V, E, None),
        *encoder.matrices("encoder", E, H // 2),
        ("target_embedding", V, E, None),
        ("decoder_ih", GATES * H, E, "decoder_ih_bias"),
        ("decoder_hh", GATES * H, H, "decoder_hh_bias"),
        ("combine", H, 2 * H, None),
        ("head", V, H, "head_bias"),
    )


@functools.lru_cache(maxsize=16)
def weight_specs(model: Seq2seq) -> tuple[TensorSpec, ...]:
    """Each matrix, then the bias of its rows."""
    specs = []
    for name, rows, columns, bias in matrices(model):
        specs.append(TensorSpec(name, (rows, columns)))
        if bias:
            specs.append(TensorSpec(bias, (rows,)))
    return tuple(specs)


def model_of(config: TrainConfig) -> Seq2seq:
    """The sizes of the model that a configuration trains. Raises TypeError for another network's."""
    if not isinstance(config.model, Seq2seq):
        raise TypeError(f"{config.model} is not a seq2seq")
    return config.model


def tensors(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """Every tensor by its arena. N = B*T rows, for the source and for the target.

    In the reverse pass `gates` and `hidden` become their own gradients. `kept` is the state of the position before.
    """
    model, B, T = model_of(config), config.batch, config.seq
    E, H, N = model.embedding, model.hidden, config.batch * config.seq
    tables = {"source": False, "inputs": False, "targets": False, "row_batch": True, "row_time": True}
    widths = {
        **encoder.widths("", E, H // 2),
        "target_embedded": E, "target_gates": GATES * H, "target_kept": H, "target_hidden": GATES * H,
        "target_dpast": H, "decoded": H, "attention": T, "dattention": T, "mixed": 2 * H, "combined": H,
        **{f"d{name}": width for name, width in (
            ("target_embedded", E), ("decoded", H), ("mixed", 2 * H), ("combined", H),
        )},
    }  # fmt: skip
    head = token_rows.head_specs(config, H, model.vocab)
    trained = state.arenas_with(state.names(config), weight_specs(model), keeps_gradients=config.fused != "all")
    return {
        **state.in_precision(config, trained, [name for name, *_ in matrices(model)]),
        "activations": [
            *(TensorSpec(name, (N,), "int32", fixed) for name, fixed in tables.items()),
            *(TensorSpec(name, (B,), "int32") for name in ("source_lengths", "target_lengths")),
            *(TensorSpec(name, (N, width)) for name, width in widths.items()),
            TensorSpec("first", (B, H)),
            *head["activations"],
        ],
        "temporary": [
            *head["temporary"],
            *state.for_update(config, [(rows, columns) for _, rows, columns, _ in matrices(model)]),
        ],
    }


PRESETS = {
    "seq2seq-tiny": Seq2seq(16, 32, 64, name="seq2seq-tiny"),
    "seq2seq-medium": Seq2seq(512, 1024, 16000, name="seq2seq-medium"),
}
