"""Products of which a triangle leaves a part: the bits of the whole product, without what is outside."""

from __future__ import annotations

import numpy as np
import pytest

from gpt2core.compile.bfloat16 import native
from gpt2core.compile.jit import address_of, runtime
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm.blocking import blocking
from gpt2core.gemm.multiply import multiply_band, new_scratch, own_product_of_pairs, own_product_of_rounded
from gpt2core.gemm.operands import COLUMNS_FROM, COLUMNS_TO, WHOLE, WORDS_FROM, WORDS_TO, Band, Operand, into

ROWS, PANEL, BLOCK = blocking().most_rows, blocking().panel, blocking().block
LIBRARIES = {
    "own": gemm.ours(), "rounded": gemm.Library("own", "rounded", own_product_of_rounded), "bf16": gemm.ours("bf16"),
    "blas": gemm.blas("auto"),
}  # fmt: skip
if native():
    LIBRARIES["pairs"] = gemm.Library("own", "pairs", own_product_of_pairs)
SKIP = ("own", "rounded", "pairs")  # what is outside


@runtime
def multiply(by, kind, shift, trans_a, trans_b, m, n, k, a, b, c):
    left = Operand(address_of(a, 0), m if trans_a else k, trans_a, 0)
    right = Operand(address_of(b, 0), k if trans_b else n, trans_b, 0)
    multiply_band(by, m, n, k, left, right, into(address_of(c, 0), n, 0), Band(kind, shift))


def product(library: str, kind: int, shift: int, trans_a: int, trans_b: int, a: np.ndarray, b: np.ndarray):
    """op(A) @ op(B) in a band; 7 where nothing was written."""
    (m, k), n, (words, scratch) = a.shape, b.shape[1], new_scratch()
    given_a, given_b = (np.ascontiguousarray(x.T if trans else x) for x, trans in ((a, trans_a), (b, trans_b)))
    c, by = np.full((m, n), 7, np.float32), LIBRARIES[library].by(0, scratch)
    multiply(by, kind, shift, trans_a, trans_b, m, n, k, given_a.ravel(), given_b.ravel(), c.ravel())
    del words
    return c


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("kind", [COLUMNS_TO, COLUMNS_FROM, WORDS_TO, WORDS_FROM])
@pytest.mark.parametrize("shift", [-33, 0, 40])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (37, 2 * PANEL + 7, 51), (BLOCK // 401 + 30, 20, 801)])
def test_band(library, trans_a, trans_b, kind, shift, m, n, k):
    """What is outside by more than a register tile is skipped: there C stays, and A's NaN do not matter. The last shape
    has several parts of the depth and several blocks of rows."""
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
    of_columns, sign = kind in (COLUMNS_TO, COLUMNS_FROM), 1 if kind in (COLUMNS_TO, WORDS_TO) else -1
    outside = sign * (np.arange(n if of_columns else k) - np.arange(m)[:, None] - shift)  # above 0
    if of_columns:
        whole, got = (product(library, each, shift, trans_a, trans_b, a, b) for each in (WHOLE, kind))
        assert np.array_equal(got[outside <= 0], whole[outside <= 0])
        assert library not in SKIP or (got[outside >= ROWS + PANEL] == 7).all()
    else:
        a[outside > 0] = 0
        whole = product(library, WHOLE, 0, trans_a, trans_b, a, b)
        if library in SKIP:
            a[outside >= ROWS + 2] = np.nan
        assert np.array_equal(product(library, kind, shift, trans_a, trans_b, a, b), whole)
