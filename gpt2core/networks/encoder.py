"""A bidirectional GRU over embedded tokens, as networks on sequences share it. No Numba and no NumPy: servers size runs
with its tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpt2core.layers import embedding, gru, linear
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.grid import Grid
from gpt2core.step.ops import Tensor
from gpt2core.step.slicing import Slice

WAYS = ("", "_reverse")


def widths(prefix: str, E: int, H: int) -> dict[str, int]:
    """Widths of an encoder's tensors by their names: E embedding, H hidden units of each direction."""
    G = gru.GATES * H
    of_ways = {f"{name}{way}": width for way in WAYS for name, width in (("kept", H), ("hidden", G), ("dpast", H))}
    found = {"embedded": E, "gates": 2 * G, "encoded": 2 * H, **of_ways}
    return {f"{prefix}{name}": width for name, width in found.items()} | {
        f"d{prefix}{name}": found[name] for name in ("embedded", "encoded")
    }


def matrices(name: str, E: int, H: int) -> list[tuple[str, int, int, str]]:
    """Weights with their bias: (name, rows, columns, bias). Those of the input have both directions' rows."""
    G = gru.GATES * H
    parts = [(f"{name}_ih", 2 * G, E), *((f"{name}_hh{way}", G, H) for way in WAYS)]
    return [(weight, rows, columns, f"{weight}_bias") for weight, rows, columns in parts]


def forward(
    step: Builder, slices: Sequence[Slice], *,
    name: str, prefix: str, tokens: Tensor, weight: Tensor, lengths: Tensor, T: int, BS: int,
) -> Tensor:  # fmt: skip
    """Add the embedding by `weight` and both directions, over slices of T positions in groups of at most BS samples.
    Returns the states of both, side by side. `name`: that of its weights; `prefix`: that of its tensors."""
    out, gates = Tensor(f"{prefix}encoded"), Tensor(f"{prefix}gates")
    input_gates(
        step, slicing.grid(slices), name, tokens=tokens, embedded=Tensor(f"{prefix}embedded"), weight=weight,
        gates=gates,
    )  # fmt: skip
    gru.forward(
        [
            gru.Direction(
                step, slices, f"recurrence_{name}{way}", out=out, kept=Tensor(f"{prefix}kept{way}"),
                hidden=Tensor(f"{prefix}hidden{way}"), dpast=Tensor(f"{prefix}dpast{way}"), gates=gates,
                lengths=lengths, weight=Tensor(f"{name}_hh{way}"), bias=Tensor(f"{name}_hh{way}_bias"),
                backwards=bool(place), place=place, T=T, BS=BS,
            )
            for place, way in enumerate(WAYS)
        ]
    )  # fmt: skip
    return out


def input_gates(
    step: Builder, grid: Grid, name: str, *, tokens: Tensor, embedded: Tensor, weight: Tensor, gates: Tensor
) -> None:
    """Add the embedding of tokens and what it gives the gates."""
    with step.fused():
        embedding.forward_of_tokens(step, grid, out=embedded, tokens=tokens, weight=weight)
        linear.forward(
            step, f"gates_in_{name}", grid, None, out=gates, inp=embedded, weight=Tensor(f"{name}_ih"),
            bias=Tensor(f"{name}_ih_bias"),
        )  # fmt: skip
