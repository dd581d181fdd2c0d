"""seq2seq against PyTorch, live: the same initial weights, pairs and optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from gpt2core.data.pairs import open_pairs
from gpt2core.run import canary
from gpt2core.run.train import train
from gpt2core.spec.fields import SYNCS
from gpt2core.step import slicing
from tests.support.networks import seq2seqs, torch_seq2seq
from tests.support.networks.inferring import computed

pytestmark = pytest.mark.parity

HOW: list[dict[str, Any]] = [
    {"scheduler": "serial"},
    *({"scheduler": "fork-join", "threads": threads} for threads in (2, 8)),
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync in SYNCS for threads in (2, 8)),
]
CHANGES: list[dict[str, Any]] = [{}, {"optimizer": "sgd", "lr": 0.1}, {"grad_clip": 0.5, "grad_accum": 2}]


@pytest.fixture(autouse=True, scope="module")
def no_canary() -> Iterator[None]:
    """Leave out the canary, which takes longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "UNAVAILABLE", "values are compared, not times")
        yield


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_ten_steps_and_their_weights(change: dict[str, Any], tmp_path: Path) -> None:
    config = seq2seqs.config(**change)
    model = torch_seq2seq.from_ours(config)
    losses = torch_seq2seq.train(model, config)
    for number, how in enumerate(HOW[:: 3 if change else 1]):
        save = tmp_path / f"{number}.safetensors"
        result = train(seq2seqs.config(**change, **how, save=str(save)))
        np.testing.assert_allclose(result.losses, losses, rtol=1e-5)
        saved, expected = load_file(save), model.state_dict()
        assert saved.keys() == expected.keys()
        for name, array in saved.items():
            np.testing.assert_allclose(array, expected[name].numpy(), rtol=1e-3, atol=2e-5, err_msg=name)


def test_outputs_of_inference_are_pytorchs() -> None:
    """The logits of all positions that have a target."""
    config = slicing.resolve(seq2seqs.inference(steps=1))
    sources, inputs, targets, lengths = next(torch_seq2seq.batches(config, open_pairs(config)))
    with torch.no_grad():
        expected = torch_seq2seq.from_ours(config).logits(sources, inputs, lengths).numpy()
    arrays = computed(config).arrays
    ours = np.empty_like(expected)
    ours[arrays["row_batch"], arrays["row_time"]] = arrays["logits"]
    real = (targets != torch_seq2seq.NONE).numpy()
    np.testing.assert_allclose(ours[real], expected[real], rtol=1e-5, atol=1e-5)
