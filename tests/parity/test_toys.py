"""The toy networks against PyTorch, live, under each scheduler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpt2core.run.train import train
from gpt2core.spec import networks
from tests.support.networks import cases, torch_toys

pytestmark = pytest.mark.parity


@pytest.mark.parametrize("network", cases.SHAPES)
def test_losses_and_weights(network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses agree to a relative 1e-5, weights to 1e-4 of their norm."""
    monkeypatch.setitem(networks.NETWORKS, network, f"tests.support.networks.{network}")
    losses, weights = torch_toys.train(network)
    path = tmp_path / "final.npz"
    for how in cases.HOW:
        result = train(cases.config(network, **how, save=str(path)))
        np.testing.assert_allclose(result.losses, losses, rtol=1e-5)
        with np.load(path) as final:
            for name, array in weights.items():
                error = np.linalg.norm(final[name] - array) / np.linalg.norm(array)
                assert error <= 1e-4, f"{name}: {error:.2e}"
