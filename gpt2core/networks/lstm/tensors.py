"""Sizes of an LSTM and shapes of its tensors; places follow from lifetimes (networks/lifetimes.py).
No Numba and no NumPy: a server sizes runs with them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from gpt2core.gemm.sizes import panels_shape
from gpt2core.networks import generation, token_rows
from gpt2core.networks.lstm import slices
from gpt2core.optimizers import state
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import check_bool, check_int
from gpt2core.spec.generation import SETTINGS as GENERATION
from gpt2core.spec.networks import Model
from gpt2core.step.tensors import TensorSpec

GATES = 4
MOST_UNITS = 1 << 16
MOST_EDGES = 1 << 17  # between blocks of units of following times; building and proving them takes seconds


@dataclass(frozen=True)
class Lstm(Model):
    """E embedding, L layers of H hidden units, V vocabulary. `tied`: the head's weight is the embedding's."""

    network: ClassVar[str] = "lstm"
    settings: ClassVar[tuple[str, ...]] = (
        "distribution", "carry_state", "op_order", "unit_slice", "init_scale", *GENERATION,
    )  # fmt: skip

    embedding: int = 650
    hidden: int = 650
    layers: int = 2
    vocab: int = 10000
    context: int = 1024
    tied: bool = False
    name: str = "lstm"

    def __post_init__(self) -> None:
        for size, most in (("embedding", MOST_UNITS), ("hidden", MOST_UNITS), ("layers", 1000), ("context", 1 << 20)):
            check_int(f"model.{size}", getattr(self, size), 1, most)
        check_int("model.vocab", self.vocab, 1, 1 << 16)  # tokens are uint16
        check_bool("model.tied", self.tied)
        if not isinstance(self.name, str):
            raise ConfigError("model.name", self.name, "a string")
        if self.tied and self.embedding != self.hidden:
            raise ConfigError(
                "model.embedding", self.embedding, f"hidden ({self.hidden}), since the lstm's head is tied to it"
            )

    def slices(self, batch: int, seq: int, threads: int, given: tuple[int | None, int | None]) -> tuple[int, int]:
        return slices.best(self.layers, batch, seq, threads, given)

    def conflicts(self, config: TrainConfig) -> Iterator[ConfigError]:
        H, U = self.hidden, config.unit_slice
        if U is None:
            return
        if U > H:
            yield ConfigError("unit_slice", U, f"1 to hidden ({H})")
            return
        groups = -(-config.batch // (config.batch_slice or config.batch))
        times = self.layers * groups * config.seq
        blocks, most = -(-H // U), math.isqrt(MOST_EDGES // times)
        if most < blocks and blocks > 1:
            least = -(-H // most) if most else H
            accepted = f"{least} to hidden ({H}), since each block of a time waits for all blocks of the time before"
            yield ConfigError("unit_slice", U, accepted)

    def step_flop(self, samples: int, positions: int) -> int:
        """Model FLOP of a step: 6 x weights in matrix products x tokens."""
        return 3 * self.forward_flop(samples, positions, samples * positions)

    def read_vectors(self) -> int:
        return 2 * self.layers * GATES * self.hidden + self.vocab

    def read_weights(self) -> int:
        E, H = self.embedding, self.hidden
        cells = GATES * H * (E + (2 * self.layers - 1) * H + 2 * self.layers)
        return cells + self.vocab * (H + 1) + (0 if self.tied else E)

    def forward_flop(self, samples: int, positions: int, rows: int) -> int:
        cells = GATES * self.hidden * (self.embedding + (2 * self.layers - 1) * self.hidden)
        return 2 * cells * samples * positions + 2 * self.vocab * self.hidden * rows


class MatrixOf(NamedTuple):
    """A weight that is a matrix, and the bias of its rows."""

    name: str
    rows: int
    columns: int
    bias: str | None


@functools.lru_cache(maxsize=16)  # a sweep sizes thousands of runs of one model
def matrices(model: Lstm) -> tuple[MatrixOf, ...]:
    """Every matrix in the order in which the weights lie: (out, in), as torch's, with both biases of a layer."""
    E, H, V = model.embedding, model.hidden, model.vocab
    found = [MatrixOf("embedding", V, E, "head_bias" if model.tied else None)]
    for k in range(model.layers):
        found.append(MatrixOf(f"weight_ih_l{k}", GATES * H, H if k else E, f"bias_ih_l{k}"))
        found.append(MatrixOf(f"weight_hh_l{k}", GATES * H, H, f"bias_hh_l{k}"))
    return (*found, *([] if model.tied else [MatrixOf("head", V, H, "head_bias")]))


