"""Our own matrix product reads and writes nothing behind its operands."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpt2core.gemm import tiles
from gpt2core.gemm.registers import DOT_BF16

# A page without access follows each operand, so the process dies of the first access behind one.
CODE = """
import ctypes, itertools, mmap, sys
import numpy as np
from gpt2core.gemm import libraries, microkernel, multiply, tiles
from gpt2core.gemm.sizes import PANEL

def at_end_of_page(count):
    size = -(-4 * count // mmap.PAGESIZE) * mmap.PAGESIZE
    area = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    behind = ctypes.c_void_p(area.ctypes.data + size)
    assert ctypes.CDLL(None).mprotect(behind, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    values = area[size - 4 * count : size].view(np.float32)
    values[:] = 1
    return values

words, scratch = multiply.new_scratch()
assert sys.argv[1] != "tiles" or tiles.permitted()
own = libraries.Library("own", "", getattr(multiply, f"own_product_of_{sys.argv[1]}"))
rows = microkernel.REGISTER_ROWS
for m, n, k in itertools.product((1, rows, 2 * rows + 1), (1, PANEL - 1, PANEL + 1, 2 * PANEL + 17), (1, 5, 32, 67)):
    for trans_a, trans_b in itertools.product((0, 1), (0, 1)):
        a, b, c = (at_end_of_page(count) for count in (m * k, k * n, m * n))
        multiply.time_product(own.by(n, scratch), trans_a, trans_b, m, n, k, a, b, c)
        assert (c == k).all(), (m, n, k, trans_a, trans_b)
print("done")
"""


@pytest.mark.parametrize("kind", ["floats", "pairs", "rounded", "tiles"])
def test_nothing_behind_the_operands_is_accessed(kind: str) -> None:
    if (kind == "pairs" and not DOT_BF16) or (kind == "tiles" and not tiles.permitted()):
        pytest.skip("the processor has no instructions for it, or the system does not permit them")
    done = subprocess.run([sys.executable, "-c", CODE, kind], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
