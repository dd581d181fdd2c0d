"""The optimizer."""

import math

import numpy as np

from gpt2core.compile.jit import STEP, d1, entry, f1, kernel, own1


@kernel
def adamw_update(weights, gradients, first, second, settings, factor, step, begin, end, at):
    """One AdamW step of the elements [begin, end).

    Writes:   weights, first, second (any,): updated in place; first and second are the moments
    Reads:    gradients (any,), that of element `begin` at `at`; settings (any,) float64: lr, beta1, beta2, eps, weight
              decay; factor () float32; step counts from 0
    Maths:    g = factor gradient; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; t = step + 1
              w = w (1 - lr wd) - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
    Tiles:    disjoint ranges are independent
    Cost:     15 flop, 28 bytes per element
    Source:   Loshchilov & Hutter 2019; torch.optim.AdamW
    """
    lr, beta1, beta2, eps = settings[0], settings[1], settings[2], np.float32(settings[3])
    t = float(step + 1)
    rate = np.float32(lr / (1.0 - beta1**t))
    root = np.float32(1.0 / math.sqrt(1.0 - beta2**t))
    keep = np.float32(1.0 - lr * settings[4])
    b1, c1 = np.float32(beta1), np.float32(1.0 - beta1)
    b2, c2 = np.float32(beta2), np.float32(1.0 - beta2)
    w, g, m, v = weights[begin:end], gradients[at : at + end - begin], first[begin:end], second[begin:end]
    for i in range(end - begin):  # from 0: an index that may be negative keeps LLVM from vectorising
        scaled = factor * g[i]
        m1 = b1 * m[i] + c1 * scaled
        v1 = b2 * v[i] + c2 * scaled * scaled
        m[i] = m1
        v[i] = v1
        w[i] = keep * w[i] - rate * m1 / (np.sqrt(v1) * root + eps)


@entry
def adamw_update_entry(x, t, c):
    # A tile is a block of a matrix and, where it has one, the block of its bias: two ranges, the second may be empty.
    gradients, clipping = own1(x, 1, c), d1(x, 5)
    factor = np.float32(clipping[0] if clipping.shape[0] else 1.0)
    adamw_update(f1(x, 0), gradients, f1(x, 2), f1(x, 3), d1(x, 4), factor, c[STEP], t[0], t[1], t[4])
    adamw_update(f1(x, 0), gradients, f1(x, 2), f1(x, 3), d1(x, 4), factor, c[STEP], t[2], t[3], t[5])
