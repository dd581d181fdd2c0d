"""The decoder's first state: the encoder's last states in both directions, side by side."""

from functools import partial

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, Grid
from gpt2core.step.ops import Read, Tensor, Update, Write
from gpt2core.step.signature import Int32s, Matrix, TileInt

SAMPLES, GROUP = "sample0:sample1", "group0:group1"


@kernel
def bridge(first: Matrix, encoded: Matrix, lengths: Int32s, sample0: TileInt, sample1: TileInt, group0: TileInt):
    """Copy the states after the last position forwards, and after the first position backwards.

    Writes:   first (B, D) =
    Reads:    encoded (N, D), time-major within the group; lengths (B,) int32
    Tiles:    groups of samples are independent
    """
    D, n = first.shape[1], sample1 - sample0
    for i in range(n):
        last = group0 + (lengths[sample0 + i] - 1) * n + i
        for c in range(D // 2):
            first[sample0 + i, c] = encoded[last, c]
            first[sample0 + i, D // 2 + c] = encoded[group0 + i, D // 2 + c]


@kernel
def bridge_backward(
    dencoded: Matrix, dfirst: Matrix, lengths: Int32s, sample0: TileInt, sample1: TileInt, group0: TileInt
):
    """Add the gradient of the first states.

    Writes:   dencoded (N, D) +=
    Reads:    dfirst (N, D): the rows of the first position; lengths (B,) int32
    Tiles:    groups of samples are independent
    """
    D, n = dencoded.shape[1], sample1 - sample0
    for i in range(n):
        last = group0 + (lengths[sample0 + i] - 1) * n + i
        for c in range(D // 2):
            dencoded[last, c] += dfirst[group0 + i, c]
            dencoded[group0 + i, D // 2 + c] += dfirst[group0 + i, D // 2 + c]


def forward(
    step: Builder, groups: Grid, *, first: Tensor, encoded: Tensor, lengths: Tensor, dfirst: Tensor
) -> partial[None]:
    """Add the copy over the groups' first slices. Returns the function that adds its reverse, which is due once
    `dfirst` has the gradients of the decoder's first states."""
    bytes_ = 2 * F32 * step.shape(first)[1]
    step.op(
        "bridge", "forward", bridge, groups, groups.cost(SAMPLES, 0, bytes_), first=Write(first, SAMPLES),
        encoded=Read(encoded, GROUP), lengths=Read(lengths, SAMPLES),
    )  # fmt: skip
    return partial(_backward, step, groups, encoded, lengths, dfirst)


def _backward(step: Builder, groups: Grid, encoded: Tensor, lengths: Tensor, dfirst: Tensor) -> None:
    D = step.shape(encoded)[1]
    step.op(
        "bridge", "backward", bridge_backward, groups, groups.cost(SAMPLES, D, 3 * F32 * D),
        dencoded=Update(step.tape.gradient(encoded), GROUP), dfirst=Read(dfirst, "row0:row1"),
        lengths=Read(lengths, SAMPLES),
    )  # fmt: skip
