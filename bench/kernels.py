"""What bounds the kernels of a step that are no products, on one core.

    python -m bench.kernels --rounds 300

Each kernel is called again and again on the same operands, in turns with the others, and its fastest call counts. Its
roof is that of bench.ops: its arithmetic at the registers' rate, where an exponential counts as EXPONENTIAL FLOP. What
a loop of exponentials alone leaves of it bounds the others. Attention has a second bound, that of its tiles: products
by whole register tiles and words, which is more than the causal mask leaves. One row of GELU is in the first cache; its
64 rows and the rows of cross-entropy are where the call before left them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.bound import ATTENTION, EXPONENTIAL, PER_EXPONENTIAL
from bench.record import Measured, head, machine, out_option, save
from gpt2core.compile.jit import kernel
from gpt2core.compile.lanes import LANES
from gpt2core.compile.vector import exp32
from gpt2core.gemm import libraries, registers
from gpt2core.gemm.blocking import blocking
from gpt2core.gemm.microkernel import part_of_tile
from gpt2core.gemm.multiply import new_scratch
from gpt2core.gemm.operands import COLUMNS_FROM, WORDS_FROM, WORDS_TO, Band
from gpt2core.layers.attention import BLOCK, attention_backward, attention_forward, pairs_before
from gpt2core.layers.gelu import gelu_backward, gelu_forward
from gpt2core.layers.loss import cross_entropy
from gpt2core.process import launch
from gpt2core.run.roof import registers_gflop_per_s

HEADS, HEAD, INNER, VOCAB, PADDED = 12, 64, 3072, 50257, 50304  # GPT-2 124M


class Part(NamedTuple):
    """A kernel that can be called, and the FLOP of its roof, and with whole tiles."""

    name: str
    call: Any
    flop: int
    tiles_flop: int | None = None


@kernel
def exponentials(out: Any, inp: Any) -> None:
    """out = e**inp, element by element."""
    for i in range(inp.shape[0]):
        out[i] = exp32(inp[i])


def tiles_flop(kind: int, shift: int, m: int, n: int, k: int) -> int:
    """FLOP of the register tiles that a Band leaves of a product in float32."""
    total, of = 0, blocking()
    for j in range(0, n, of.panel):
        i = 0
        while i < m:
            rows, columns = next(rows for rows in of.rows if rows <= m - i), min(of.panel, n - j)
            left, right, first, last = part_of_tile.py_func(Band(kind, shift), i, rows, j, columns, k, False)
            total += 2 * rows * max(0, -(-(right - left) // LANES)) * LANES * (last - first)
            i += rows
    return total


def attention_flop(T: int) -> tuple[int, int]:
    """Of a head's products by register tiles, forward and backward, in one slice of T tokens."""
    forward = backward = 0
    for at in range(0, T, BLOCK):
        n, to, width = min(BLOCK, T - at), min(at + BLOCK, T), T - at
        forward += tiles_flop(COLUMNS_FROM, -at, to, n, HEAD) + tiles_flop(WORDS_TO, at, n, HEAD, to)
        backward += 2 * tiles_flop(COLUMNS_FROM, 0, n, width, HEAD) + 2 * tiles_flop(WORDS_FROM, 0, n, HEAD, width)
        backward += tiles_flop(WORDS_TO, 0, width, HEAD, n)
    return forward, backward


