"""Register the toy networks as ours are registered: by a name and a module."""

from __future__ import annotations

import pytest

from gpt2core.spec import networks


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("elman", "convolutions", "gru"):
        monkeypatch.setitem(networks.NETWORKS, name, f"tests.support.networks.{name}")
