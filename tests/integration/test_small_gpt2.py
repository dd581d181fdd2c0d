"""The whole trainer against PyTorch's values for a small GPT-2: ten steps of AdamW, under every scheduler.

Losses agree with float64 to 1e-6 relative. Weights agree with PyTorch's float32 to 1e-5 in the norm of each tensor
relative to its own; and so that weights that hardly moved prove something, their change agrees to 1e-3.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weight_parts import RELATIVE, parts

from gpt2core.checkpoint import read_checkpoint, write_checkpoint
from gpt2core.config import TrainConfig
from gpt2core.data import write_tokens
from gpt2core.tensors import weight_specs
from gpt2core.train import train

GOLDEN = Path(__file__).parents[1] / "golden" / "small_gpt2.npz"
RUNS: list[dict[str, Any]] = [
    {"scheduler": "serial", "batch_slice": 3, "token_slice": 10},
    {"scheduler": "serial", "batch_slice": 2, "token_slice": 3},
    {"scheduler": "fork-join", "threads": 2, "batch_slice": 1, "token_slice": 10},
    {"scheduler": "task", "sync": "phase", "threads": 2, "batch_slice": 1, "token_slice": 4},
    {"scheduler": "task", "sync": "step", "threads": 2, "batch_slice": 2, "token_slice": 10},
]


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: " ".join(str(value) for value in run.values()))
def test_loss_curve_and_final_weights(tmp_path: Path, golden: dict[str, np.ndarray], run: dict[str, Any]) -> None:
    config = TrainConfig.from_dict({
        **json.loads(str(golden["config"])), **run, "data": str(tmp_path / "tokens.bin"),
        "checkpoint": str(tmp_path / "initial.bin"), "save": str(tmp_path / "final.bin"),
        "allow_oversubscription": True,
    })  # fmt: skip
    specs = weight_specs(config.model)
    initial = {spec.name: golden[f"initial.{spec.name}"] for spec in specs}
    write_checkpoint(tmp_path / "initial.bin", config.model, initial)
    write_tokens(tmp_path / "tokens.bin", golden["tokens"])

    result = train(config)

    np.testing.assert_allclose(result.losses, golden["losses64"], rtol=1e-6)
    final = {spec.name: np.empty(spec.shape, np.float32) for spec in specs}
    read_checkpoint(tmp_path / "final.bin", config.model, final)
    for name, array in final.items():
        ours, theirs, before = (parts(name, a) for a in (array, golden[f"final.{name}"], initial[name]))
        for (label, got, relative), (_, expected, _), (_, start, _) in zip(ours, theirs, before, strict=True):
            distance = np.linalg.norm(got - expected)
            assert distance <= relative * np.linalg.norm(expected), label
            if relative == RELATIVE:  # elsewhere even the movement is noise
                assert distance <= 1e-3 * np.linalg.norm(expected - start), label
