"""A cell of long short-term memory: one sample at one time (Hochreiter & Schmidhuber 1997)."""

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import exp32, float32

ONE, TWO, ZERO = float32(1.0), float32(2.0), float32(0.0)


@kernel
def sigmoid(x):
    """1 / (1 + e^-x) of a float32."""
    return ONE / (ONE + exp32(-x))


@kernel
def tanh(x):
    """The hyperbolic tangent of a float32, with an absolute error below 2e-7."""
    return TWO / (ONE + exp32(-TWO * x)) - ONE


@kernel
def cell_forward(h, c, past, gates, bias):
    """One sample's cell at one time: gates (4*H,) become i, f, g, o; h, c (H,) =; past (H,): the cell's state before,
    or (0,) at the first time. Loops touch few arrays, so that they are vectorised.
    """
    H = h.shape[0]
    sides, b = gates[: 2 * H], bias[: 2 * H]
    for j in range(2 * H):
        sides[j] = sigmoid(sides[j] + b[j])
    g, b = gates[2 * H : 3 * H], bias[2 * H : 3 * H]
    for j in range(H):
        g[j] = tanh(g[j] + b[j])
    o, b = gates[3 * H : 4 * H], bias[3 * H : 4 * H]
    for j in range(H):
        o[j] = sigmoid(o[j] + b[j])
    i, f = gates[:H], gates[H : 2 * H]
    if past.shape[0]:
        for j in range(H):
            c[j] = f[j] * past[j] + i[j] * g[j]
    else:
        for j in range(H):
            c[j] = i[j] * g[j]
    for j in range(H):
        h[j] = o[j] * tanh(c[j])


@kernel
def cell_backward(gates, dh, dc, c, past):
    """One sample's cell at one time, in place: gates (4*H,), which are i, f, g, o, become the gradients of what the
    cell takes; dc (H,), the gradient of its state from the time after, becomes that for the time before.
    """
    H = dh.shape[0]
    o = gates[3 * H : 4 * H]
    for j in range(H):
        level = tanh(c[j])
        dc[j] += dh[j] * o[j] * (ONE - level * level)
        o[j] = dh[j] * level * o[j] * (ONE - o[j])
    i, g = gates[:H], gates[2 * H : 3 * H]
    for j in range(H):
        di = dc[j] * g[j] * i[j] * (ONE - i[j])
        g[j] = dc[j] * i[j] * (ONE - g[j] * g[j])
        i[j] = di
    f = gates[H : 2 * H]
    if past.shape[0]:
        for j in range(H):
            df = dc[j] * past[j] * f[j] * (ONE - f[j])
            dc[j] *= f[j]
            f[j] = df
    else:
        for j in range(H):
            f[j] = ZERO


@kernel
def state_before(cell, first_cell, t, row, sample):
    """The cell's state of a sample before the time t: of its row, or before the first time; (0,) if it is 0."""
    if t:
        return cell[row]
    return first_cell[sample] if first_cell.shape[0] else cell[0, :0]