def parts(scratch: int) -> list[Part]:
    """The kernels, with scratch for a product (gemm.multiply)."""
    rng, none = np.random.default_rng(0), np.empty((0, 0), np.float32)

    def numbers(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32)

    row, channels, by = numbers(INNER), HEADS * HEAD, libraries.ours().by(0, scratch)
    found = [Part(f"exponentials: {INNER}", exponentials.ready(np.empty_like(row), row), EXPONENTIAL * INNER)]
    for rows in (1, 64):
        forward = gelu_forward.ready(numbers(rows, INNER), none, numbers(rows, INNER), 0, rows)
        backward = gelu_backward.ready(numbers(rows, INNER), numbers(rows, INNER), none, 0, rows)
        targets, loss = np.zeros(rows, np.int32), np.empty(rows, np.float32)
        losses = cross_entropy.ready(numbers(rows, PADDED), loss, targets, VOCAB, 1, 0, rows)
        for (op, phase), size, call in (
            (("gelu", "forward"), INNER, forward), (("gelu", "backward"), INNER, backward),
            (("cross_entropy", "loss"), VOCAB, losses),
        ):  # fmt: skip
            flop = (PER_EXPONENTIAL[op, phase] + EXPONENTIAL) * rows * size
            found.append(Part(f"{op}, {phase}: rows of {size}: {rows}", call, flop))
    for T in (64, 256):
        qkv, dout, out, lse = numbers(T, 3 * channels), numbers(T, channels), numbers(T, channels), numbers(T, HEADS)
        strips, pairs = np.zeros((2, (BLOCK + 1) * T), np.float32), HEADS * pairs_before(0, T)
        calls = (
            attention_forward.ready(out, lse, qkv, by, strips, 0, 1, 0, T, T, T),
            attention_backward.ready(np.empty_like(qkv), dout, qkv, out, lse, by, strips, (0, 1, 0, HEADS), T, T),
        )
        for ((op, phase), flop), tiles, call in zip(ATTENTION.items(), attention_flop(T), calls, strict=True):
            exponentials_flop = EXPONENTIAL * pairs
            name, of_tiles = f"{op}, {phase}: T{T}", HEADS * tiles + exponentials_flop
            found.append(Part(name, call, flop * HEAD * pairs + exponentials_flop, of_tiles))
    return found


def measure(found: Sequence[Part], rounds: int) -> tuple[float, list[float]]:
    """GFLOP/s of a core's registers, and the seconds of each part's fastest call."""
    best, rate = [float("inf")] * len(found), 0.0
    for number in range(rounds):
        if number % 50 == 0:
            rate = max(rate, registers_gflop_per_s(launch.allowed_cores()[:1], registers.FLOATS_KIND))
        for i, part in enumerate(found):
            part.call()  # so that small operands and code are in the first cache, where other parts do not leave them
            begin = time.perf_counter()
            part.call()
            best[i] = min(best[i], time.perf_counter() - begin)
    return rate, best


def rows_of(found: Sequence[Part], rate: float, best: Sequence[float]) -> list[Measured]:
    """A row for each part: its seconds, and the shares of them that its roof and its tiles take."""
    rows = []
    for part, seconds in zip(found, best, strict=True):
        shares = [flop and flop / rate / 1e9 / seconds for flop in (part.flop, part.tiles_flop)]
        rows.append({"part": part.name, "s": seconds, "of_roof": shares[0], "of_tiles": shares[1]})
    return rows


def table(report: Measured) -> str:
    of = report["machine"]
    lines = [
        f"# Kernels that are no products, {report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, one core, {report['instructions']}, {report['registers_gflop_per_s']:.0f} "
        f"GFLOP/s in registers; load average before {of['load_average'][0]:.1f}. The fastest of {report['rounds']} "
        "calls. Of its roof: the time of its arithmetic in registers; of its tiles: with products by whole register "
        "tiles.", "",
        "| kernel | us | of its roof | of its tiles |", "|---|---|---|---|",
    ]  # fmt: skip
    for row in report["rows"]:
        shares = ("-" if row[key] is None else f"{row[key]:.0%}" for key in ("of_roof", "of_tiles"))
        lines.append(f"| {row['part']} | {1e6 * row['s']:.4g} | {' | '.join(shares)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rounds", type=int, default=300, help="calls of each kernel")
    out_option(parser, "kernels")
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: at least 1")
    before = machine()
    words, scratch = new_scratch()
    found = parts(scratch)
    rate, best = measure(found, given.rounds)
    del words
    report = {
        **head("taskloom.bench.kernels/1", before), "rounds": given.rounds, "instructions": blocking().instructions,
        "registers_gflop_per_s": rate, "rows": rows_of(found, rate, best),
    }  # fmt: skip
    save(given.out, report, table(report))


if __name__ == "__main__":
    main()
