"""Tensors that share memory: a place that would be overwritten too early is refused, any other one gives equal bits."""

from __future__ import annotations

import pytest

from gpt2core.networks import program
from gpt2core.networks.gpt2 import network, tensors
from gpt2core.run.train import train
from gpt2core.spec.config import ModelConfig, TrainConfig
from gpt2core.spec.errors import GraphError
from gpt2core.step.ops import Tensor

SMALL = TrainConfig(
    model=ModelConfig(layers=2, heads=2, channels=16, vocab=31, context=8), batch=2, seq=8, batch_slice=1,
    token_slice=4, steps=2, warmup=0, data="synthetic", blas="own", scheduler="serial", lr=1e-2,
)  # fmt: skip
PLACES = {name: place for name, place in tensors.places(SMALL).items() if place.layer is not None}
COUNT = {spec.name: spec.shape[0] for spec in tensors.activation_specs(SMALL)}


def moved(monkeypatch: pytest.MonkeyPatch, name: Tensor, place: Tensor) -> None:
    monkeypatch.setattr(network, "places", lambda config: {**tensors.places(config), name: place})


@pytest.mark.parametrize("name", PLACES, ids=str)
def test_every_other_place_is_refused_or_gives_the_same_bits(name: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = train(SMALL).weights_sha256
    refused = 0
    for layer in range(COUNT[PLACES[name].name]):
        place = Tensor(PLACES[name].name, layer)
        moved(monkeypatch, name, place)
        try:
            program.build(SMALL)
        except GraphError:
            refused += 1
            continue
        assert train(SMALL).weights_sha256 == expected, place
    assert refused


def test_the_refusal_names_what_is_read_and_what_has_overwritten_it(monkeypatch: pytest.MonkeyPatch) -> None:
    moved(monkeypatch, Tensor("dqkv", 1), Tensor("qkv", 0))  # which layer 0's backward pass still reads
    with pytest.raises(GraphError, match=r"^qkv\[0\] is read, but dqkv\[1\] has overwritten it in qkv\[0\]$"):
        program.build(SMALL)
    moved(monkeypatch, Tensor("dhidden", 1), Tensor("hidden", 1))
    with pytest.raises(GraphError, match=r"^dhidden\[1\] is computed in place of dactivated\[1\], but they lie in "):
        program.build(SMALL)
