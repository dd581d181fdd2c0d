"""The LSTM against torch.nn.LSTM, live: the same initial weights, tokens and AdamW."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_model, save_model

from bench.torch_gpt2 import batch_of
from bench.torch_lstm import LSTM
from gpt2core.data.sources import open_tokens
from gpt2core.networks.lstm.checkpoint import read_checkpoint
from gpt2core.networks.lstm.tensors import model_of
from gpt2core.run.train import train
from gpt2core.spec.fields import SYNCS
from tests.support.networks import lstms, torch_lstms
from tests.support.present import present

pytestmark = pytest.mark.parity

HOW: list[dict[str, Any]] = [
    {"scheduler": "serial"},
    *({"scheduler": "fork-join", "threads": threads} for threads in (1, 2, 3, 8)),
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync in SYNCS for threads in (2, 8)),
    {"scheduler": "fork-join", "threads": 2, "op_order": "diagonals"},
    {"scheduler": "task", "threads": 3, "unit_slice": 4},
    {"scheduler": "fork-join", "threads": 3, "unit_slice": 5, "op_order": "diagonals"},
]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("limit", [0.0, 0.3])
@pytest.mark.parametrize("case", lstms.CASES)
def test_ten_steps_under_every_scheduler(case: str, limit: float, decay: float) -> None:
    """Losses agree to a relative 1e-5 with those in float32. All schedulers have the same bits
    (tests/networks/test_lstm.py), so every one is compared with all settings together, and some with each alone."""
    settings: dict[str, Any] = {"weight_decay": decay, "grad_clip": limit}
    expected, _ = torch_lstms.train(lstms.config(case, **settings), torch.float32)
    for how in HOW if limit and decay else HOW[::5]:
        result = train(lstms.config(case, **settings, **how))
        np.testing.assert_allclose(result.losses, expected, rtol=1e-5)


@pytest.mark.parametrize("change", [{"momentum": 0.9}, {"momentum": 0.9, "weight_decay": 0.1, "grad_clip": 0.3}])
@pytest.mark.parametrize("case", lstms.CASES)
def test_sgd(case: str, change: dict[str, float]) -> None:
    settings: dict[str, Any] = {"weight_decay": 0.0, "grad_clip": 0.0, "optimizer": "sgd", "lr": 0.5, **change}
    expected, _ = torch_lstms.train(lstms.config(case, **settings), torch.float32)
    for how in HOW[::3]:
        np.testing.assert_allclose(train(lstms.config(case, **settings, **how)).losses, expected, rtol=1e-5)


@pytest.mark.parametrize("case", lstms.CASES)
def test_a_checkpoint_goes_to_torch_and_back_unchanged(case: str, tmp_path: Path) -> None:
    """PyTorch's file is our initial model. Its logits' loss is our first one. Our file after no update is its again."""
    config = lstms.config(case)
    model = LSTM(model_of(config))
    path, back = tmp_path / "torch.safetensors", tmp_path / "ours.safetensors"
    save_model(model, str(path))
    settings: dict[str, Any] = {"checkpoint": str(path), "save": str(back), "steps": 1, "lr": 0.0, "weight_decay": 0.0,
                "init_scale": 0.0}  # fmt: skip
    result = train(lstms.config(case, **settings))
    expected = float(model(*batch_of(open_tokens(config), 0, config.batch, config.seq)).detach())
    assert result.losses[0] == pytest.approx(expected, rel=1e-5)
    again = LSTM(model_of(config))
    assert load_model(again, back) == (set(), [])
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("case", lstms.CASES)
def test_weights_after_ten_steps(case: str, tmp_path: Path) -> None:
    """Weights agree to 1e-4 of their norm with those in float64."""
    config = lstms.config(case, save=str(tmp_path / "final.safetensors"), scheduler="task", threads=2)
    train(config)
    _, expected = torch_lstms.train(config)
    found = {name: np.empty(array.shape, np.float32) for name, array in expected.items()}
    read_checkpoint(present(config.save), model_of(config), found)
    for name, array in expected.items():
        assert np.linalg.norm(found[name] - array) <= 1e-4 * np.linalg.norm(array), name


def test_bf16_follows_pytorchs_autocast() -> None:
    """Fifty losses agree within 1 %. PyTorch rounds results of products too."""
    model = {"network": "lstm", "embedding": 64, "hidden": 64, "layers": 2, "vocab": 256}
    config = lstms.config(
        model=model, batch=4, seq=32, batch_slice=2, token_slice=8, steps=50, lr=5e-3, precision="bf16", data="stdlib"
    )
    expected, _ = torch_lstms.train(config, torch.float32)
    losses = train(config).losses
    assert losses[-1] < 0.8 * losses[0]
    np.testing.assert_allclose(losses, expected, rtol=0.01)
