"""The limit on the norm of all gradients together."""

import math

import numpy as np

from gpt2core.compile.jit import STEP, d1, entry, f1, kernel, l1
from gpt2core.step.control import STOP

LEAST = 1e-6  # added to the norm, as PyTorch does, so that gradients of 0 stay 0


@kernel
def gradient_squares(squares, gradients, a0, a1, b0, b1, slot):
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
def clip(clipping, norms, control, squares, limit, step):
    """By what the step's gradients are scaled so that their norm is at most `limit`; asks the run to stop if the norm
    is not finite.

    Writes:   clipping (1,) float64 =; norms (steps,) float64, element `step` =: the norm before; control (any,) int64,
              element STOP = 1 if it is not finite
    Reads:    squares (any,) float64, summed in their order
    Maths:    norm = sqrt(sum squares); clipping = min(1, limit / (norm + 1e-6))
    Source:   torch.nn.utils.clip_grad_norm_; Pascanu et al. 2013
    """
    total = 0.0
    for slot in range(squares.shape[0]):
        total += squares[slot]
    norm = math.sqrt(total)
    norms[step] = norm
    clipping[0] = min(1.0, limit / (norm + LEAST))
    if not math.isfinite(norm):
        control[STOP] = 1


@entry
def gradient_squares_entry(x, t, c):
    gradient_squares(d1(x, 0), f1(x, 1), t[0], t[1], t[2], t[3], t[4])


@entry
def clip_entry(x, t, c):
    clip(d1(x, 0), d1(x, 1), l1(x, 2), d1(x, 3), d1(x, 4)[5], c[STEP])
