"""The limit on the norm of all gradients together."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.control import ASKED, STOP
from gpt2core.step.grid import F32, F64, ONE_TILE
from gpt2core.step.ops import Arena, Read, Reduce, Tensor, Write
from gpt2core.step.parameters import BOTH, Parameter, grid
from gpt2core.step.signature import Float64s, Int64s, Scalar, Step, TileInt, Vector

LEAST = 1e-6  # added to the norm, as PyTorch does, so that gradients of 0 stay 0


class Share(Protocol):
    """How several ranks compute the norm of all their gradients."""

    @property
    def squares(self) -> Tensor:
        """The squares of this rank's parts."""

    def counted(self, parameters: Sequence[Parameter]) -> Sequence[Parameter]:
        """Those of parameters whose gradients this rank adds."""

    def norm(self, step: Builder, count: int) -> Tensor:
        """Add the exchange of the ranks' sums of squares, of which this one has `count`; the tensor of all sums, in
        rank order."""


@kernel
def gradient_squares(
    squares: Float64s, gradients: Vector, a0: TileInt, a1: TileInt, b0: TileInt, b1: TileInt, slot: TileInt
):
    """Sum the squares of the gradients [a0, a1) and [b0, b1).

    Writes:   squares (any,) float64, element `slot` =
    Reads:    gradients (any,)
    Maths:    sum of g^2, in float64
    Tiles:    different slots are independent
    Cost:     2 flop, 4 bytes per element
    """
    total = 0.0
    for begin, end in ((a0, a1), (b0, b1)):
        part = gradients[begin:end]
        for i in range(end - begin):
            g = np.float64(part[i])
            total += g * g
    squares[slot] = total


@kernel
def clip(
    clipping: Float64s, norms: Float64s, control: Int64s, squares: Float64s, settings: Float64s, step: Step,
    stop: Scalar,
):  # fmt: skip
    """Compute the factor that scales the step's gradients to a norm of at most the limit. Stop the run if the norm is
    not finite.

    Writes:   clipping (1,) float64 =; norms (steps,) float64, element `step` =: the norm before; control (any,) int64,
              element `stop` = 1 if it is not finite
    Reads:    squares (any,) float64, summed in their order; settings (any,) float64, whose last is the limit
    Maths:    norm = sqrt(sum squares); clipping = min(1, limit / (norm + 1e-6))
    Source:   torch.nn.utils.clip_grad_norm_; Pascanu et al. 2013
    """
    total = 0.0
    for slot in range(squares.shape[0]):
        total += squares[slot]
    norm = math.sqrt(total)
    norms[step] = norm
    clipping[0] = min(1.0, settings[settings.shape[0] - 1] / (norm + LEAST))
    if not math.isfinite(norm):
        control[stop] = 1


def clip_norm(
    step: Builder, parameters: Sequence[Parameter], gradients: Arena, share: Share | None, *,
    clipping: Tensor, norms: Tensor, control: Tensor, squares: Tensor, settings: Tensor,
) -> None:  # fmt: skip
    """Add the norm of all parameters' gradients, a tile for each, and the factor of the update. share: of several
    ranks. A norm that is not finite asks them to stop, since they do so after the same step.
    """
    if share is not None:
        parameters, squares = share.counted(parameters), share.squares
    step.op(
        "gradient_squares", "update", gradient_squares,
        grid(parameters, gradients).with_columns(slot=range(len(parameters))),
        [(2 * p.size, F32 * p.size) for p in parameters], filler=True,
        squares=Write(squares, "slot"), gradients=Read(gradients, BOTH),
    )  # fmt: skip
    if share is not None:
        squares = share.norm(step, len(parameters))
    (count,) = step.shape(squares)
    step.op(
        "clip", "update", clip, ONE_TILE, [(count, F64 * count)], filler=True,
        clipping=Write(clipping), norms=Write(norms), control=Reduce(control), squares=Read(squares),
        settings=Read(settings), stop=STOP if share is None else ASKED,
    )  # fmt: skip
