"""The fold of several ranks' gradients in one process: bits that ranks must have, whatever runs the tasks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gpt2core.run.train import train, weights_sha256
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig
from tests.support.folded import train_folded

SMALL = TrainConfig(
    model=ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16), fusion="rows",
    batch=6, seq=10, steps=4, warmup=0, lr=1e-2, batch_slice=1, token_slice=4, data="synthetic", scheduler="serial",
    allow_oversubscription=True,
)  # fmt: skip
OTHERS: list[dict[str, Any]] = [
    {"scheduler": "fork-join"}, *({"scheduler": "task", "sync": sync} for sync in ("phase", "step", "none"))
]  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_scheduler_folds_to_the_same_bits(ranks):
    losses, weights = train_folded(SMALL, ranks)
    assert len(set(losses)) == SMALL.steps
    for how in OTHERS:
        others, theirs = train_folded(dataclasses.replace(SMALL, threads=2, **how), ranks)
        assert (others, weights_sha256(theirs)) == (losses, weights_sha256(weights)), how


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_the_losses_are_those_of_one_rank_with_the_whole_batch(ranks):
    """Each step's batch is the same, cut into the ranks' parts, so only sums are rounded in another order."""
    losses, _ = train_folded(SMALL, ranks)
    np.testing.assert_allclose(losses, train(SMALL).losses, rtol=1e-5)


def test_one_rank_has_the_bits_of_a_run_without_ranks():
    losses, weights = train_folded(SMALL, 1)
    result = train(SMALL)
    assert losses == list(result.losses)
    assert weights_sha256(weights) == result.weights_sha256
