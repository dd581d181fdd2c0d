"""Our own matrix product reads and writes nothing behind its operands and its scratch memory."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import subprocess
import sys

import numpy as np
import pytest

from gpt2core.compile.bfloat16 import native
from gpt2core.compile.jit import address_of, runtime
from gpt2core.gemm import libraries, microkernel, multiply, tiles
from gpt2core.gemm.blocking import blocking
from gpt2core.gemm.operands import Operand, Out
from gpt2core.gemm.sizes import PRODUCT_SCRATCH

TOGETHER = 128  # columns of a transposed A that are packed together

PANEL = blocking().panel


@runtime
def product(by, half_a, half_b, trans_a, trans_b, m, n, k, a, b, c, adds, fetches):
    """A product of matrices without gaps."""
    left = Operand(address_of(a, 0), m if trans_a else k, trans_a, half_a)
    right = Operand(address_of(b, 0), k if trans_b else n, trans_b, half_b)
    multiply.multiply(by, m, n, k, left, right, Out(address_of(c, 0), n, adds, fetches))


def at_end_of_page(count: int, half: int = 0) -> np.ndarray:
    """Ones. A page without access follows them, so the process dies of the first access behind them."""
    itemsize = 2 if half else 4
    size = -(-itemsize * count // mmap.PAGESIZE) * mmap.PAGESIZE
    area = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    behind = ctypes.c_void_p(area.ctypes.data + size)
    assert ctypes.CDLL(None).mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    values = area[size - itemsize * count : size].view(np.uint16 if half else np.float32)
    values[:] = 0x3F80 if half else 1
    return values


def check(kind: str) -> None:
    words = at_end_of_page(PRODUCT_SCRATCH)
    scratch = words.ctypes.data
    assert scratch % 64 == 0
    assert kind != "tiles" or tiles.permitted()
    own = libraries.Library("own", "", getattr(multiply, f"own_product_of_{kind}"))
    rows, columns = blocking().most_rows, (1, PANEL - 1, PANEL + 1, 2 * PANEL + 17)
    wide = microkernel.LARGE // 67 // PANEL * PANEL
    large = [  # packed in other ways
        (TOGETHER, wide + 2 * PANEL, 67), (TOGETHER + 3, PANEL + 1, 260),
        (16 * rows + 1, 2 * PANEL + 17, 768), (16 * rows, 2 * PANEL, 784), (16 * rows, 2 * PANEL, 1472),
        (120_000, PANEL + 1, 1), (60_000, 1, 4),
    ]  # fmt: skip
    for m, n, k in [*itertools.product((1, rows, 2 * rows + 1), columns, (1, 5, 32, 67)), *large]:
        for half_a, half_b, trans_a, trans_b in itertools.product((0, 1), (0, 1), (0, 1), (0, 1)):
            if kind == "floats" and (half_a or half_b):
                continue
            a, b, c = at_end_of_page(m * k, half_a), at_end_of_page(k * n, half_b), at_end_of_page(m * n)
            for adds, fetches in ((0, 0), (1, 0), (0, 1), (1, 1)):
                product(own.by(n, scratch), half_a, half_b, trans_a, trans_b, m, n, k, a, b, c, adds, fetches)
                assert (c == k + adds * k).all(), (m, n, k, half_a, half_b, trans_a, trans_b, adds, fetches)
    del words


@pytest.mark.parametrize("kind", ["floats", "pairs", "rounded", "tiles"])
def test_nothing_behind_operands_and_scratch_is_accessed(kind: str) -> None:
    if (kind == "pairs" and not native()) or (kind == "tiles" and not tiles.permitted()):
        pytest.skip("this processor lacks instructions for it, or the system does not permit them")
    done = subprocess.run([sys.executable, __file__, kind], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


if __name__ == "__main__":
    check(sys.argv[1])
    print("done")
