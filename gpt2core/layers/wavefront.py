"""Layers of cells, each on the one before it: they and their chunks of time form a wavefront, which follows from the
accesses. Here their ops get an order: layer after layer, or by anti-diagonals, as one would write a wavefront by hand.

Tiles, what they access, and so what waits for what are the same. Only loops with barriers run them in another order.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from gpt2core.layers.recurrent_layer import Layer, Stage, add
from gpt2core.step.builder import Builder

T = TypeVar("T")


def forward(layers: Sequence[Layer], order: str) -> None:
    """Add the layers in an order of spec.fields.OP_ORDERS. Reverse: the same with the last layer and chunk first, then
    the gradients of the weights. The gradient of `gates` is computed in their place.
    """
    step = layers[0].step
    for layer in layers:
        step.tape.gradient_in(layer.gates, layer.gates)
    with step.beside():
        for layer in layers:
            layer.pack()
    if order == "diagonals":
        for diagonal in diagonals([[(layer, chunk) for chunk in layer.chunks()] for layer in layers]):
            _side_by_side(step, [layer.stages(chunk) for layer, chunk in diagonal])
        _leave(step, layers, partial(_backward, step, layers))
    else:
        for layer in layers:
            layer.forward()
            _leave(step, [layer], layer.backward)


def _backward(step: Builder, layers: Sequence[Layer]) -> None:
    cells = [[(layer, chunk) for chunk in reversed(layer.chunks())] for layer in reversed(layers)]
    for diagonal in diagonals(cells):
        _side_by_side(step, [layer.reverse_stages(chunk) for layer, chunk in diagonal], at_end=True)
    for layer in reversed(layers):
        layer.leave_shares()


def _leave(step: Builder, layers: Sequence[Layer], reverse: Callable[[], None]) -> None:
    weights = {weight: blocks for layer in layers for weight, blocks in layer.weights().items()}
    step.tape.leave(reverse, out=layers[-1].out, inp=layers[0].inp, kind="recurrence", weights=weights)


def diagonals(table: Sequence[Sequence[T]]) -> list[list[T]]:
    """The anti-diagonals of a table, the one of its first cell first."""
    rows, columns = len(table), len(table[0])
    return [
        [table[row][number - row] for row in range(rows) if 0 <= number - row < columns]
        for number in range(rows + columns - 1)
    ]


def _side_by_side(step: Builder, cells: Sequence[Sequence[Stage]], at_end: bool = False) -> None:
    """Add the ops of chunks that do not wait for each other: the first stage of all is side by side, then the second
    one. With blocks of units a shorter chunk has fewer stages. `at_end`: it begins later, so that all end together.
    """
    most = max(len(stages) for stages in cells)
    for number in range(most):
        with step.beside():
            for stages in cells:
                at = number - (most - len(stages) if at_end else 0)
                if 0 <= at < len(stages):
                    add(step, [stages[at]])
