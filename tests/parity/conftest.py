"""Live comparison with PyTorch. Test runs without `parity` import nothing from this folder."""

from __future__ import annotations

import importlib.util

import pytest


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    without = "not parity" in config.option.markexpr or importlib.util.find_spec("torch") is None
    return True if without else None


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    import torch

    torch.set_num_threads(1)
