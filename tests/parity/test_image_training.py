"""Networks on images against PyTorch, live: the same initial weights, images and SGD."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import load_model, save_model

from bench import torch_images
from gpt2core.networks.network import network_of
from gpt2core.run.train import train
from gpt2core.spec.fields import FUSIONS, SYNCS
from tests.support.networks import resnets, torch_trained, vggs

pytestmark = pytest.mark.parity

NETWORKS = pytest.mark.parametrize("network", [resnets, vggs], ids=["resnets", "vggs"])
FEW: list[dict[str, Any]] = [
    {"scheduler": "serial"}, {"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 3}
]  # fmt: skip
HOW: list[dict[str, Any]] = [
    *FEW,
    {"scheduler": "fork-join", "threads": 8},
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync in SYNCS for threads in (2, 8)),
    *({"scheduler": "task", "threads": 2, "fusion": fusion} for fusion in FUSIONS),
]
CHANGES: list[dict[str, Any]] = [
    {}, {"momentum": 0.0, "weight_decay": 0.0}, {"nesterov": True}, {"grad_clip": 0.5, "grad_accum": 2}
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
@NETWORKS
def test_ten_steps_and_their_weights(network: ModuleType, change: dict[str, Any], tmp_path: Path) -> None:
    """Losses agree to a relative 1e-5 with those in float64; weights to 1e-4 of their norm, and biases to 1e-4 of their
    layer's."""
    expected, _, weights = torch_trained.train(network.config(**change))
    for how in FEW if change or network is vggs else HOW:
        config = network.config(**change, **how, save=str(tmp_path / "final.safetensors"))
        np.testing.assert_allclose(train(config).losses, expected, rtol=1e-5, err_msg=str(how))
    found = load_file(config.save)
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        norm = np.linalg.norm(weights[f"{name.rpartition('.')[0]}.weight"])
        assert np.linalg.norm(found[name] - array) <= 1e-4 * norm, name


@NETWORKS
def test_a_checkpoint_goes_to_torch_and_back_unchanged(network: ModuleType, tmp_path: Path) -> None:
    """PyTorch's file is our initial model. Its logits' loss is our first one. Our file after no update is its again."""
    config = network.config(steps=1)
    model = torch_images.new_model(config)
    path, back = tmp_path / "torch.safetensors", tmp_path / "ours.safetensors"
    save_model(model, str(path))
    result = train(network.config(checkpoint=str(path), save=str(back), steps=1, lr=0.0, weight_decay=0.0))
    batch = torch_images.batch_of(network_of(config).data(config), config, 0, torch.float32)
    assert result.losses[0] == pytest.approx(float(model(*batch).detach()), rel=1e-5)
    again = torch_images.new_model(config)
    assert load_model(again, back) == (set(), [])
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
