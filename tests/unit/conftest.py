"""What kernel tests start from: golden values, and the address of the matrix product."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Golden = dict[str, np.ndarray]


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    """The golden arrays of an op by name: float32 and int32 inputs, float64 results (see tests/golden)."""

    def load(name: str) -> Golden:
        with np.load(Path(__file__).parents[1] / "golden" / f"{name}.npz") as arrays:
            return dict(arrays)

    return load


@pytest.fixture(scope="session", params=["auto", "openblas"])
def sgemm(request: pytest.FixtureRequest) -> int:
    """The address of one library's sgemm: the platform's own choice, and the one that is everywhere."""
    from gpt2core.machine import gemm

    return gemm.load(request.param).sgemm
