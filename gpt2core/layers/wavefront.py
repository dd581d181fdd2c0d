"""Layers of cells, each on the one before it: they and their chunks of time form a wavefront, which follows from the
accesses. Here their ops get an order: layer after layer, or by anti-diagonals, as one would write a wavefront by hand.

Tiles, what they access, and so what waits for what are the same. Only loops with barriers run them in another order.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from gpt2core.layers.recurrence import Layer, Parts
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
            _side_by_side(step, [layer.parts(chunk) for layer, chunk in diagonal])
        _leave(step, layers, partial(_backward, step, layers))
    else:
        for layer in layers:
            layer.forward()
            _leave(step, [layer], layer.backward)


def _backward(step: Builder, layers: Sequence[Layer]) -> None:
    cells = [[(layer, chunk) for chunk in reversed(layer.chunks())] for layer in reversed(layers)]
    for diagonal in diagonals(cells):
        _side_by_side(step, [layer.reverse_parts(chunk) for layer, chunk in diagonal])
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


def _side_by_side(step: Builder, cells: Sequence[Parts]) -> None:
    """Add the ops of chunks that do not wait for each other. With fusion a chunk is one op; else the first ops of all
    are side by side, then the second ones."""
    if step.fusion == "none":
        for together in zip(*cells, strict=True):
            with step.beside():
                for add in together:
                    add()
        return
    with step.beside():
        for parts in cells:
            with step.fused():
                for add in parts:
                    add()
