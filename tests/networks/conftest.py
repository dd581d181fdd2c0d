"""The toy networks, registered as ours are: by a name and a module. Runs without the canary."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpt2core.run import canary
from gpt2core.spec import networks


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("elman", "convolutions", "gru"):
        monkeypatch.setitem(networks.NETWORKS, name, f"tests.support.networks.{name}")


@pytest.fixture(scope="module")
def no_canary() -> Iterator[None]:
    """Leave out the canary, which takes longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "UNAVAILABLE", "bits are compared, not times")
        yield
