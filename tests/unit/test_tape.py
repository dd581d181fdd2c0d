"""The tape of a step: what needs a gradient, where it lies, when its shares are ready, and sums that it refuses."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from gpt2core.networks import program
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import GraphError
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Tensor
from gpt2core.step.tape import Share, Tape

DATA, X, Y, Z, W = map(Tensor, ("data", "x", "y", "z", "w"))


def nothing(*_: object) -> None:
    """The reverse of a layer whose ops do not matter."""


def test_what_depends_on_weights_needs_a_gradient():
    tape = Tape()
    tape.leave(nothing, out=X, inp=DATA)
    assert not tape.reverses
    tape.leave(nothing, out=Y, inp=X, kind="linear", weights={W: []})
    tape.leave(nothing, out=Z, inp=Y)
    assert [tape.needs_gradient(tensor) for tensor in (DATA, X, Y, Z)] == [False, False, True, True]
    assert len(tape.reverses) == 2


def test_a_gradient_is_named_after_its_tensor_unless_it_is_computed_in_place():
    tape = Tape()
    assert tape.gradient(Tensor("x", 3)) == Tensor("dx", 3)
    tape.passes(Y, X)  # before the layer that reads y says where its gradient is
    tape.gradient_in(Y, Y)
    assert tape.gradient(X) == tape.gradient(Y) == Y


def test_a_share_waits_until_its_input_is_computed_again():
    tape = Tape()
    tape.leave(nothing, out=X, kind="embedding", weights={W: []})
    tape.leave(nothing, out=Y, inp=X, recomputed=Y)
    tape.shares = [Share(W, nothing, needs=Y), Share(W, nothing, needs=X)]
    assert [share.needs for share in tape.ready()] == [X]
    assert not tape.ready()
    tape.reverses.pop()
    assert [share.needs for share in tape.ready()] == [Y]


def test_weights_keep_the_blocks_and_the_kind_of_the_layer_that_reads_them_first():
    tape = Tape()
    tape.leave(nothing, out=X, kind="embedding", weights={W: []})
    tape.leave(nothing, out=Y, inp=X, kind="linear", weights={W: [], Tensor("v"): []})
    assert {kind: list(weights) for kind, weights in tape.parameters.items()} == {
        "embedding": [W], "linear": [Tensor("v")],
    }  # fmt: skip
    assert tape.uses[W] == 2


def test_two_layers_cannot_both_write_the_gradient_of_what_they_read():
    tape = Tape()
    tape.leave(nothing, out=X, kind="embedding", weights={W: []})
    tape.leave(nothing, out=X, inp=X)  # in place: the next layer reads its result
    tape.leave(nothing, out=Y, inp=X)
    with pytest.raises(GraphError, match="two layers read x, but only one can write its gradient"):
        tape.leave(nothing, out=Z, inp=X)


def test_a_residual_connection_reaches_the_one_layer_that_adds_it():
    tape = Tape()
    tape.leave(nothing, out=X, kind="embedding", weights={W: []})
    tape.bypass(Y, X)
    with pytest.raises(GraphError, match="two residual connections begin at x"):
        tape.bypass(Z, X)
    with pytest.raises(GraphError, match="a residual connection begins at x, but no layer that reads it adds"):
        tape.check_complete()
    assert tape.bypassing(X) == Tensor("dy")
    assert tape.bypassing(X) is None
    tape.check_complete()


@pytest.mark.parametrize("fusion", ["none", "all"])
@pytest.mark.parametrize("model", ["tiny", {"network": "lstm", "layers": 2, "hidden": 8, "embedding": 8, "vocab": 20}])
def test_a_step_is_freed_once_it_is_built(model: object, fusion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the collector of cycles, which is off while a graph is planned: a large one needs the memory."""
    built = []

    class Watched(Builder):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            built.append(weakref.ref(self))

    monkeypatch.setattr(program, "Builder", Watched)
    gc.disable()
    try:
        program.build(TrainConfig.from_dict({"model": model, "seq": 8, "fusion": fusion}))
        assert [step() for step in built] == [None]
    finally:
        gc.enable()
