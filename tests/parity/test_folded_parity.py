"""The fold of several ranks' gradients against PyTorch, which sums the gradients of as many backward passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.torch_gpt2 import random_model, train, weights_of, write_llmc_checkpoint
from gpt2core.data.sources import open_tokens
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig
from tests.support.folded import train_folded
from tests.support.weight_parts import parts

pytestmark = pytest.mark.parity

SMALL = ModelConfig(layers=2, heads=4, channels=48, vocab=260, context=32)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ten_steps_of_a_small_gpt2(tmp_path: Path, ranks: int) -> None:
    model = random_model(SMALL, seed=11)
    write_llmc_checkpoint(tmp_path / "initial.bin", model)
    common = {
        "model": model.sizes, "checkpoint": str(tmp_path / "initial.bin"), "seq": 25, "steps": 10, "data": "stdlib",
        "lr": 3e-4, "fusion": "rows", "scheduler": "task", "sync": "none", "threads": 2, "allow_oversubscription": True,
    }  # fmt: skip
    losses, got = train_folded(TrainConfig.from_dict({**common, "batch": 6}), ranks)
    theirs = TrainConfig.from_dict({**common, "batch": 6 // ranks, "grad_accum": ranks})
    np.testing.assert_allclose(losses, train(model, theirs, open_tokens(theirs)), rtol=1e-5)
    for name, array in weights_of(model).items():
        for (label, ours, relative), (_, other, _) in zip(parts(name, got[name]), parts(name, array), strict=True):
            error = np.linalg.norm(ours - other) / np.linalg.norm(other)
            assert error <= relative, f"{label}: {error:.2e}"
