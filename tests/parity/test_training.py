"""The trainer against PyTorch: the same checkpoint (written by PyTorch's side), tokens and AdamW, in fp32.

A weight's error is the norm of the difference relative to the norm of PyTorch's tensor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.torch_gpt2 import (
    GPT2,
    random_model,
    read_llmc_checkpoint,
    train_with_norms,
    weights_of,
    write_llmc_checkpoint,
)
from bench.torch_gpt2 import train as train_torch
from gpt2core.data.sources import open_tokens
from gpt2core.networks.gpt2.checkpoint import read_checkpoint
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.run.train import train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import PRESETS, ModelConfig
from gpt2core.spec.optimizers import learning_rates
from tests.support.weight_parts import parts

pytestmark = pytest.mark.parity

SMALL = ModelConfig(layers=3, heads=4, channels=48, vocab=260, context=32)
SCHEDULERS: list[dict[str, Any]] = [
    {"scheduler": "serial"},
    {"scheduler": "fork-join", "threads": 2, "batch_slice": 1, "token_slice": 7},
    {"scheduler": "task", "threads": 2, "batch_slice": 2, "token_slice": 9},
]


def prepare(folder: Path, model: GPT2, **settings: object) -> TrainConfig:
    """A run that starts from the model's weights, which PyTorch's side wrote."""
    write_llmc_checkpoint(folder / "initial.bin", model)
    return TrainConfig.from_dict({
        "model": model.sizes, "checkpoint": str(folder / "initial.bin"), "save": str(folder / "final.bin"),
        "allow_oversubscription": True, **settings,
    })  # fmt: skip


def final_weights(config: TrainConfig) -> dict[str, np.ndarray]:
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in weight_specs(config.model)}
    assert config.save is not None
    assert isinstance(config.model, ModelConfig)
    read_checkpoint(config.save, config.model, weights)
    return weights


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("how", SCHEDULERS, ids=lambda how: str(how["scheduler"]))
def test_ten_steps_of_a_small_gpt2(tmp_path: Path, how: dict[str, Any], decay: float) -> None:
    """Losses and weights agree to a relative 1e-5; the biases of keys, whose true gradient is 0, to 1e-4."""
    model = random_model(SMALL, seed=1)
    config = prepare(tmp_path, model, **how, batch=3, seq=25, steps=10, data="stdlib", lr=3e-4, weight_decay=decay)
    losses = train(config).losses
    expected = train_torch(model, config, open_tokens(config))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    got = final_weights(config)
    for name, array in weights_of(model).items():
        for (label, ours, relative), (_, theirs, _) in zip(parts(name, got[name]), parts(name, array), strict=True):
            error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
            assert error <= relative, f"{label}: {error:.2e}"


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 0.1},
        {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1, "lr_schedule": "cosine", "lr_warmup": 3, "lr_final": 0.1},
        {"lr": 0.02, "momentum": 0.9, "nesterov": True, "grad_accum": 2, "grad_clip": 1.5,
         "lr_schedule": "steps", "lr_decay": 0.5, "lr_every": 2, "lr_hold": 4},
    ],
    ids=["plain", "momentum", "nesterov"],
)  # fmt: skip
def test_ten_steps_with_sgd(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Losses and weights agree to a relative 1e-5, as with AdamW."""
    model = random_model(SMALL, seed=7)
    config = prepare(tmp_path, model, **SCHEDULERS[2], batch=3, seq=25, steps=10, data="stdlib", optimizer="sgd",
                     **settings)  # fmt: skip
    losses = train(config).losses
    expected = train_torch(model, config, open_tokens(config))
    assert losses[-1] < losses[0] - 0.1
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    got = final_weights(config)
    for name, array in weights_of(model).items():
        for (label, ours, relative), (_, theirs, _) in zip(parts(name, got[name]), parts(name, array), strict=True):
            error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
            assert error <= relative, f"{label}: {error:.2e}"


@pytest.mark.parametrize("settings", [
    {"lr_schedule": "cosine"}, {"lr_schedule": "cosine", "lr_warmup": 4, "lr_final": 0.2},
    {"lr_schedule": "steps", "lr_every": 3, "lr_decay": 0.8},
])  # fmt: skip
def test_learning_rates_are_those_of_pytorchs_schedulers(settings: dict[str, Any]) -> None:
    config = TrainConfig.from_dict({"steps": 20, "lr": 0.3, **settings})
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.lr)
    scheduler: torch.optim.lr_scheduler.LRScheduler = (
        torch.optim.lr_scheduler.StepLR(optimizer, config.lr_every, config.lr_decay)
        if config.lr_schedule == "steps" else
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps - config.lr_warmup,
                                                   config.lr_final * config.lr)
    )  # fmt: skip
    expected = [config.lr * (step + 1) / config.lr_warmup for step in range(config.lr_warmup)]
    for _ in range(config.lr_warmup, config.steps):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(learning_rates(config), expected, rtol=1e-12)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_micro_batches_within_a_limit(tmp_path: Path, precision: str) -> None:
    """Compare with successive backward passes of PyTorch and its clip_grad_norm_."""
    model = random_model(SMALL, seed=5)
    config = prepare(
        tmp_path, model, batch=2, seq=25, steps=10, data="stdlib", lr=3e-4, threads=2, precision=precision,
        grad_accum=3, grad_clip=1.745,
    )  # fmt: skip
    result = train(config)
    losses, norms = train_with_norms(model, config, open_tokens(config))
    assert 0 < sum(norm > config.grad_clip for norm in norms) < config.steps
    close = 1e-5 if precision == "fp32" else 0.02
    np.testing.assert_allclose(result.losses, losses, rtol=close)
    np.testing.assert_allclose(result.gradient_norms, norms, rtol=10 * close if precision == "fp32" else close)


def test_bf16_follows_pytorchs_autocast(tmp_path: Path) -> None:
    """Fifty losses agree within 1 %. Both round operands of products and some results to bfloat16, PyTorch more."""
    model = random_model(SMALL, seed=4)
    config = prepare(tmp_path, model, batch=4, seq=32, steps=50, data="stdlib", lr=5e-4, precision="bf16", threads=2)
    losses = train(config).losses
    expected = train_torch(model, config, open_tokens(config))
    assert losses[-1] < 0.8 * losses[0]
    np.testing.assert_allclose(losses, expected, rtol=0.01)


def test_our_checkpoint_is_read_by_pytorchs_side(tmp_path: Path) -> None:
    config = prepare(tmp_path, random_model(SMALL, seed=2), batch=2, seq=8, steps=1, data="synthetic")
    train(config)
    ours = final_weights(config)
    for name, array in weights_of(read_llmc_checkpoint(tmp_path / "final.bin")).items():
        np.testing.assert_array_equal(array, ours[name], err_msg=name)


@pytest.mark.slow
def test_gpt2_124m_from_a_checkpoint(tmp_path: Path) -> None:
    """The losses of four steps at B4 T64 agree to 1e-4, under the task scheduler on two threads."""
    model = random_model(PRESETS["gpt2-124m"], seed=3)
    config = prepare(tmp_path, model, batch=4, seq=64, steps=4, data="stdlib", scheduler="task", threads=2, save=None)
    try:
        expected = train_torch(model, config, open_tokens(config))
        del model
        losses = train(config).losses
    finally:
        (tmp_path / "initial.bin").unlink()
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-4)
