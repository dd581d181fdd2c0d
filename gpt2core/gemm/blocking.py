"""How our own matrix product is cut, by family of processors. Nothing else in gemm/ names a processor.

Source: Goto & van de Geijn 2008; for AVX2 the register tile of BLIS (Van Zee & van de Geijn 2015), 6 rows by 16
columns. A panel is deeper than BLIS's 256 words: six rows leave time to read it from the second cache, and C is read
and written less often. Where the second cache is small, a block of A and two panels need the smaller depth to fit it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from gpt2core.compile import target
from gpt2core.compile.lanes import LANES, WORD
from gpt2core.compile.later import attributes
from gpt2core.compile.target import features, is_zen4


class Blocking(NamedTuple):
    """`rows` of C in a register tile, from the usual number down to one, by `panel` columns. A panel has up to `depth`
    words of each column, and a block of A up to `block` words. Where A is transposed, words of `group` rows are side by
    side, with a gap behind the last ones (packing.group_words), which `block` contains. `packs_rows`: a register tile
    packs rows of the next panel meanwhile; `packs_segments`: also a transposed B.
    """

    instructions: str
    rows: tuple[int, ...]
    panel: int
    depth: int
    block: int
    group: int
    packs_rows: bool = False
    packs_segments: bool = False

    @property
    def most_rows(self) -> int:
        """Of a register tile."""
        return self.rows[0]

    @property
    def panel_row(self) -> int:
        """Bytes."""
        return self.panel * WORD

    @property
    def vectors(self) -> int:
        """Of a panel's row."""
        return self.panel // LANES


_WIDE = Blocking("avx512", (8, 4, 1), 48, 768, 256 * 768, LANES, packs_rows=True)
_NARROW = Blocking("avx2", (6, 4, 2, 1), 16, 768, 260 * 768, 6, packs_rows=True)  # slices of 256 rows are one block
LARGE_CACHE = 1 << 20  # bytes of a second cache
BLOCKINGS = {
    "zen4": _WIDE._replace(packs_segments=True),
    "avx512": _WIDE,
    "avx2": _NARROW,
    "avx2, small": _NARROW._replace(depth=384, block=194 * 384),
    "neon": Blocking("neon", (6, 4, 2, 1), 16, 256, 256 * 256, 6),  # 32 registers of 128 bits, of which C takes 24
    "generic": Blocking("generic", (2, 1), 16, 256, 256 * 256, LANES),  # 16 registers of 128 bits
}


def family() -> str:
    """The family of the processor for which code is compiled."""
    if "avx512f" in features():
        return "zen4" if is_zen4() else "avx512"
    if {"avx2", "fma"} <= features():
        return "avx2" if target.second_cache_bytes() >= LARGE_CACHE else "avx2, small"
    return "neon" if "asimd" in features() else "generic"


@functools.cache
def blocking() -> Blocking:
    """The blocking for the processor for which code is compiled."""
    return BLOCKINGS[family()]


# For compiled code
PANEL, DEPTH, BLOCK, GROUP = attributes(blocking, "panel", "depth", "block", "group")
PANEL_ROW, VECTORS = attributes(blocking, "panel_row", "vectors")
