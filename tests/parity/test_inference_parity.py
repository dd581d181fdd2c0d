"""Logits of inference against PyTorch's, from the same weights and tokens."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_model

from bench import torch_gpt2, torch_images, torch_lstm
from gpt2core.data.sources import open_tokens
from gpt2core.networks import halves
from gpt2core.networks.network import network_of
from gpt2core.run import outputs
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig
from gpt2core.step import slicing
from tests.support.networks import resnets, vggs
from tests.support.networks.inferring import computed, filled

pytestmark = pytest.mark.parity

MODELS = {
    "gpt2": ModelConfig(layers=3, heads=4, channels=48, vocab=260, context=32),
    "lstm": {"network": "lstm", "embedding": 40, "hidden": 48, "layers": 2, "vocab": 260, "context": 32},
}
TOLERANCE = {"fp32": 1e-5, "bf16": 1e-2}


def expected(config: TrainConfig, weights: dict[str, np.ndarray]) -> np.ndarray:
    """PyTorch's logits (B, T, V) of the first batch, in float64."""
    model: Any = config.model
    inputs, _ = torch_gpt2.batch_of(open_tokens(config), 0, config.batch, config.seq)
    with torch.no_grad():
        if config.model.network == "lstm":
            lstm = torch_lstm.LSTM(model).double()
            torch_lstm.load_weights(lstm, weights)
            return lstm.logits(inputs).numpy()
        gpt2 = torch_gpt2.GPT2(model).double()
        torch_gpt2.load_weights(gpt2, weights)
        x = gpt2.wte(inputs) + gpt2.wpe.weight[: config.seq]
        for block in gpt2.blocks:
            x = block(x)
        return (gpt2.lnf(x) @ gpt2.wte.weight.T).numpy()[..., : config.model.vocab]


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("network", MODELS)
@pytest.mark.parametrize("logits", ["all", "last"])
def test_logits_are_those_of_pytorch(network: str, logits: str, precision: str) -> None:
    config = slicing.resolve(TrainConfig.from_dict({
        "model": MODELS[network], "mode": "infer", "logits": logits, "precision": precision, "batch": 3, "seq": 25,
        "batch_slice": 2, "token_slice": 9, "steps": 1, "warmup": 0, "data": "stdlib",
    }))  # fmt: skip
    memory = computed(config)
    whole = filled(dataclasses.replace(config, precision="fp32")).weights  # a step's are packed
    wanted = expected(config, {name: np.array(array) for name, array in whole.items()})
    wanted = (wanted[:, -1] if logits == "last" else wanted).reshape(-1, config.model.vocab)
    found = halves.widened(memory.arrays["logits"][:, : config.model.vocab])
    found = found[outputs.in_order(memory, len(found))]
    errors = np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    assert errors.max() <= TOLERANCE[precision]


@pytest.mark.parametrize("logits", ["all", "last"])
@pytest.mark.parametrize("sizes", [resnets.SMALL, vggs.SMALL], ids=["resnet", "vgg"])
def test_logits_of_images_are_those_of_pytorch(sizes: dict[str, Any], logits: str, tmp_path: Path) -> None:
    config = TrainConfig.from_dict({
        "model": sizes, "mode": "infer", "logits": logits, "batch": 5, "batch_slice": 2, "token_slice": 1,
        "steps": 1, "warmup": 0,
    })  # fmt: skip
    module = torch_images.new_model(config)
    path = tmp_path / "torch.safetensors"
    save_model(module, str(path))
    images, _ = torch_images.batch_of(network_of(config).data(config), config, 0, torch.float64)
    with torch.no_grad():
        wanted = module.double().logits(images).numpy()
    memory = computed(dataclasses.replace(config, checkpoint=str(path)))
    model: Any = config.model
    found = memory.arrays["logits"][:, : model.classes]
    errors = np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    assert errors.max() <= TOLERANCE["fp32"]
