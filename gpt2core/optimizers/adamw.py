"""AdamW."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Arena, Own, Read, Tensor, Update
from gpt2core.step.parameters import BOTH, KEPT, WEIGHTS, Elements, Parameter, grid
from gpt2core.step.signature import Float64s, OwnVector, Step, Vector


@kernel
def adamw_update(weights, gradients, first, second, settings, lr, wd, factor, step, begin, end, at):
    """One AdamW step of the elements [begin, end).

    Writes:   weights, first, second (any,): updated in place; first and second are the moments, from that
              of element `begin` on
    Reads:    gradients (any,), that of element `begin` at `at`; settings (any,) float64: from 1 on beta1, beta2, eps;
              lr, wd float64, of these elements; factor () float32; step counts from 0
    Maths:    g = factor gradient; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; t = step + 1
              w = w (1 - lr wd) - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
    Tiles:    disjoint ranges are independent
    Cost:     15 flop, 28 bytes per element
    Source:   Loshchilov & Hutter 2019; torch.optim.AdamW
    """
    beta1, beta2, eps = settings[1], settings[2], np.float32(settings[3])
    t = float(step + 1)
    rate = np.float32(lr / (1.0 - beta1**t))
    root = np.float32(1.0 / math.sqrt(1.0 - beta2**t))
    keep = np.float32(1.0 - lr * wd)
    b1, c1 = np.float32(beta1), np.float32(1.0 - beta1)
    b2, c2 = np.float32(beta2), np.float32(1.0 - beta2)
    w, g = weights[begin:end], gradients[at : at + end - begin]
    m, v = first[: end - begin], second[: end - begin]
    for i in range(end - begin):  # from 0: an index that may be negative keeps LLVM from vectorising
        scaled = factor * g[i]
        m1 = b1 * m[i] + c1 * scaled
        v1 = b2 * v[i] + c2 * scaled * scaled
        m[i] = m1
        v[i] = v1
        w[i] = keep * w[i] - rate * m1 / (np.sqrt(v1) * root + eps)


@kernel
def adamw(
    weights: Vector, gradients: OwnVector, first: Vector, second: Vector, settings: Float64s, rates: Float64s,
    clipping: Float64s, step: Step, of: Elements,
):  # fmt: skip
    """adamw_update of a parameter's elements, with gradients scaled by `clipping`."""
    lr = rates[step] if rates.shape[0] else settings[0]
    factor = np.float32(clipping[0] if clipping.shape[0] else 1.0)
    wd, of_biases = settings[4], settings[settings.shape[0] - 2]
    m, v = first[of.kept_a :], second[of.kept_a :]
    adamw_update(weights, gradients, m, v, settings, lr, wd, factor, step, of.a0, of.a1, of.at_a)
    m, v = first[of.kept_b :], second[of.kept_b :]
    adamw_update(weights, gradients, m, v, settings, lr, of_biases, factor, step, of.b0, of.b1, of.at_b)


def update(
    step: Builder, parameters: Sequence[Parameter], layer: int | None, *,
    gradients: Arena | Own, settings: Tensor, rates: Tensor | None, clipping: Tensor | None,
    state: Mapping[str, Tensor],
) -> None:  # fmt: skip
    """Add the update of parameters, a tile each."""
    step.op(
        "adamw", "update", adamw, grid(parameters, gradients), [(15 * p.size, 28 * p.size) for p in parameters], layer,
        filler=True,
        weights=Update(WEIGHTS, BOTH), gradients=gradients if isinstance(gradients, Own) else Read(gradients, BOTH),
        first=Update(state["first_moment"], KEPT), second=Update(state["second_moment"], KEPT),
        settings=Read(settings), rates=rates and Read(rates), clipping=clipping and Read(clipping),
    )  # fmt: skip
