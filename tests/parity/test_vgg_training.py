"""The VGG against PyTorch, live: the same initial weights, images and SGD."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "networks"))
import torch_vggs
import vggs
from safetensors.numpy import load_file
from safetensors.torch import load_model, save_model

from bench import torch_resnet, torch_vgg
from gpt2core.networks.network import network_of
from gpt2core.networks.vgg.tensors import model_of
from gpt2core.run.train import train

pytestmark = pytest.mark.parity

HOW = [{"scheduler": "serial"}, {"scheduler": "fork-join", "threads": 2}, {"scheduler": "task", "threads": 3}]


@pytest.mark.parametrize("change", [{}, {"nesterov": True}, {"grad_clip": 0.5, "grad_accum": 2}], ids=str)
def test_ten_steps_and_their_weights(change: dict[str, object], tmp_path: Path) -> None:
    """Losses agree to a relative 1e-5, weights and biases to 1e-4 of their layer's norm, with those in float64."""
    expected, _, weights = torch_vggs.train(vggs.config(**change))
    for how in HOW:
        config = vggs.config(**change, **how, save=str(tmp_path / "final.safetensors"))
        np.testing.assert_allclose(train(config).losses, expected, rtol=1e-5)
    found = load_file(config.save)
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        layer = np.linalg.norm([np.linalg.norm(weights[f"{name.rpartition('.')[0]}.{k}"]) for k in ("weight", "bias")])
        assert np.linalg.norm(found[name] - array) <= 1e-4 * layer, name


def test_a_checkpoint_goes_to_torch_and_back_unchanged(tmp_path: Path) -> None:
    config = vggs.config(steps=1)
    model = torch_vgg.VGG(model_of(config))
    path, back = tmp_path / "torch.safetensors", tmp_path / "ours.safetensors"
    save_model(model, path)
    result = train(vggs.config(checkpoint=str(path), save=str(back), steps=1, lr=0.0, weight_decay=0.0))
    data = network_of(config).data(config)
    batch = torch_resnet.batch_of(data["samples"], data["order"], 0, config.batch, 45, torch.float32)
    assert result.losses[0] == pytest.approx(float(model(*batch).detach()), rel=1e-5)
    again = torch_vgg.VGG(model_of(config))
    assert load_model(again, back) == (set(), [])
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
