"""Whatever shares memory, the graph is race-free and the bits are the same: only edges and bytes differ."""

from __future__ import annotations

from typing import Any

import pytest

from gpt2core.networks import lifetimes
from gpt2core.run.prepare import plan
from gpt2core.run.train import train
from gpt2core.spec import modes
from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.spec.models import ModelConfig, model_from
from gpt2core.spec.phases import MODES
from gpt2core.step.placement import Policy

COMMON: dict[str, Any] = {
    "batch": 2, "seq": 8, "batch_slice": 1, "token_slice": 4, "steps": 3, "warmup": 0, "data": "synthetic",
    "blas": "own", "scheduler": "task", "sync": "none", "threads": 2, "lr": 1e-2, "allow_oversubscription": True,
}  # fmt: skip
CONFIGS = {
    "gpt2": TrainConfig(ModelConfig(layers=2, heads=2, channels=16, vocab=31, context=8), **COMMON),
    "lstm": TrainConfig(model_from("lstm-tiny"), **COMMON),
}
POLICIES = {"rings": Policy(), "spare": Policy(spare=1), "first fit": Policy(alike=False), "apart": Policy(spare=1000)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CONFIGS)
def test_every_policy_gives_the_same_bits(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, found, bits = modes.in_mode(CONFIGS[name], mode, DEFAULTS), {}, set()
    for policy, how in POLICIES.items():
        monkeypatch.setitem(lifetimes.POLICIES, MODES[mode].has_gradients, how)
        found[policy] = plan(config, prove=True).memory_bytes["activations"]
        result = train(config)
        bits.add((tuple(result.losses), result.weights_sha256, result.outputs_sha256))
    assert len(bits) == 1
    assert found["first fit"] <= found["rings"] <= found["spare"] <= found["apart"]
