"""The ResNet against PyTorch, live: the same initial weights, images and SGD."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "networks"))
import resnets
import torch_resnets
from safetensors.numpy import load_file
from safetensors.torch import load_model, save_model

from bench import torch_resnet
from gpt2core.networks.network import network_of
from gpt2core.networks.resnet.tensors import model_of
from gpt2core.run.train import train
from gpt2core.spec.fields import FUSIONS, SYNCS

pytestmark = pytest.mark.parity

HOW = [
    {"scheduler": "serial"},
    *({"scheduler": "fork-join", "threads": threads} for threads in (2, 8)),
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync in SYNCS for threads in (2, 8)),
    *({"scheduler": "task", "threads": 2, "fusion": fusion} for fusion in FUSIONS),
]
CHANGES = [{}, {"momentum": 0.0, "weight_decay": 0.0}, {"nesterov": True}, {"grad_clip": 0.5, "grad_accum": 2}]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_ten_steps_under_every_scheduler(change: dict[str, object]) -> None:
    """Losses agree to a relative 1e-5 with those in float64."""
    expected, _, _ = torch_resnets.train(resnets.config(**change))
    for how in HOW if not change else HOW[1:7:2]:
        result = train(resnets.config(**change, **how))
        np.testing.assert_allclose(result.losses, expected, rtol=1e-5)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_weights_after_ten_steps(change: dict[str, object], tmp_path: Path) -> None:
    """Weights agree to 1e-4 of their norm with those in float64."""
    config = resnets.config(**change, save=str(tmp_path / "final.safetensors"), scheduler="task", threads=2)
    train(config)
    _, _, expected = torch_resnets.train(config)
    found = load_file(config.save)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert np.linalg.norm(found[name] - array) <= 1e-4 * np.linalg.norm(array), name


def test_a_checkpoint_goes_to_torch_and_back_unchanged(tmp_path: Path) -> None:
    """PyTorch's file is our initial model. Its logits' loss is our first one. Our file after no update is its again."""
    config = resnets.config(steps=1)
    model = torch_resnet.ResNet(model_of(config))
    path, back = tmp_path / "torch.safetensors", tmp_path / "ours.safetensors"
    save_model(model, path)
    result = train(resnets.config(checkpoint=str(path), save=str(back), steps=1, lr=0.0, weight_decay=0.0))
    data = network_of(config).data(config)
    batch = torch_resnet.batch_of(data["samples"], data["order"], 0, config.batch, 9, torch.float32)
    assert result.losses[0] == pytest.approx(float(model(*batch).detach()), rel=1e-5)
    again = torch_resnet.ResNet(model_of(config))
    assert load_model(again, back) == (set(), [])
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
