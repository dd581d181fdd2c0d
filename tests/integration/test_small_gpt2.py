"""The whole trainer against PyTorch's values for a small GPT-2: ten steps of AdamW, under every scheduler.

Losses agree with float64 to a relative 1e-6. Weights agree with PyTorch's float32 to 1e-5, as the norm of the
difference over the norm of the tensor. Their changes agree to 1e-3, since weights that hardly move would prove little.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt2core.data.sources import write_tokens
from gpt2core.networks.gpt2.checkpoint import read_checkpoint, write_checkpoint
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.run.train import train
from gpt2core.spec.config import TrainConfig
from tests.support.weight_parts import RELATIVE, parts

FOLDER = Path(__file__).parents[1] / "golden"
RUNS: list[dict[str, Any]] = [
    {"scheduler": "serial", "batch_slice": 3, "token_slice": 10},
    {"scheduler": "serial", "batch_slice": 2, "token_slice": 3},
    {"scheduler": "fork-join", "threads": 2, "batch_slice": 1, "token_slice": 10},
    {"scheduler": "task", "sync": "phase", "threads": 2, "batch_slice": 1, "token_slice": 4},
    {"scheduler": "task", "sync": "step", "threads": 2, "batch_slice": 2, "token_slice": 10},
    {"scheduler": "task", "sync": "none", "threads": 2, "batch": 1, "grad_accum": 3, "token_slice": 4},
    {"scheduler": "fork-join", "threads": 2, "batch": 1, "grad_accum": 3, "grad_clip": 1e5},
]


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "small_gpt2.npz") as arrays:
        return dict(arrays)


def configured(folder: Path, golden: dict[str, np.ndarray], run: dict[str, Any]) -> TrainConfig:
    """The golden run with some settings changed, from its tokens and initial weights in a folder."""
    config = TrainConfig.from_dict({
        **json.loads(str(golden["config"])), **run, "data": str(folder / "tokens.bin"),
        "checkpoint": str(folder / "initial.bin"), "save": str(folder / "final.bin"),
        "allow_oversubscription": True,
    })  # fmt: skip
    initial = {spec.name: golden[f"initial.{spec.name}"] for spec in weight_specs(config.model)}
    model: Any = config.model
    write_checkpoint(folder / "initial.bin", model, initial)
    write_tokens(folder / "tokens.bin", golden["tokens"])
    return config


@pytest.mark.parametrize("run", RUNS, ids=lambda run: " ".join(str(value) for value in run.values()))
def test_loss_curve_and_final_weights(tmp_path: Path, golden: dict[str, np.ndarray], run: dict[str, Any]) -> None:
    config = configured(tmp_path, golden, run)
    specs = weight_specs(config.model)
    initial = {spec.name: golden[f"initial.{spec.name}"] for spec in specs}

    result = train(config)

    np.testing.assert_allclose(result.losses, golden["losses64"], rtol=1e-6)
    final = {spec.name: np.empty(spec.shape, np.float32) for spec in specs}
    model: Any = config.model
    read_checkpoint(tmp_path / "final.bin", model, final)
    for name, array in final.items():
        ours, theirs, before = (parts(name, a) for a in (array, golden[f"final.{name}"], initial[name]))
        for (label, got, relative), (_, expected, _), (_, start, _) in zip(ours, theirs, before, strict=True):
            distance = np.linalg.norm(got - expected)
            assert distance <= relative * np.linalg.norm(expected), label
            if relative == RELATIVE:  # elsewhere the change itself is rounding noise
                assert distance <= 1e-3 * np.linalg.norm(expected - start), label


@pytest.mark.parametrize("run", [{"scheduler": "serial"}, {"sync": "none", "threads": 2, "token_slice": 3}], ids=str)
def test_micro_batches_within_a_limit(tmp_path: Path, golden: dict[str, np.ndarray], run: dict[str, Any]) -> None:
    """Losses and norms agree with PyTorch's in float64. Some steps reach the limit and others do not."""
    with np.load(FOLDER / "clipped_gpt2.npz") as arrays:
        clipped = dict(arrays)
    change = json.loads(str(clipped["change"]))
    config = configured(tmp_path, golden, {**change, **run})
    assert 0 < np.sum(clipped["norms64"] > config.grad_clip) < config.steps
    result = train(config)
    np.testing.assert_allclose(result.losses, clipped["losses64"], rtol=1e-6)
    np.testing.assert_allclose(result.gradient_norms, clipped["norms64"], rtol=1e-5)
    final = {spec.name: np.empty(spec.shape, np.float32) for spec in weight_specs(config.model)}
    model: Any = config.model
    read_checkpoint(tmp_path / "final.bin", model, final)
    for name in ("qkvw", "lnfb"):
        moved = clipped[f"final.{name}"] - golden[f"initial.{name}"]
        assert np.linalg.norm(final[name] - clipped[f"final.{name}"]) <= 1e-3 * np.linalg.norm(moved), name