@functools.lru_cache(maxsize=16)
def weight_specs(model: Lstm) -> tuple[TensorSpec, ...]:
    """An LSTM's weights: each matrix, then the bias of its rows."""
    specs = []
    for matrix in matrices(model):
        specs.append(TensorSpec(matrix.name, (matrix.rows, matrix.columns)))
        if matrix.bias:
            specs.append(TensorSpec(matrix.bias, (matrix.rows,)))
    return tuple(specs)


def model_of(config: TrainConfig) -> Lstm:
    """The sizes of the LSTM that a configuration trains. Raises TypeError for another network's."""
    if not isinstance(config.model, Lstm):
        raise TypeError(f"{config.model} is not an LSTM")
    return config.model


@functools.lru_cache(maxsize=16)
def _trained(model: Lstm, names: tuple[str, ...], keeps_gradients: bool) -> dict[str, list[TensorSpec]]:
    return state.arenas_with(names, weight_specs(model), keeps_gradients)


def carries(config: TrainConfig) -> bool:
    """Whether a step begins with the state after the step before."""
    return config.carry_state or config.generate > 0


def panels(config: TrainConfig) -> dict[str, tuple[int, int]]:
    """Shapes of a layer's recurrent weight, packed for the forward and the backward product. Only our own product of
    float32 reads panels, and a step that generates has no product.
    """
    if config.precision != "fp32" or config.generate:
        return {}
    H = model_of(config).hidden
    U = config.unit_slice or H
    blocks = -(-H // U)
    forward = {"panels": panels_shape(GATES * H, H) if blocks == 1 else panels_shape(U, H, GATES * blocks)}
    return {**forward, "panels_back": panels_shape(U, GATES * H, blocks)} if config.has_gradients else forward


def tensors(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """Every tensor by its arena. N = B*T rows.

    In the reverse pass `gates` becomes its own gradient. `dh` has the gradient of one layer's `h` after the other, and
    `dcell` what the time after gives each sample's state; it is no activation, because layers that shared it would wait
    for each other. `first_h` and `first_cell` are the samples' states before the first time, if these are the states
    after the previous batch. `state_h` and `state_cell` are those after the last token that generation has read.
    """
    model = model_of(config)
    E, H, L, V, N = model.embedding, model.hidden, model.layers, model.vocab, config.batch * config.seq
    rows = [] if config.generate else token_rows.specs(config)
    lasting = [TensorSpec(name, (L, 1, H)) for name in ("state_h", "state_cell")]
    trained = _trained(model, state.names(config), config.fused != "all")
    head = generation.specs(config, V, max(E, H), lasting) if config.generate else token_rows.head_specs(config, H, V)
    return {
        **state.in_precision(config, trained, [each.name for each in matrices(model)]),
        "activations": [
            *rows,
            *(TensorSpec(name, (N, E)) for name in ("embedded", "dembedded")),
            TensorSpec("gates", (L, N, GATES * H)),
            TensorSpec("cell", (L, N, H)),
            TensorSpec("h", (L, N, H)),
            TensorSpec("dh", (N, H)),
            *(TensorSpec(name, (L, config.batch, H)) for name in ("first_h", "first_cell") if carries(config)),
            *head["activations"],
        ],
        "temporary": [
            *head["temporary"],
            *([TensorSpec("dcell", (L, config.batch, H))] if config.has_gradients else []),
            *(TensorSpec(name, (L, *shape), constant=not config.updates) for name, shape in panels(config).items()),
            *state.for_update(config, [(each.rows, each.columns) for each in matrices(model)]),
        ],
    }


def _presets() -> dict[str, Lstm]:
    sizes = {"lstm-tiny": (32, 2, 256), "lstm-medium": (650, 2, 10000), "lstm-large": (1500, 2, 10000),
             "lstm-deep": (512, 8, 10000)}  # fmt: skip
    return {name: Lstm(H, H, layers, vocab, name=name) for name, (H, layers, vocab) in sizes.items()}


PRESETS = _presets()  # medium and large: Zaremba et al. 2014
