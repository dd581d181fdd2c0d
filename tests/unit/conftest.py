"""Fixtures of kernel tests: golden values, and libraries of matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

Golden = dict[str, np.ndarray]
By = Callable[..., tuple[int, int, int, int]]


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Golden]:
    """The golden arrays of an op by name: float32 and int32 inputs, float64 results (see tests/golden)."""

    def load(name: str) -> Golden:
        with np.load(Path(__file__).parents[1] / "golden" / f"{name}.npz") as arrays:
            return dict(arrays)

    return load


@pytest.fixture(params=["own", "auto", "openblas"])
def by(request: pytest.FixtureRequest) -> Iterator[By]:
    """A function from the number of columns per call to the arguments that select the library in kernels."""
    from gpt2core.gemm import libraries as gemm
    from gpt2core.gemm.multiply import new_scratch

    words, scratch = new_scratch()
    library = gemm.ours() if request.param == "own" else gemm.blas(request.param)
    yield lambda piece=40: library.by(piece, scratch)
    del words
