"""Gated recurrent units in one direction over padded sequences, as torch.nn.GRU on packed sequences.

Rows are time-major within a group of samples. After the end of a sequence its state and all its gradients are 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gpt2core.compile.jit import address_of, kernel
from gpt2core.compile.later import float32, is_half
from gpt2core.gemm.operands import Operand, into, plain
from gpt2core.gemm.products import multiply
from gpt2core.layers import cell, linear
from gpt2core.layers.recurrence import Chunk
from gpt2core.step import parameters, slicing
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Product, Read, Tensor, Update, Write
from gpt2core.step.signature import Int32s, Matrix, MatrixOrHalves, Multiply, Scalar, TileInt, Vector
from gpt2core.step.slicing import Slice

GATES = 3  # r, z, n
CELL_FLOP, CELL_BACKWARD_FLOP = 60, 20  # of a unit
UNITS, OF_GATES, SAMPLES = "unit0:unit1", "gate0:gate1", "sample0:sample1"
ONE, ZERO = float32(1.0), float32(0.0)
sigmoid, tanh = cell.sigmoid, cell.tanh


class Weights(NamedTuple):
    """The recurrent weight (3*H, H) and its bias (3*H,)."""

    weight: MatrixOrHalves
    bias: Vector


class Times(NamedTuple):
    """The number of positions, and whether a direction goes from the last to the first."""

    T: Scalar
    backwards: Scalar


class Place(NamedTuple):
    """The first column of a direction's units, and of its gates."""

    unit0: TileInt
    gate0: TileInt


@kernel
def gru_forward(
    h: Matrix, past: Matrix, kept: Matrix, hidden: Matrix, gates: Matrix, first: Matrix, lengths: Int32s,
    weights: Weights, by: Multiply, times: Times, chunk: Chunk, place: Place,
):  # fmt: skip
    """Run the cells over a chunk of time, from its last position to its first if `backwards`.

    Writes:   h (N, any) =, columns from unit0 on; kept (N, H) =: h of the position before in order;
              hidden (N, 3*H) = kept @ weight.T + bias; gates (N, any), columns from gate0 on: on entry what the input
              gives them, on exit r, z, n
    Reads:    past: h; first (B, H): the states before the first position, or (0, 0) for 0; lengths (B,) int32
    Maths:    r, z = sigmoid(gates + hidden); n = tanh(gates + r hidden); h = (1 - z) n + z kept
    Tiles:    a chunk follows the one before it in order; groups of samples are independent
    Source:   Cho et al. 2014; torch.nn.GRU
    """
    weight, bias = weights
    T, backwards = times
    sample0, sample1, pos0, pos1, row0 = chunk
    unit0, gate0 = place
    H, n = weight.shape[1], sample1 - sample0
    for s in range(pos1 - pos0):
        t = pos1 - 1 - s if backwards else pos0 + s
        row = row0 + (t - pos0) * n
        before = row + n if backwards else row - n
        begins = t == T - 1 if backwards else t == 0
        for i in range(n):
            for c in range(H):
                if begins:
                    kept[row + i, c] = first[sample0 + i, c] if first.shape[0] else ZERO
                else:
                    kept[row + i, c] = past[before + i, unit0 + c]
        multiply(
            by, n, GATES * H, H, plain(address_of(kept, row * H), H),
            Operand(address_of(weight, 0), H, 1, is_half(weight)),
            into(address_of(hidden, row * GATES * H), GATES * H, 0),
        )  # fmt: skip
        for i in range(n):
            a, b, to = gates[row + i, gate0 : gate0 + GATES * H], hidden[row + i], h[row + i, unit0 : unit0 + H]
            if t >= lengths[sample0 + i]:
                to[:] = 0
                continue
            for c in range(GATES * H):
                b[c] += bias[c]
            for c in range(2 * H):
                a[c] = sigmoid(a[c] + b[c])
            for c in range(H):
                a[2 * H + c] = tanh(a[2 * H + c] + a[c] * b[2 * H + c])
            for c in range(H):
                to[c] = (ONE - a[H + c]) * a[2 * H + c] + a[H + c] * kept[row + i, c]


