"""Normal random numbers for initial weights: those of NumPy's PCG64 in float32, for large arrays in compiled code.

NumPy calls a function for each random word, so that the weights of GPT-2 124M took longer than all other work of a
start together. Here the generator is part of the loop. Bits are equal (docs/decisions/0023).

Source: O'Neill 2014, "PCG" (XSL-RR 128/64); Marsaglia & Tsang 2000, "The ziggurat method"; numpy.random.Generator.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from gpt2core.compile.jit import cgutils, inlined, intrinsic, runtime, types

MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645  # of PCG's 128-bit congruential generator
LARGE = 1 << 18  # elements from which on compiled code draws; it need not be compiled for tiny models
LAYERS, BITS = 256, 23  # of the ziggurat; of an abscissa within a layer
EDGE = 3.6541528853610088  # the tail begins here
HIGH, LOW, STEP_HIGH, STEP_LOW, IS_KEPT, KEPT = range(6)  # of a state; 64 bits are two draws, of which one may be kept
SIGN, ABSCISSA, LAYER = np.uint64(8), np.uint64(9), np.uint64(LAYERS - 1)
WORD, HALF_BITS, WORD_BITS, ROTATION = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(63), np.uint64(58)
ZERO, ONE, UNIT_BITS = np.uint64(0), np.uint64(1), np.uint64(8)
UNIT, EDGE32, PER_EDGE32 = np.float32(1 / (1 << 24)), np.float32(EDGE), np.float32(1 / EDGE)


class Normals:
    """The stream of `numpy.random.Generator(PCG64(seed)).standard_normal(dtype=numpy.float32)`."""

    def __init__(self, seed: Sequence[int]) -> None:
        self._generator = np.random.Generator(np.random.PCG64(list(seed)))

    def fill(self, out: NDArray[np.float32], deviation: float) -> None:
        """Overwrite a C-ordered array with the next numbers, each multiplied by the standard deviation as float32."""
        scale = np.float32(deviation)
        if out.size < LARGE:
            self._generator.standard_normal(dtype=np.float32, out=out)
            out *= scale
        else:
            state = self.state()
            fill_normal(out.reshape(-1), scale, state, *ziggurat())
            self.go_on(state)

    def state(self) -> NDArray[np.uint64]:
        """The generator's state for compiled code (6,)."""
        known: Any = self._generator.bit_generator.state
        words = [half for name in ("state", "inc") for half in divmod(known["state"][name], 1 << 64)]
        return np.array([*words, known["has_uint32"], known["uinteger"]], np.uint64)

    def go_on(self, state: NDArray[np.uint64]) -> None:
        """Set the generator's state."""
        high, low, step_high, step_low, kept, half = map(int, state)
        self._generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": high << 64 | low, "inc": step_high << 64 | step_low},
            "has_uint32": kept,
            "uinteger": half,
        }


@functools.cache
def ziggurat() -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
    """For each layer: the abscissas below which a point is accepted at once (256,), the width of one abscissa (256,),
    and the density at the layer's edge (256,).
    """

    def density(x: float) -> float:
        return math.exp(-0.5 * x * x)

    area = EDGE * density(EDGE) + math.sqrt(math.pi / 2) * math.erfc(EDGE / math.sqrt(2))
    edges = [EDGE]
    while len(edges) < LAYERS - 1:
        edges.insert(0, math.sqrt(-2 * math.log(area / edges[0] + density(edges[0]))))
    base = area / density(EDGE)  # width of the lowest layer, as wide as a rectangle of this area
    inner = [EDGE / base, 0.0, *(low / high for low, high in pairwise(edges))]
    accepted = np.array([round(share * 2**BITS) for share in inner], np.int64)
    widths = np.array([base, *edges], np.float64) / 2**BITS
    heights = np.array([1.0, *map(density, edges)])
    return accepted, widths.astype(np.float32), heights.astype(np.float32)


@intrinsic
def advanced(typingctx, high, low, step_high, step_low):
    """The next state of the congruential generator as (high, low), from 128-bit numbers in two uint64 each."""

    def codegen(context, builder, signature, args):
        long, word = ir.IntType(128), ir.IntType(64)
        bits = ir.Constant(long, 64)

        def whole(high, low):
            return builder.or_(builder.shl(builder.zext(high, long), bits), builder.zext(low, long))

        found = builder.add(builder.mul(whole(*args[:2]), ir.Constant(long, MULTIPLIER)), whole(*args[2:]))
        halves = [builder.trunc(builder.lshr(found, bits), word), builder.trunc(found, word)]
        return cgutils.pack_array(builder, halves)

    return types.UniTuple(types.uint64, 2)(*[types.uint64] * 4), codegen


@inlined
def word_of(high, low):
    """The 64 random bits of a state."""
    mixed, turn = high ^ low, high >> ROTATION
    return (mixed >> turn) | (mixed << ((~turn + ONE) & WORD_BITS))


@runtime
def draw(state):
    """The next 32 random bits, as uint64."""
    if state[IS_KEPT]:
        state[IS_KEPT] = ZERO
        return state[KEPT]
    high, low = advanced(state[HIGH], state[LOW], state[STEP_HIGH], state[STEP_LOW])
    word = word_of(high, low)
    state[HIGH], state[LOW], state[IS_KEPT], state[KEPT] = high, low, ONE, word >> HALF_BITS
    return word & WORD


@runtime
def draw_unit(state):
    """The next float32 in [0, 1)."""
    return np.float32(np.int64(draw(state) >> UNIT_BITS)) * UNIT


@runtime
def near_an_edge(state, x, layer, abscissa, heights):
    """A point of a layer that is not below the density as a whole: the number, or NaN if the point is rejected."""
    if layer == 0:
        while True:
            beyond = -PER_EDGE32 * math.log1p(-draw_unit(state))
            other = -math.log1p(-draw_unit(state))
            if other + other > beyond * beyond:
                return -(EDGE32 + beyond) if abscissa >> 8 & 1 else EDGE32 + beyond
    height = (heights[layer - 1] - heights[layer]) * draw_unit(state) + heights[layer]
    return x if np.float64(height) < math.exp(-0.5 * np.float64(x) * np.float64(x)) else np.float32(np.nan)


@runtime
def fill_normal(out, deviation, state, accepted, widths, heights):
    """Overwrite out (n,) float32; state (6,) uint64 advances."""
    high, low, step_high, step_low = state[HIGH], state[LOW], state[STEP_HIGH], state[STEP_LOW]
    kept, half = state[IS_KEPT] != ZERO, state[KEPT]
    i = 0
    while i < len(out):
        if kept:
            bits = half
        else:
            high, low = advanced(high, low, step_high, step_low)
            word = word_of(high, low)
            bits, half = word & WORD, word >> HALF_BITS
        kept = not kept
        layer, abscissa = np.int64(bits & LAYER), np.int64(bits >> ABSCISSA)
        x = np.float32(abscissa) * widths[layer] * np.float32(1 - 2 * np.int64(bits >> SIGN & ONE))  # no branch
        if abscissa >= accepted[layer]:
            state[HIGH], state[LOW], state[IS_KEPT], state[KEPT] = high, low, np.uint64(kept), half
            x = near_an_edge(state, x, layer, abscissa, heights)
            high, low, kept, half = state[HIGH], state[LOW], state[IS_KEPT] != ZERO, state[KEPT]
        if x == x:
            out[i] = x * deviation
            i += 1
    state[HIGH], state[LOW], state[IS_KEPT], state[KEPT] = high, low, np.uint64(kept), half
