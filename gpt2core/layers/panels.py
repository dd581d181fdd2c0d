"""Weights as panels of our own matrix product, for products of few rows: packed once a step, or once if constant.

Our product packs the panels of an operand while it multiplies them. With few rows, such as one time of a recurrence,
that takes longer than the product itself. A weight that nothing else reads, and no step writes, is packed in its place.
"""

from collections.abc import Sequence

from gpt2core.compile.jit import address_of, kernel, pointer_f32
from gpt2core.compile.later import float32
from gpt2core.gemm.products import is_own, pack_panels
from gpt2core.gemm.sizes import PANEL, PRODUCT_SCRATCH
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, Grid, Range
from gpt2core.step.ops import Product, Read, Tensor, Update, Write
from gpt2core.step.signature import Matrix, Multiply, Scalar, TileInt

ZERO = float32(0.0)
MOST_TILES = 8


@kernel
def weight_pack(
    panels: Matrix, weight: Matrix, by: Multiply, trans: Scalar, first0: TileInt, first1: TileInt, n0: TileInt,
    n1: TileInt,
):  # fmt: skip
    """Pack columns [n0, n1) of op(weight) (k, n), where op transposes if `trans` is set, for products that begin at
    column n0, if our own product is to multiply it.

    Writes:   panels (n / 48 rounded up, 48*k) =, rows [first0, first1)
    Reads:    weight (n, k) if `trans` is set, else (k, n)
    Tiles:    disjoint ranges of columns are independent
    Cost:     8*k bytes per column
    Source:   Goto & van de Geijn 2008
    """
    if is_own(by):
        width, length = panels.shape[1], weight.shape[1]
        panels[first0 + (n1 - n0) // PANEL : first1] = ZERO  # behind the last column
        source = address_of(weight, n0 * length if trans else n0)
        pack_panels(address_of(panels, first0 * width), source, length, trans, width // PANEL, 0, n1 - n0)


@kernel
def weight_pack_in_place(weight: Matrix, by: Multiply, n0: TileInt, n1: TileInt):
    """Replace rows [n0, n1) of a weight by the panels of these columns of its transpose, if our own product is to
    multiply it. A panel lies where its rows were.

    Writes:   weight (n, k) <->, rows [n0, n1), of whole panels
    Tiles:    disjoint ranges of rows are independent
    Cost:     16*k bytes per row
    Source:   Goto & van de Geijn 2008
    """
    if is_own(by):
        k, rows = weight.shape[1], pointer_f32(by[3])
        for n in range(n0, n1, PANEL):
            for i in range(PANEL):
                for p in range(k):
                    rows[i * k + p] = weight[n + i, p]
            pack_panels(address_of(weight, n * k), by[3], k, 1, k, 0, PANEL)


def pack_in_place(step: Builder, layer: int | None, *, weight: Tensor, by: Product) -> int:
    """Add the packing of a constant weight (n, k) of float32 for its only product `by`, which has its transpose as B,
    and the same bits if it is not packed. Return how many of its first rows are packed: those of whole panels, if the
    rows of one fit a thread's scratch.
    """
    n, k = step.shape(weight)
    if not step.is_constant(weight) or by.half_a or by.half_b or PANEL * k > PRODUCT_SCRATCH:
        return 0
    rows, each = n - n % PANEL, PANEL * -(-n // (PANEL * MOST_TILES))
    starts = list(range(0, rows, each))
    grid = Grid(tuple(f"p{i}" for i in range(len(starts)))).with_columns(
        n0=starts, n1=[min(at + each, rows) for at in starts]
    )
    if starts:
        with step.once_if_constant(weight):
            step.op(
                "pack", "forward", weight_pack_in_place, grid, grid.cost("n0:n1", 0, 4 * F32 * k), layer,
                weight=Update(weight, "n0:n1"), by=by,
            )  # fmt: skip
    return rows


def pack(
    step: Builder, layer: int, *, panels: Tensor, weight: Tensor, trans: int, by: Product,
    parts: Sequence[Range] = (),
) -> None:  # fmt: skip
    """Add the packing of a weight for its product `by`; once for all steps if `panels` is constant. parts: the columns
    of op(weight) that each product takes, if it takes some, in the order of their panels; each part has as many rows of
    panels.
    """
    rows, width = step.shape(panels)
    each = rows // len(parts) if parts else -(-rows // min(rows, MOST_TILES))
    cut = parts or [(PANEL * at, min(PANEL * (at + each), by.n)) for at in range(0, rows, each)]
    starts = [each * i for i in range(len(cut))]
    grid = Grid(tuple(f"p{i}" for i in range(len(cut)))).with_columns(
        first0=starts, first1=[min(at + each, rows) for at in starts],
        n0=[first for first, _ in cut], n1=[last for _, last in cut],
    )  # fmt: skip
    with step.once_if_constant(panels):
        step.op(
            "pack", "forward", weight_pack, grid, grid.cost("n0:n1", 0, 2 * F32 * width // PANEL), layer,
            panels=Write(panels, "first0:first1"), weight=Read(weight), by=by, trans=trans,
        )  # fmt: skip