@kernel
def gru_backward(
    gates: Matrix, hidden: Matrix, dpast: Matrix, later: Matrix, dh: Matrix, kept: Matrix, lengths: Int32s,
    weight: Matrix, by: Multiply, times: Times, chunk: Chunk, place: Place,
):  # fmt: skip
    """The reverse of `gru_forward` over a chunk of time.

    Writes:   gates, hidden: on entry as `gru_forward` left them, on exit their gradients; dpast (N, H) =: the gradient
              of kept
    Reads:    later: dpast; dh as h; kept, lengths, weight
    Tiles:    a chunk follows the one after it in order; groups of samples are independent
    """
    T, backwards = times
    sample0, sample1, pos0, pos1, row0 = chunk
    unit0, gate0 = place
    H, n = weight.shape[1], sample1 - sample0
    for s in range(pos1 - pos0):
        t = pos0 + s if backwards else pos1 - 1 - s
        row = row0 + (t - pos0) * n
        after = row - n if backwards else row + n
        ends = t == 0 if backwards else t == T - 1
        for i in range(n):
            a, b, to = gates[row + i, gate0 : gate0 + GATES * H], hidden[row + i], dpast[row + i]
            if t >= lengths[sample0 + i]:
                a[:] = 0
                b[:] = 0
                to[:] = 0
                continue
            for c in range(H):
                d = dh[row + i, unit0 + c]
                if not ends:
                    d += later[after + i, c]
                r, z, new = a[c], a[H + c], a[2 * H + c]
                dz = d * (kept[row + i, c] - new) * z * (ONE - z)
                dnew = d * (ONE - z) * (ONE - new * new)
                dr = dnew * b[2 * H + c] * r * (ONE - r)
                a[c], a[H + c], a[2 * H + c] = dr, dz, dnew
                b[c], b[H + c], b[2 * H + c] = dr, dz, dnew * r
                to[c] = d * z
        multiply(
            by, n, H, GATES * H, plain(address_of(hidden, row * GATES * H), GATES * H), plain(address_of(weight, 0), H),
            into(address_of(dpast, row * H), H, 1),
        )  # fmt: skip


@dataclass(frozen=True)
class Direction:
    """One direction of a layer over slices of a batch of T positions, in groups of at most BS samples: its tensors,
    and its units among those of `out`, of which it is number `place`."""

    step: Builder
    slices: Sequence[Slice]
    name: str
    out: Tensor
    kept: Tensor
    hidden: Tensor
    dpast: Tensor
    gates: Tensor
    lengths: Tensor
    weight: Tensor
    bias: Tensor
    T: int
    BS: int
    first: Tensor | None = None
    backwards: bool = False
    place: int = 0

    def _chunks(self) -> list[Grid]:
        """The chunks of time, in the order in which the direction computes them."""
        H = self.step.shape(self.weight)[1]
        columns = {"unit0": self.place * H, "unit1": (self.place + 1) * H,
                   "gate0": self.place * GATES * H, "gate1": (self.place + 1) * GATES * H}  # fmt: skip
        found = [
            chunk.with_columns(**{name: [at] * len(chunk) for name, at in columns.items()})
            for chunk in slicing.chunks(self.slices)
        ]
        return found[::-1] if self.backwards else found

    def forward(self) -> None:
        """Add an op for each chunk of time."""
        H = self.step.shape(self.weight)[1]
        weight_bytes, half_weight = GATES * H * H * self.step.itemsize(self.weight), int(self.step.is_half(self.weight))
        before = "row1:group1" if self.backwards else "group0:row0"
        for number, chunk in enumerate(self._chunks()):
            self.step.op(
                self.name, "forward", gru_forward, chunk,
                chunk.cost(ROWS, (2 * GATES * H + CELL_FLOP) * H, 8 * F32 * H, weight_bytes),
                h=Write(self.out, ROWS, UNITS), past=Read(self.out, before, UNITS), kept=Write(self.kept, ROWS),
                hidden=Write(self.hidden, ROWS), gates=Update(self.gates, ROWS, OF_GATES),
                first=Read(self.first, SAMPLES) if self.first and not number else None,
                lengths=Read(self.lengths, SAMPLES), weight=Read(self.weight), bias=Read(self.bias),
                by=Product(0, 1, self.BS, GATES * H, H, half_b=half_weight), T=self.T, backwards=int(self.backwards),
            )  # fmt: skip

    def backward(self) -> None:
        """Add the reverse ops, and leave the gradients of the recurrent weight and its bias."""
        H = self.step.shape(self.weight)[1]
        after = "group0:row0" if self.backwards else "row1:group1"
        for chunk in reversed(self._chunks()):
            self.step.op(
                self.name, "backward", gru_backward, chunk,
                chunk.cost(ROWS, (2 * GATES * H + CELL_BACKWARD_FLOP) * H, 16 * F32 * H, F32 * GATES * H * H),
                gates=Update(self.gates, ROWS, OF_GATES), hidden=Update(self.hidden, ROWS),
                dpast=Write(self.dpast, ROWS), later=Read(self.dpast, after),
                dh=Read(self.step.tape.gradient(self.out), ROWS, UNITS), kept=Read(self.kept, ROWS),
                lengths=Read(self.lengths, SAMPLES), weight=Read(self.weight),
                by=Product(0, 0, self.BS, H, GATES * H), T=self.T, backwards=int(self.backwards),
            )  # fmt: skip
        linear.leave_weight_gradient(
            self.step, f"{self.name}_hidden", None, dout=self.hidden, inp=self.kept, weight=self.weight, bias=self.bias
        )


def forward(directions: Sequence[Direction], last: Sequence[partial[None]] = ()) -> None:
    """Add the directions of a layer, whose gates are one tensor. `last`: functions that end the reverse pass."""
    one = directions[0]

    def reverse() -> None:
        for each in directions:
            each.backward()
        for add in last:
            add()

    for each in directions:
        each.forward()
    one.step.tape.gradient_in(one.gates, one.gates)
    weights = {each.weight: parameters.matrix(one.step, each.weight, each.bias) for each in directions}
    one.step.tape.leave(reverse, out=one.out, inp=one.gates, kind="recurrence", weights=weights)
