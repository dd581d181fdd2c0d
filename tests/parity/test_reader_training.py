"""reader against PyTorch, live: the same initial weights, records and optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from gpt2core.data.cloze import open_records
from gpt2core.run import canary
from gpt2core.run.train import train
from gpt2core.spec.fields import SYNCS
from gpt2core.step import slicing
from tests.support.networks import readers, torch_reader
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
    config = readers.config(**change)
    model = torch_reader.from_ours(config)
    losses = torch_reader.train(model, config)
    for number, how in enumerate(HOW[:: 3 if change else 1]):
        save = tmp_path / f"{number}.safetensors"
        result = train(readers.config(**change, **how, save=str(save)))
        np.testing.assert_allclose(result.losses, losses, rtol=1e-5)
        saved, expected = load_file(save), model.state_dict()
        assert saved.keys() == expected.keys()
        for name, array in saved.items():
            np.testing.assert_allclose(array, expected[name].numpy(), rtol=1e-3, atol=2e-5, err_msg=name)


def test_outputs_of_inference_are_pytorchs() -> None:
    """The probabilities of all words."""
    config = slicing.resolve(readers.inference(steps=1))
    documents, queries, _, lengths = next(torch_reader.batches(config, open_records(config)))
    with torch.no_grad():
        expected = torch_reader.from_ours(config).probabilities(documents, queries, lengths).numpy()
    np.testing.assert_allclose(computed(config).arrays["probabilities"], expected, rtol=1e-5, atol=1e-7)
