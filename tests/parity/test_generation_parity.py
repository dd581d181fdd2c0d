"""Generated tokens and their logits against PyTorch's forward pass over the growing prefix."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench import generation, torch_generation, torch_gpt2, torch_lstm
from gpt2core.run.train import train
from gpt2core.spec.config import TrainConfig
from tests.support.networks.generating import MODELS, config, generated
from tests.support.present import present

pytestmark = pytest.mark.parity


def last_logits(run: TrainConfig, weights: dict[str, np.ndarray], prefix: list[int]) -> np.ndarray:
    """PyTorch's logits after a prefix, in float64."""
    inputs = torch.tensor([prefix])
    model: Any = run.model
    with torch.no_grad():
        if run.model.network == "lstm":
            lstm = torch_lstm.LSTM(model).double()
            torch_lstm.load_weights(lstm, weights)
            return lstm.logits(inputs).numpy()[0, -1]
        gpt2 = torch_gpt2.GPT2(model).double()
        torch_gpt2.load_weights(gpt2, weights)
        x = gpt2.wte(inputs) + gpt2.wpe.weight[: len(prefix)]
        for block in gpt2.blocks:
            x = block(x)
        return (gpt2.lnf(x) @ gpt2.wte.weight.T).numpy()[0, -1, : run.model.vocab]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("network", MODELS)
def test_generation_is_that_of_pytorch(network: str, precision: str) -> None:
    """From the same weights: with bf16 those that are rounded, since only they are."""
    run = config(network, generate=20, precision=precision)
    tokens, logits, weights = generated(run)
    prefix = list(present(run.prompt))
    for token, found in zip(tokens, logits, strict=True):
        wanted = last_logits(run, weights, prefix)
        assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)
        assert token == int(np.argmax(wanted))
        prefix.append(token)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", ["tiny", "lstm-tiny"])
def test_the_peer_of_the_benchmark_generates_our_tokens(model: str, precision: str, tmp_path: Path) -> None:
    """With bf16 its activations are rounded too, so tokens may differ."""
    given = argparse.Namespace(model=model, seed=3, generate=6, prompt_tokens=4, threads="1", precisions=precision)
    (run,) = generation.prepare(tmp_path, given)
    with torch.inference_mode():
        read, forget = torch_generation.reader(run)
        first, second = [(forget(), torch_generation.generate(run, read))[1] for _ in range(2)]
    assert first["tokens"] == second["tokens"]
    assert len(second["token_s"]) == len(second["tokens"]) - 1 == 5
    if precision == "fp32":
        assert second["tokens"] == train(dataclasses.replace(run, scheduler="serial")).tokens
