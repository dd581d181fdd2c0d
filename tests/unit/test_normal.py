"""Initial weights are drawn with the bits of NumPy's generator, by NumPy and by compiled code."""

from __future__ import annotations

import numpy as np
import pytest
from numba.np.random import _constants
from numpy.typing import NDArray

from gpt2core.networks import normal
from gpt2core.networks.normal import MULTIPLIER, Normals, fill_normal, ziggurat

SEED = [1337, 1]
STEP = 0x5851F42D4C957F2D14057B7EF767814F  # an increment of PCG; any odd number is one


def bits(numbers: NDArray[np.float32]) -> NDArray[np.uint32]:
    return numbers.view(np.uint32)  # tells 0 from -0


def test_the_tables_are_numpys() -> None:
    for mine, theirs in zip(ziggurat(), ("ki_float", "wi_float", "fi_float"), strict=True):
        np.testing.assert_array_equal(mine, getattr(_constants, theirs), strict=False)


def test_large_and_small_arrays_continue_one_stream() -> None:
    """With 4 million numbers, also the tail is drawn a thousand times."""
    normals, reference = Normals(SEED), np.random.Generator(np.random.PCG64(SEED))
    for size in (3, normal.LARGE - 1, 3_000_001, 1, normal.LARGE, 1_000_000):
        out = np.empty((size, 1), np.float32)
        normals.fill(out, 0.02)
        expected = reference.standard_normal((size, 1), dtype=np.float32)
        np.testing.assert_array_equal(bits(out), bits(expected * np.float32(0.02)))
    assert np.abs(expected).max() > normal.EDGE


@pytest.mark.parametrize("sign", [0, 1])
def test_every_layer_accepts_what_numpy_accepts(sign: int) -> None:
    """The first draw is a point beside a layer's limit, or at its ends; the state before it is computed backwards."""
    backwards = pow(MULTIPLIER, -1, 1 << 128)
    tables = ziggurat()
    for layer, limit in enumerate(tables[0].tolist()):
        for abscissa in {0, 1, limit - 1, limit, limit + 1, (1 << 23) - 1} - {-1}:
            wanted = abscissa << 9 | sign << 8 | layer  # the low half of a state without high bits is the draw
            normals = Normals(SEED)
            state = (wanted - STEP) * backwards % (1 << 128)
            normals.go_on(np.array([*divmod(state, 1 << 64), *divmod(STEP, 1 << 64), 0, 0], np.uint64))
            out, compiled = np.empty(1, np.float32), normals.state()
            fill_normal(out, np.float32(1), compiled, *tables)
            expected = np.empty(1, np.float32)
            normals.fill(expected, 1)
            assert (bits(out), compiled.tolist()) == (bits(expected), normals.state().tolist()), (layer, abscissa)
