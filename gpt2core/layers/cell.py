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
def units_of(gates, gate, first, U):
    """A gate's elements of the units [first, first + U); gates (4*H,)."""
    at = gate * (gates.shape[0] // 4) + first
    return gates[at : at + U]


@kernel
def cell_forward(h, c, past, gates, bias, first):
    """Units [first, first + U) of one sample's cell at one time: their gates, of (4*H,), become i, f, g, o; h, c (U,)
    =; past (U,): the cell's state before, or (0,) at the first time. Loops touch few arrays, so they are vectorised.
    """
    U = h.shape[0]
    i, b = units_of(gates, 0, first, U), units_of(bias, 0, first, U)
    for j in range(U):
        i[j] = sigmoid(i[j] + b[j])
    f, b = units_of(gates, 1, first, U), units_of(bias, 1, first, U)
    for j in range(U):
        f[j] = sigmoid(f[j] + b[j])
    g, b = units_of(gates, 2, first, U), units_of(bias, 2, first, U)
    for j in range(U):
        g[j] = tanh(g[j] + b[j])
    o, b = units_of(gates, 3, first, U), units_of(bias, 3, first, U)
    for j in range(U):
        o[j] = sigmoid(o[j] + b[j])
    if past.shape[0]:
        for j in range(U):
            c[j] = f[j] * past[j] + i[j] * g[j]
    else:
        for j in range(U):
            c[j] = i[j] * g[j]
    for j in range(U):
        h[j] = o[j] * tanh(c[j])


@kernel
def cell_backward(gates, dh, dc, c, past, first):
    """Units [first, first + U) of one sample's cell at one time, in place: their gates, of (4*H,), which are i, f, g,
    o, become the gradients of what the cell takes; dc (U,), the gradient of its state from the time after, becomes that
    for the time before.
    """
    U = dh.shape[0]
    o = units_of(gates, 3, first, U)
    for j in range(U):
        level = tanh(c[j])
        dc[j] += dh[j] * o[j] * (ONE - level * level)
        o[j] = dh[j] * level * o[j] * (ONE - o[j])
    i, g = units_of(gates, 0, first, U), units_of(gates, 2, first, U)
    for j in range(U):
        di = dc[j] * g[j] * i[j] * (ONE - i[j])
        g[j] = dc[j] * i[j] * (ONE - g[j] * g[j])
        i[j] = di
    f = units_of(gates, 1, first, U)
    if past.shape[0]:
        for j in range(U):
            df = dc[j] * past[j] * f[j] * (ONE - f[j])
            dc[j] *= f[j]
            f[j] = df
    else:
        for j in range(U):
            f[j] = ZERO


@kernel
def state_before(cell, first_cell, t, row, sample, unit0, unit1):
    """The state of a sample's units [unit0, unit1) before the time t: of its row, or before the first time; (0,) if it
    is 0.
    """
    if t:
        return cell[row, unit0:unit1]
    return first_cell[sample, unit0:unit1] if first_cell.shape[0] else cell[0, :0]
