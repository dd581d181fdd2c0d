"""Softmax, cross-entropy and its gradient, in place on the logits."""

import math

import numpy as np

from gpt2core.compile.jit import STEP, d1, entry, f1, f2, i1, kernel, l1, scalar
from gpt2core.compile.vector import exp32, maximum32
from gpt2core.step.control import STOP


@kernel
def cross_entropy(logits, loss, targets, V, micros, row0, row1):
    """Turn the logits of rows [row0, row1) into the gradient of the step's mean loss, over `micros` batches of N rows.

    Writes:   logits (N, Vp): on entry the logits, on exit their gradient, 0 in the columns from V on; loss (N,) =
    Reads:    targets (N,) int32
    Maths:    loss = logsumexp(l[:V]) - l[target]; dl = (softmax(l[:V]) - onehot(target)) / (N * micros)
    Tiles:    disjoint row ranges are independent
    Cost:     12*V flop, 8*Vp bytes per row
    Source:   torch.nn.functional.cross_entropy
    """
    share = np.float32(1.0) / np.float32(logits.shape[0] * micros)
    for n in range(row0, row1):
        row = logits[n]
        top = row[0]
        for v in range(V):
            top = maximum32(top, row[v])
        target = targets[n]
        wanted = row[target]
        total = np.float32(0)
        for v in range(V):
            e = exp32(row[v] - top)
            row[v] = e
            total += e
        loss[n] = np.float32(math.log(total)) + top - wanted
        scale = share / total
        for v in range(V):
            row[v] *= scale
        row[target] -= share
        for v in range(V, logits.shape[1]):
            row[v] = 0


@kernel
def mean_loss(losses, control, loss, step, micro, micros):
    """Batch `micro`'s part of the step's mean loss over `micros`; asks the run to stop if it is not finite.

    Writes:   losses (steps,) float64, element `step` = for the first batch, += for others; control (any,) int64,
              element STOP = 1 if the loss is not finite
    Reads:    loss (N,)
    Maths:    the sum of loss / (N * micros), in the order of the rows in float64
    """
    total = 0.0
    for n in range(loss.shape[0]):
        total += loss[n]
    share = total / (loss.shape[0] * micros)
    losses[step] = losses[step] + share if micro else share
    if not math.isfinite(total):
        control[STOP] = 1


@entry
def cross_entropy_entry(x, t, c):
    cross_entropy(f2(x, 0), f1(x, 1), i1(x, 2), scalar(x, 3), scalar(x, 4), t[0], t[1])


@entry
def mean_loss_entry(x, t, c):
    mean_loss(d1(x, 0), l1(x, 1), f1(x, 2), c[STEP], scalar(x, 3), scalar(x, 4))
