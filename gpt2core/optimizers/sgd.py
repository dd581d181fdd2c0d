"""Stochastic gradient descent, with momentum."""

from collections.abc import Mapping, Sequence

import numpy as np

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Arena, Own, Read, Tensor, Update
from gpt2core.step.parameters import BOTH, KEPT, WEIGHTS, Elements, Parameter, grid
from gpt2core.step.signature import Float64s, OwnVector, Step, Vector


@kernel
def sgd_update(weights, gradients, velocity, settings, lr, wd, factor, begin, end, at):
    """One step of the elements [begin, end).

    Writes:   weights (any,) updated; velocity (any,) updated, from that of element `begin` on, or (0,)
              without momentum
    Reads:    gradients (any,), that of element `begin` at `at`; settings (any,) float64: at 1 momentum, at 2 whether it
              is Nesterov's; lr, wd float64, of these elements; factor () float32
    Maths:    g = factor gradient + wd w; v = mu v + g; w = w - lr g without momentum, w - lr v with it, and
              w - lr (g + mu v) with Nesterov's
    Tiles:    disjoint ranges are independent
    Cost:     5 flop, 12 bytes per element; with momentum 9 flop, 20 bytes
    Source:   Sutskever et al. 2013; torch.optim.SGD
    """
    rate, mu, decay = np.float32(lr), np.float32(settings[1]), np.float32(wd)
    w, g = weights[begin:end], gradients[at : at + end - begin]
    if velocity.shape[0] == 0:
        for i in range(end - begin):  # from 0: an index that may be negative keeps LLVM from vectorising
            w[i] -= rate * (factor * g[i] + decay * w[i])
        return
    v = velocity[: end - begin]
    of_gradient, of_velocity = np.float32(0), np.float32(1)
    if settings[2] != 0:
        of_gradient, of_velocity = np.float32(1), mu
    for i in range(end - begin):
        scaled = factor * g[i] + decay * w[i]
        v1 = mu * v[i] + scaled
        v[i] = v1
        w[i] -= rate * (of_gradient * scaled + of_velocity * v1)


@kernel
def sgd(
    weights: Vector, gradients: OwnVector, velocity: Vector, settings: Float64s, rates: Float64s, clipping: Float64s,
    step: Step, of: Elements,
):  # fmt: skip
    """sgd_update of a parameter's elements, with gradients scaled by `clipping`."""
    lr = rates[step] if rates.shape[0] else settings[0]
    factor = np.float32(clipping[0] if clipping.shape[0] else 1.0)
    wd, of_biases = settings[3], settings[settings.shape[0] - 2]
    v = velocity[of.kept_a :]
    sgd_update(weights, gradients, v, settings, lr, wd, factor, of.a0, of.a1, of.at_a)
    v = velocity[of.kept_b :]
    sgd_update(weights, gradients, v, settings, lr, of_biases, factor, of.b0, of.b1, of.at_b)


def update(
    step: Builder, parameters: Sequence[Parameter], layer: int | None, *,
    gradients: Arena | Own, settings: Tensor, rates: Tensor | None, clipping: Tensor | None,
    state: Mapping[str, Tensor],
) -> None:  # fmt: skip
    """Add the update of parameters, a tile each."""
    velocity = state.get("velocity")
    flop, size = (9, 20) if velocity else (5, 12)
    step.op(
        "sgd", "update", sgd, grid(parameters, gradients), [(flop * p.size, size * p.size) for p in parameters], layer,
        filler=True,
        weights=Update(WEIGHTS, BOTH), gradients=gradients if isinstance(gradients, Own) else Read(gradients, BOTH),
        velocity=velocity and Update(velocity, KEPT), settings=Read(settings), rates=rates and Read(rates),
        clipping=clipping and Read(clipping),
    )  # fmt: skip
