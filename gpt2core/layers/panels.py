"""Weights that are packed once a step, as panels of our own matrix product, for products of few rows.

Our product packs the panels of an operand while it multiplies them. With few rows, such as one time of a recurrence,
that takes longer than the product itself.
"""

from gpt2core.compile.jit import address_of, kernel
from gpt2core.compile.later import float32
from gpt2core.gemm.products import is_own, pack_panels
from gpt2core.gemm.sizes import PANEL
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, Grid
from gpt2core.step.ops import Product, Read, Tensor, Write
from gpt2core.step.signature import Matrix, Multiply, Scalar, TileInt

ZERO = float32(0.0)
MOST_TILES = 8


@kernel
def weight_pack(
    panels: Matrix, weight: Matrix, by: Multiply, trans: Scalar, first0: TileInt, first1: TileInt, n0: TileInt,
    n1: TileInt,
):  # fmt: skip
    """Pack columns [n0, n1) of op(weight) (k, n), where op transposes if `trans` is set, if our own product is to
    multiply it.

    Writes:   panels (n / 48 rounded up, 48*k) =, rows [first0, first1)
    Reads:    weight (n, k) if `trans` is set, else (k, n)
    Tiles:    disjoint ranges of columns are independent
    Cost:     8*k bytes per column
    Source:   Goto & van de Geijn 2008
    """
    if is_own(by):
        k = panels.shape[1] // PANEL
        if n1 % PANEL:  # behind the last column
            panels[first1 - 1] = ZERO
        pack_panels(address_of(panels, 0), address_of(weight, 0), weight.shape[1], trans, k, n0, n1)


def pack(step: Builder, layer: int, *, panels: Tensor, weight: Tensor, trans: int, by: Product) -> None:
    """Add the packing of a weight for its product `by`."""
    rows, width = step.shape(panels)
    each = -(-rows // min(rows, MOST_TILES))
    starts = range(0, rows, each)
    grid = Grid(tuple(f"p{i}" for i in range(len(starts)))).with_columns(
        first0=starts, first1=[min(at + each, rows) for at in starts],
        n0=[PANEL * at for at in starts], n1=[min(PANEL * (at + each), by.n) for at in starts],
    )  # fmt: skip
    step.op(
        "pack", "forward", weight_pack, grid, grid.cost("n0:n1", 0, 2 * F32 * width // PANEL), layer,
        panels=Write(panels, "first0:first1"), weight=Read(weight), by=by, trans=trans,
    )  # fmt: skip
