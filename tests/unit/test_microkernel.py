"""Our own matrix product: all remainders of tiles, panels and blocks, every precision, overwriting and accumulating."""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt2core.compile import bfloat16
from gpt2core.compile.bfloat16 import native
from gpt2core.compile.jit import address_of, pointer_i32, runtime
from gpt2core.compile.lanes import LANES
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import measuring, microkernel, register_tile, tiles
from gpt2core.gemm.blocking import blocking
from gpt2core.gemm.multiply import multiply, new_scratch, own_product_of_pairs, own_product_of_rounded, time_product
from gpt2core.gemm.operands import Operand, into
from gpt2core.gemm.packing import pack_for_tiles, pack_panels
from gpt2core.gemm.sizes import PANEL as WIDEST
from gpt2core.gemm.sizes import PRODUCT_SCRATCH, panels_shape
from gpt2core.gemm.words import pair
from gpt2core.step.tensors import ALIGN
from tests.support.processors import MKL, WITH_MKL

BLOCKING = blocking()
BLOCK, DEPTH, PANEL = BLOCKING.block, BLOCKING.depth, BLOCKING.panel
SHAPES = [
    (1, 1, 1),
    (BLOCKING.most_rows, PANEL, 32),
    (BLOCKING.most_rows - 1, PANEL - 1, 31),
    (BLOCKING.most_rows + 1, PANEL + 1, 33),
    (17, 2 * PANEL + 16, 2),
    (5, 60, 2 * DEPTH + 1),
    (BLOCK // DEPTH + 9, PANEL + 17, DEPTH + 67),
    (BLOCK // DEPTH + 1, 20, 2 * DEPTH),
    (BLOCK // 432 + 2, 20, 2 * 432 - 29),  # the rows of a block are no multiple of a tile's
    (2 * 128 + 9, PANEL + 17, 258),  # groups of a transposed A's columns, together and alone
    (17, microkernel.LARGE // 500 + 17, 1600),  # large: C and first panels are fetched
    (16 * BLOCKING.most_rows + 3, 3 * PANEL + 5, 768),  # segments of a transposed B on Zen 4
    (16 * BLOCKING.most_rows + 3, 3 * PANEL, 1472),  # the last share has fewer
    (12 * BLOCKING.most_rows + 1, 2 * PANEL + 3, 3 * 768),  # as many segments as a tile packs; several blocks
]
GUARD = 1 << 14  # words around the scratch
OWN = {
    "fp32": gemm.ours("fp32"),
    "bf16": gemm.ours("bf16"),
    "rounded": gemm.Library("own", "bf16 without instructions for it", own_product_of_rounded),
}
if native() and tiles.permitted():
    OWN["pairs"] = gemm.Library("own", "bf16 on vector registers", own_product_of_pairs)


def bf16(values: np.ndarray) -> np.ndarray:
    """The nearest bfloat16, ties to even, as float32, computed in another way than the tested code."""
    whole = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    low, kept = whole & 0xFFFF, whole >> 16
    up = (low > 0x8000) | ((low == 0x8000) & (kept % 2 == 1))
    return ((kept + up) << 16).astype(np.uint32).view(np.float32)


@runtime
def add_product(by, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc):
    """Add the product to C. The rows of C may be longer than those of the product."""
    left, right = Operand(address_of(a, 0), lda, trans_a, 0), Operand(address_of(b, 0), ldb, trans_b, 0)
    multiply(by, m, n, k, left, right, into(address_of(c, 0), ldc, 1))


@runtime
def pack_part(panels, b, ldb, trans_b, k, begin, end):
    """Pack some columns of op(B)."""
    pack_panels(address_of(panels, 0), address_of(b, 0), ldb, trans_b, k, begin, end)


def halves(values: np.ndarray) -> np.ndarray:
    """The upper halves of float32, as bfloat16 lie in memory."""
    return np.ascontiguousarray(values).view(np.uint16)[..., 1::2].copy()


def product(
    library: gemm.Library, a: np.ndarray, b: np.ndarray, trans_a: int, trans_b: int, half_a: int = 0, half_b: int = 0
) -> np.ndarray:
    """op(A) @ op(B), which must not write outside C or scratch, read C, or rely on clean scratch."""
    m, k, n = *a.shape, b.shape[1]
    words = np.full(PRODUCT_SCRATCH + 2 * GUARD, -1, np.int32)  # NaN
    begin = -words.ctypes.data % ALIGN // 4 + ALIGN
    scratch = words.ctypes.data + 4 * begin
    c = np.full((m + 2, n), np.nan, np.float32)
    c[-1], c[0] = 7, 7
    given_a = np.ascontiguousarray(a.T if trans_a else a)
    given_b = np.ascontiguousarray(b.T if trans_b else b)
    given_a, given_b = halves(given_a) if half_a else given_a, halves(given_b) if half_b else given_b
    by = library.by(n, scratch)
    time_product(by, half_a, half_b, trans_a, trans_b, m, n, k, given_a.ravel(), given_b.ravel(), c[1:-1].ravel(), 1)
    assert (c[0] == 7).all()
    assert (c[-1] == 7).all()
    assert (words[:begin] == -1).all()
    assert (words[begin + PRODUCT_SCRATCH :] == -1).all()
    return c[1:-1]


def check(precision: str, m: int, n: int, k: int, trans_a: int, trans_b: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
    got = product(OWN[precision], a, b, trans_a, trans_b)
    x, y = (a, b) if precision == "fp32" else (bf16(a), bf16(b))
    bound = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
    error = np.abs(got - x.astype(np.float64) @ y.astype(np.float64))
    assert (error <= bound * (k + 8) * 2**-24).all()  # bound for float32 sums in any order


@pytest.mark.parametrize("precision", OWN)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_product(precision, m, n, k, trans_a, trans_b):
    check(precision, m, n, k, trans_a, trans_b)


BF16 = {name: library for name, library in OWN.items() if name != "fp32"}
BF16 |= {library.name: library for library in gemm.available("bf16") if library.name == "mkl"}
WHERE = [where for where in itertools.product((0, 1), repeat=4) if where[0] or where[1]]


def check_halves(
    library: gemm.Library, m: int, n: int, k: int, half_a: int, half_b: int, trans_a: int, trans_b: int
) -> None:
    """The same bits from bfloat16 and from float32 of the same values."""
    rng = np.random.default_rng(5)
    a, b = (bf16(rng.standard_normal(shape, dtype=np.float32)) for shape in ((m, k), (k, n)))
    got = product(library, a, b, trans_a, trans_b, half_a, half_b)
    assert got.tobytes() == product(library, a, b, trans_a, trans_b).tobytes()


@pytest.mark.parametrize("library", BF16)
@pytest.mark.parametrize(("half_a", "half_b", "trans_a", "trans_b"), WHERE)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_product_of_bfloat16_in_memory(library, m, n, k, half_a, half_b, trans_a, trans_b):
    check_halves(BF16[library], m, n, k, half_a, half_b, trans_a, trans_b)


@settings(max_examples=60, deadline=None)
@given(
    library=st.sampled_from(list(BF16)), where=st.sampled_from(WHERE),
    m=st.integers(1, 40), n=st.integers(1, 130), k=st.integers(1, 90),
)  # fmt: skip
def test_any_shape_of_bfloat16_in_memory(library, where, m, n, k):
    check_halves(BF16[library], m, n, k, *where)


@runtime
def packed_for_tiles(words, words_row, source, stride, transposed, count, depth, half):
    pack_for_tiles(
        address_of(words, 0), words_row, address_of(source, 0), stride, transposed, count, depth, half
    )  # fmt: skip


@runtime
def packed_panel(panel, b, ldb, trans_b, half_b, depth, length, columns):
    tiles.pack_panel(address_of(panel, 0), address_of(b, 0), ldb, trans_b, half_b, depth, length, columns)


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize(("count", "depth"), [(32, 64), (17, 33), (3, 2), (50, 70)])
def test_rows_for_tile_registers(count, depth, transposed):
    """Packed alike from bfloat16 and float32; on processors without tile registers too."""
    values = bf16(np.random.default_rng(6).standard_normal((depth, count) if transposed else (count, depth)))
    length, rows = -(-depth // 32) * 16, -(-count // 16) * 16
    of_halves, of_floats = np.zeros((2, rows, length), np.int32)
    for words, source, half_a in ((of_halves, halves(values), 1), (of_floats, values, 0)):
        room = np.full(words.size + ALIGN, -1, np.int32)
        first = -room.ctypes.data % ALIGN // 4
        at = room[first : first + words.size]
        packed_for_tiles(at, 4 * length, source.ravel(), values.shape[1], transposed, count, depth, half_a)
        words[:] = at.reshape(words.shape)
    assert of_floats[:count].any()
    assert of_halves[:count].tobytes() == of_floats[:count].tobytes()


@pytest.mark.parametrize(("depth", "columns"), [(64, PANEL), (33, PANEL), (7, 5), (70, 40)])
def test_panels_for_tile_registers(depth, columns):
    values, length = bf16(np.random.default_rng(7).standard_normal((depth, columns))), -(-depth // 32) * 16
    found = []
    for source, half_b in ((halves(values), 1), (values, 0)):
        room = np.full(length * PANEL + ALIGN, -1, np.int32)
        first = -room.ctypes.data % ALIGN // 4
        packed_panel(room[first:], source.ravel(), columns, 0, half_b, depth, length, columns)
        found.append(room[first : first + length * PANEL].tobytes())
    assert found[0] == found[1] != bytes(4 * length * PANEL)


@settings(max_examples=60, deadline=None)
@given(
    precision=st.sampled_from(list(OWN)),
    m=st.integers(1, 40), n=st.integers(1, 130), k=st.integers(1, 90),
    trans_a=st.integers(0, 1), trans_b=st.integers(0, 1), seed=st.integers(0, 9),
)  # fmt: skip
def test_any_shape(precision, m, n, k, trans_a, trans_b, seed):
    check(precision, m, n, k, trans_a, trans_b, seed)


@pytest.mark.parametrize("by", [
    "own", "own bf16", "own rounded", MKL, pytest.param("mkl bf16", marks=WITH_MKL), "openblas",
])  # fmt: skip
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(("m", "n", "k"), [(7, 9, 5), (64, 64, 40), (17, 130, 2 * DEPTH + 1)])
def test_adding_to_part_of_a_matrix(by, trans_a, trans_b, m, n, k):
    """As attention does with a head: rows are parts of longer ones, and C already has values."""
    name, _, precision = by.partition(" ")
    library = OWN[precision or "fp32"] if name == "own" else gemm.load(name, precision or "fp32")[0]
    rng, (words, scratch) = np.random.default_rng(2), new_scratch()
    a = rng.standard_normal((k, m) if trans_a else (m, k)).astype(np.float32)
    b = rng.standard_normal((n, k) if trans_b else (k, n)).astype(np.float32)
    wide = [np.full((len(part), part.shape[1] + 3), np.nan, np.float32) for part in (a, b)]
    for part, whole in zip((a, b), wide, strict=True):
        whole[:, : part.shape[1]] = part
    c = np.full((m, n + 5), 2, np.float32)
    add_product(
        library.by(0, scratch), trans_a, trans_b, m, n, k, wide[0], a.shape[1] + 3, wide[1], b.shape[1] + 3, c, n + 5
    )
    assert (c[:, n:] == 2).all()
    x, y = (bf16(a), bf16(b)) if precision else (a, b)
    np.testing.assert_allclose(c[:, :n], 2 + (x.T if trans_a else x) @ (y.T if trans_b else y), rtol=1e-4, atol=1e-3)
    del words


@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (4, 100, 40), (5, 2 * WIDEST, 2 * DEPTH + 1), (20, WIDEST + 17, DEPTH + 2)]
)
def test_a_packed_operand_gives_the_same_bits(m: int, n: int, k: int, trans_b: int) -> None:
    """Panels are packed in two parts; what lies behind the last column is not read."""
    rng, (words, scratch) = np.random.default_rng(4), new_scratch()
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (n, k) if trans_b else (k, n)))
    by, ldb = gemm.ours().by(0, scratch), k if trans_b else n
    expected, got = np.full((m, n + 3), 2, np.float32), np.full((m, n + 3), 2, np.float32)
    add_product(by, 0, trans_b, m, n, k, a, k, b, ldb, expected, n + 3)
    panels = measuring.matrix(math.prod(panels_shape(n, k)))  # on a page, as in a run
    panels[:] = np.nan
    for part in ((0, WIDEST), (WIDEST, n)) if n > WIDEST else ((0, n),):
        pack_part(panels, b, ldb, trans_b, k, *part)
    add_product(by, 0, trans_b, m, n, k, a, k, panels, 0, got, n + 3)
    assert got.tobytes() == expected.tobytes()
    assert (got[:, n:] == 2).all()
    del words


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (37, PANEL + 3, 51)])
def test_a_small_transposed_operand_is_read_as_it_lies(m: int, n: int, k: int) -> None:
    """With the bits of one whose rows are far apart, which is packed."""
    rng, (words, scratch) = np.random.default_rng(9), new_scratch()
    far = microkernel.SMALL // k + m
    a, b = rng.standard_normal((k, far), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
    by, results = OWN["fp32"].by(0, scratch), []
    packed = (scratch - words.ctypes.data) // 4 + 2 * DEPTH * (PANEL + 1)
    for lda in (m, far):
        words[:], c = -1, np.zeros((m, n), np.float32)
        add_product(by, 1, 0, m, n, k, np.ascontiguousarray(a[:, :lda]), lda, b, n, c, n)
        assert (words[packed : packed + m] != -1).any() == (lda == far)
        results.append(c.tobytes())
    assert results[0] == results[1]


@pytest.mark.parametrize("precision", [name for name in OWN if name != "bf16" or not tiles.permitted()])
@pytest.mark.parametrize(("rows", "depth", "fits"), [(128, 768, True), (64, 768, False), (128, 784, False)])
def test_a_transposed_operand_is_packed_within_tiles_on_zen_4(precision, rows, depth, fits):
    """Otherwise only times would tell: segments go by way of a line of scratch."""
    rng, (words, scratch) = np.random.default_rng(8), new_scratch()
    words[:] = -1
    a, b = (rng.standard_normal(count, dtype=np.float32) for count in (rows * depth, 2 * PANEL * depth))
    c = np.empty(rows * 2 * PANEL, np.float32)
    time_product(OWN[precision].by(0, scratch), 0, 0, 0, 1, rows, 2 * PANEL, depth, a, b, c, 0)
    at = (scratch - words.ctypes.data + register_tile.segment_at()) // 4 + 2 * DEPTH * PANEL
    within = BLOCKING.packs_segments and fits and (precision != "rounded") and (precision == "fp32" or native())
    assert (words[at : at + LANES] != -1).any() == within


@pytest.mark.parametrize("precision", OWN)
def test_a_row_does_not_depend_on_its_neighbours(precision):
    """A tile of many rows and a tile of one give the same bits."""
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((19, 70), dtype=np.float32), rng.standard_normal((70, 50), dtype=np.float32)
    whole = product(OWN[precision], a, b, 0, 0)
    for i in (0, 7, 8, 18):
        assert product(OWN[precision], a[i : i + 1], b, 0, 0).tobytes() == whole[i : i + 1].tobytes()


STATE_IN_USE = bytes.fromhex("b901000000 0f01d0 48c1e220 4809d0 c3")  # XGETBV with 1 in ECX, as a function
TILE_STATE = 0b11 << 17  # configuration and content of tile registers


def test_tile_registers_are_released():
    """Otherwise Linux would save and restore 8 KiB at each switch of a thread that has multiplied once."""
    if not tiles.permitted():
        pytest.skip("this processor lacks tile registers, or the system does not permit them")
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(STATE_IN_USE)
    in_use = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    check("bf16", 33, 49, 65, 0, 0)
    assert not in_use() & TILE_STATE


half_of_bits = bfloat16.rounding(lambda: False)


@runtime
def converted(values, to, back):
    for i in range(len(values)):
        to[i] = bfloat16.half(values[i])
        back[i] = bfloat16.whole(to[i]) + bfloat16.whole(np.float32(0))


@runtime
def converted_by_bits(values, to, back):
    for i in range(len(values)):
        to[i] = half_of_bits(values[i])
        back[i] = bfloat16.whole(to[i])


@pytest.mark.parametrize("converted", [converted, converted_by_bits])
def test_conversion_to_bfloat16_in_memory(converted):
    values = np.random.default_rng(8).integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    values = np.concatenate([values[~np.isnan(values)], [np.inf, -np.inf, 3.4e38, 1.0, 0.0]]).astype(np.float32)
    values = values[(np.abs(values) >= 2**-126) | (values == 0)]  # processors may flush others to zero
    to, back = np.empty(len(values), np.uint16), np.empty_like(values)
    converted(values, to, back)
    np.testing.assert_array_equal(back, bf16(values))
    np.testing.assert_array_equal(to, halves(bf16(values)))
    payloads = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    converted(payloads, to, back)
    assert np.isnan(back[:4]).all()


@runtime
def pairs_of(low, high, out):
    words = pointer_i32(address_of(out, 0))
    for i in range(len(low)):
        words[i] = pair(low[i], high[i])


def rounded(values: np.ndarray) -> np.ndarray:
    """Values rounded to bfloat16 by the tested code, as float32. They are the lower halves of pairs."""
    out = np.empty(len(values), np.float32)
    pairs_of(values, np.ones_like(values), out)
    word = out.view(np.uint32)
    assert (word >> 16 == 0x3F80).all()
    return (word << 16).view(np.float32)


def test_rounding_to_bfloat16():
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF808000, 0x00008000, 0x00018000], np.uint32)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, 3.4e38, 1e-45, 1.0, -1.0], np.float32)
    bits = np.random.default_rng(1).integers(0, 1 << 32, 20_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    for values in (ties.view(np.float32), edges, bits[~np.isnan(bits)]):
        assert rounded(values).tobytes() == bf16(values).tobytes()


@pytest.mark.parametrize(("depth", "trans_b"), [(96, 0), (96, 1), (97, 0), (97, 1)])
def test_operands_are_rounded_as_alone(depth, trans_b):
    """Also at ties, beside powers of two, subnormal, and the largest."""
    b = np.random.default_rng(2).integers(0, 1 << 32, (depth, 3 * PANEL + 5), dtype=np.uint64).astype(np.uint32)
    b[:7] = np.arange(0x3F807FFD, 0x3F808004)[:, None] + 0x10000 * np.arange(b.shape[1])
    b[7:9] = np.arange(0x3FFFFFFF, 0x40000001)[:, None] + np.arange(b.shape[1]) * [[-1], [1]]
    b[9, :4] = 0x00008000, 0x00018000, 0x80017FFF, 0x7F7F7FFF
    values = b.view(np.float32)
    values[~np.isfinite(bf16(values))] = 1
    assert (product(OWN["rounded"], np.eye(depth, dtype=np.float32), values, 0, trans_b) == bf16(values)).all()


def test_nan_stays_nan_and_infinity_does_not_become_a_number():
    payloads = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], np.uint32)
    assert np.isnan(rounded(payloads.view(np.float32))).all()
    for precision, value in itertools.product(OWN, (np.nan, np.inf)):
        a = np.ones((9, 10), np.float32)
        a[4, 9] = value
        got = product(OWN[precision], a, np.ones((10, 50), np.float32), 0, 1)
        assert (np.isnan(got[4]) | (got[4] == value)).all()
        assert (np.delete(got, 4, axis=0) == 10).all()


@runtime
def placed(places, rows, size, stride):
    microkernel.place_lines(address_of(places, 0), len(places), rows, size, stride)


@pytest.mark.parametrize(
    ("length", "rows", "size"), [(384, 3, 3072), (768, 48, 192), (7, 1, 64), (50, 50, 64), (30, 2, 100)]
)
def test_every_line_ahead_has_a_place_and_they_are_spread_evenly(length, rows, size):
    places = np.full(length, -1, np.int64)
    placed(places, rows, size, 10_000)
    lines = [row * 10_000 + at for row in range(rows) for at in range(0, size, 64)]
    assert sorted(set(places.tolist())) == lines
    assert (np.diff(places) >= 0).all()
    times = np.unique(places, return_counts=True)[1]
    assert times.max() - times.min() <= 1
