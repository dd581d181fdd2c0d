"""The LSTM against torch.nn.LSTM, live: the same initial weights, tokens and AdamW."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "networks"))
import lstms
import torch_lstms

from gpt2core.run.train import train
from gpt2core.spec.config import SYNCS

pytestmark = pytest.mark.parity

HOW = [
    {"scheduler": "serial"},
    *({"scheduler": "fork-join", "threads": threads} for threads in (1, 2, 3, 8)),
    *({"scheduler": "task", "sync": sync, "threads": threads} for sync in SYNCS for threads in (2, 8)),
]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("limit", [0.0, 0.3])
@pytest.mark.parametrize("case", lstms.CASES)
def test_ten_steps_under_every_scheduler(case: str, limit: float, decay: float) -> None:
    """Losses agree to a relative 1e-5 with those in float32."""
    settings = {"weight_decay": decay, "grad_clip": limit}
    expected, _ = torch_lstms.train(lstms.config(case, **settings), torch.float32)
    for how in HOW:
        result = train(lstms.config(case, **settings, **how))
        np.testing.assert_allclose(result.losses, expected, rtol=1e-5)


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
