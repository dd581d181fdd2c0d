"""Measures which library is fastest for a matrix product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt2core.gemm.libraries import Library
from gpt2core.gemm.multiply import (
    new_scratch,
    own_product_of_floats,
    pack_whole,
    product_of_floats,
    time_packed,
    time_product,
)
from gpt2core.gemm.sizes import panels_shape
from gpt2core.node import pages
from gpt2core.step.ops import Product

PIECES = (768, 1536, 3072)  # columns
LEAST_GAIN = 0.03  # minimum gain over the first library, all columns at once
FEW_ROUNDS, MANY_ROUNDS, ROUNDS_FLOP = 2, 40, 3_000_000_000  # rounds per candidate: minimum, maximum, and their FLOP
AGAIN = 3  # times as many rounds for the first library and one that seems faster, since a choice is kept
IN_A_ROW = 6  # products with a packed operand, which a recurrence reads again at each time


@dataclass(frozen=True)
class Choice:
    """A library by its name, and columns of a piece; 0 for all at once."""

    name: str
    piece: int = 0

    def __str__(self) -> str:
        return f"{self.name}/{self.piece}" if self.piece else self.name


def candidates(product: Product, libraries: Sequence[Library]) -> list[Choice]:
    """Candidates for a product. The first one, the first library at once, is taken unless another is clearly faster."""
    pieces = [0, *(piece for piece in PIECES if 2 * piece <= product.n)]
    return [
        Choice(library.name, piece)
        for library in libraries
        for piece in (pieces if library.entry is product_of_floats else pieces[:1])
    ]


def measure(product: Product, libraries: Sequence[Library]) -> Choice:
    """The candidate with the fastest product. Candidates take turns on the calling thread. A weight's gradient is
    measured as one in the thread's own memory, which is in a cache. Products with a packed operand follow each other:
    on some processors an operand lies in the last cache only when it has been read several times."""
    named = {library.name: library for library in libraries}
    words, scratch = new_scratch()
    rng = np.random.default_rng(0)
    p = product
    tried = candidates(product, libraries)
    a, b, c = operand(rng, p.m * p.k, p.half_a), operand(rng, p.k * p.n, p.half_b), matrix(p.m * p.n)
    best = dict.fromkeys(tried, np.inf)
    shape = (p.half_a, p.half_b, p.trans_a, p.trans_b, p.m, p.n, p.k)
    panels = matrix(math.prod(panels_shape(p.n, p.k)) if p.packed else 0)
    if p.packed:
        pack_whole(panels, b, p.trans_b, p.n, p.k)
    in_a_row = IN_A_ROW if p.packed else 1
    rounds = max(FEW_ROUNDS, min(ROUNDS_FLOP // (2 * p.m * p.n * p.k * in_a_row), MANY_ROUNDS))

    def take_turns(some: Sequence[Choice], rounds: int) -> None:
        for choice in [*some] * rounds:
            by = named[choice.name].by(choice.piece, scratch)
            for _ in range(in_a_row):
                if p.packed and named[choice.name].entry is own_product_of_floats:
                    elapsed = time_packed(by, p.m, p.n, p.k, a, panels, c)
                else:
                    elapsed = time_product(by, *shape, a, b, c, 1 - p.trans_a)
                best[choice] = min(best[choice], elapsed)

    take_turns(tried, rounds)
    fastest = min(tried, key=lambda choice: best[choice])
    if fastest != tried[0]:  # perhaps only because something disturbed the first one's few turns
        take_turns([tried[0], fastest], AGAIN * rounds)
    del words
    return fastest if best[fastest] < best[tried[0]] * (1 - LEAST_GAIN) else tried[0]


def matrix(size: int) -> NDArray[np.float32]:
    """Float32 zeros in mapped pages, as in a run. They are returned afterwards; an allocator would keep them."""
    return np.frombuffer(pages.reserve(4 * size), np.float32)[:size]


def operand(rng: np.random.Generator, size: int, half: int) -> NDArray[np.generic]:
    """Normal numbers in mapped pages: float32, or bfloat16 (as uint16) if `half` is set."""
    array = matrix(size)
    rng.standard_normal(dtype=np.float32, out=array)
    if not half:
        return array
    halves = array.view(np.uint16)
    halves[:size] = halves[1::2]  # the upper ones
    return halves[:size]
