"""The matrix products of a step, one by one: our own product and the libraries', in turns on one thread.

    python -m bench.products --precisions fp32,bf16 --rounds 6     # 2 minutes on two cores

The products are those of the step program. In each round a fresh process computes each of them by every candidate; the
candidates take turns, and the figure of a round is the median of a candidate's repetitions. mkl/1536 computes 1,536
columns at a time. A weight is read from memory, since a step has written or read others since its last use: there are
as many copies of it as COLD_BYTES hold, used in turn. A weight's gradient has one copy of its operands, as have the
products of attention. C has one copy. A step is harder: both threads share a cache and the memory, and a weight's
gradient finds only part of its operands in the cache.

Every candidate's first row is compared with NumPy's product. The registers' rate is that of gpt2core.run.roof on the
same core, measured in each round before and after its products. Raw figures, the machine and a table are written to
--out (.json and .md).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.quiet import undisturbed
from bench.ratios import HOW, ratio, told
from bench.record import Measured, head, machine, out_option, save
from bench.rounds import round_order
from bench.step import child, parse_shape
from gpt2core.compile import clock
from gpt2core.gemm import libraries, table
from gpt2core.gemm.multiply import new_scratch, product_of_floats, time_product
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.process import launch
from gpt2core.run import prepare, roof
from gpt2core.spec.config import PRECISIONS, TrainConfig
from gpt2core.spec.result import median
from gpt2core.step.ops import Product, Tensor

CANDIDATES = "own,own-rounded,mkl,mkl/1536,openblas"
COLD_BYTES = 128 << 20  # four times the third cache of a core complex of Zen 4
FEWEST, MOST, ROUND_FLOP = 5, 60, 10_000_000_000  # repetitions of a candidate in a round: limits, and their FLOP
Candidate = tuple[str, libraries.Library, int]  # name, library, columns at a time
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}  # of a row's largest value


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.products", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--shape", default="4x64", help="BATCHxSEQ")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--candidates", default=CANDIDATES, help="LIBRARY or LIBRARY/COLUMNS, the base of ratios first")
    parser.add_argument("--rounds", type=int, default=6, help="processes of each precision")
    out_option(parser, "products")
    given = parser.parse_args()
    precisions = given.precisions.split(",")
    if unknown := set(precisions) - set(PRECISIONS):
        parser.error(f"--precisions {', '.join(sorted(unknown))}: accepted are {', '.join(PRECISIONS)}")
    asked = {"model": given.model, "shape": given.shape, "candidates": given.candidates.split(",")}
    before = machine()
    rounds = []
    for number in range(given.rounds):
        for precision in round_order(precisions, number):
            found, others = undisturbed(lambda p=precision, n=number: process({**asked, "precision": p, "round": n}),
                                        f"{precision}, round {number + 1}")  # fmt: skip
            rounds.append({"precision": precision, "round": number, "others": others, **found})
            print(f"[{number + 1}/{given.rounds}] {precision}: {found['registers_gflop_per_s']:.0f} GFLOP/s in "
                  f"registers, {len(found['products'])} products", flush=True)  # fmt: skip
    report = {
        **head("taskloom.bench.products/1", {**before, "load_average_after": list(os.getloadavg())}),
        **asked, "rounds": rounds, "rows": [row for p in precisions for row in rows(rounds, p)],
    }  # fmt: skip
    save(given.out, report, document(report))


def process(asked: Measured) -> Measured:
    """One round of a precision in a fresh process, with the environment of a trainer."""
    code = "import bench.products as b; b.answer()"
    found: Measured = json.loads(child([sys.executable, "-c", code], json.dumps(asked), launch.environment()))
    return found


def answer() -> None:
    """The process of one round: what is asked on standard input, the figures on standard output."""
    print(json.dumps(measure(json.load(sys.stdin))))


def measure(asked: Mapping[str, Any]) -> Measured:
    """Median seconds of each candidate for each product, on the first core. Raises SystemExit for a wrong product."""
    precision = asked["precision"]
    core = launch.allowed_cores()[0]
    os.sched_setaffinity(0, [core])
    batch, seq = parse_shape(asked["shape"])
    config = TrainConfig.from_dict({"model": asked["model"], "batch": batch, "seq": seq, "precision": precision,
                                    "threads": 2, "allow_oversubscription": True, "data": "synthetic"})  # fmt: skip
    found = list(candidates(asked["candidates"], precision))
    before = registers(core, precision)
    products = [
        {"product": str(product), "ops": used.ops, **timed(product, used.weight, found, asked["round"], precision)}
        for product, used in products_of(config).items()
    ]
    return {"registers_gflop_per_s": max(before, registers(core, precision)), "products": products,
            "versions": {library.name: library.version for _, library, _ in found}}  # fmt: skip


def candidates(names: Sequence[str], precision: str) -> Iterator[Candidate]:
    """Those that this node and precision have."""
    known = {library.name: library for library in libraries.available(precision)}
    for name in names:
        library, _, piece = name.partition("/")
        if library in known and (not piece or known[library].entry is product_of_floats):
            yield name, known[library], int(piece or 0)


class Used(NamedTuple):
    """Which ops compute a product, and whether its B is a weight."""

    ops: list[str]
    weight: bool


def products_of(config: TrainConfig) -> dict[Product, Used]:
    """The products of a step that are worth choosing a library for."""
    weights = {spec.name for spec in weight_specs(config.model)}
    found: dict[Product, Used] = {}
    for call in (call for op in prepare.plan(config).program.ops for call in op.calls):
        weight = any(isinstance(each, Tensor) and each.name in weights for each in call.operands)
        for product in (each for each in call.operands if isinstance(each, Product)):
            used = found.setdefault(product, Used([], weight))
            if call.name not in used.ops:
                used.ops.append(call.name)
    return {product: found[product] for product in table.worth_choosing(list(found))}


def timed(product: Product, weight: bool, found: Sequence[Candidate], round_no: int, precision: str) -> Measured:
    """A product by each candidate: its FLOP, median seconds, and from how many copies B was read."""
    p = product
    flop, size_b = 2 * p.m * p.n * p.k, p.k * p.n
    copies = -(-COLD_BYTES // (4 * size_b)) if weight else 1
    rng = np.random.default_rng(round_no)
    a, one, c = table.operand(rng, p.m * p.k, p.half_a), table.operand(rng, size_b, p.half_b), table.matrix(p.m * p.n)
    b = table.matrix(size_b * copies).view(one.dtype)[: size_b * copies].reshape(copies, size_b)
    b[:] = one
    words, scratch = new_scratch()
    shape = (p.half_a, p.half_b, p.trans_a, p.trans_b, p.m, p.n, p.k)
    row = first_row(p, a, one)
    for name, library, piece in found:
        time_product(library.by(piece, scratch), *shape, a, one, c)
        if not np.abs(c[: p.n] - row).max() <= TOLERANCE[precision] * np.abs(row).max():
            raise SystemExit(f"{product} by {name} is wrong")
    ticks: dict[str, list[int]] = {name: [] for name, _, _ in found}
    first, turn = clock.pair(), 0
    for repetition in range(max(FEWEST, min(ROUND_FLOP // flop, MOST))):
        for name, library, piece in round_order(found, repetition, str(product)):
            ticks[name].append(time_product(library.by(piece, scratch), *shape, a, b[turn % copies], c))
            turn += 1
    scale = clock.Calibration.between(first, clock.pair()).seconds_per_tick
    del words
    return {"flop": flop, "copies": copies, "seconds": {name: median(each) * scale for name, each in ticks.items()}}


def first_row(p: Product, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float32]:
    """The first row of C."""
    a, b = (whole(x).reshape(shape) for x, shape in (
        (a, (p.k, p.m) if p.trans_a else (p.m, p.k)), (b, (p.n, p.k) if p.trans_b else (p.k, p.n)),
    ))  # fmt: skip
    row: NDArray[np.float32] = (a[:, 0] if p.trans_a else a[0]) @ (b.T if p.trans_b else b)
    return row


def whole(array: NDArray[Any]) -> NDArray[np.float32]:
    """Float32 from float32 or from the bits of bfloat16."""
    return array if array.dtype == np.float32 else (array.astype(np.uint32) << 16).view(np.float32)


def registers(core: int, precision: str) -> float:
    """GFLOP/s of one thread's registers."""
    rates = roof.all_registers_gflop_per_s([core])
    return float(rates["registers_gflop_per_s" if precision == "fp32" else "bf16_registers_gflop_per_s"] or 0.0)


def rows(rounds: Sequence[Mapping[str, Any]], precision: str) -> list[Measured]:
    """A row for each product of a precision: each candidate's rate, its ratio to the first, and the first's share of
    the registers' rate; medians of the rounds."""
    mine = [r for r in rounds if r["precision"] == precision]
    found = []
    for number, product in enumerate(mine[0]["products"]):
        by = {name: [r["products"][number]["seconds"][name] for r in mine] for name in product["seconds"]}
        base, *others = by
        shares = [product["flop"] / s / 1e9 / r["registers_gflop_per_s"] for s, r in zip(by[base], mine, strict=True)]
        found.append({
            "precision": precision, "product": product["product"], "ops": product["ops"], "copies": product["copies"],
            "gflop_per_s": {name: product["flop"] / median(each) / 1e9 for name, each in by.items()},
            "registers_share": median(shares), "ratios": {name: ratio(by[name], by[base]) for name in others},
        })  # fmt: skip
    return found


def document(report: Measured) -> str:
    """The tables as Markdown, one for each precision."""
    of = report["machine"]
    lines = [
        f"# Products of a step of {report['model']}, {report['shape']}, {report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, {of['cores']} cores, Linux {of['kernel']}; load average "
        f"{of['load_average'][0]:.1f} before, {of['load_average_after'][0]:.1f} after. One thread. GFLOP/s, and the "
        "time of a candidate divided by that of the first, above 1 where the first is faster: "
        f"{HOW}. Rows x columns x depth; n: as stored, t: transposed. Copies: of B, which is read from memory "
        "if there are several or it is large.",
    ]  # fmt: skip
    for precision in dict.fromkeys(row["precision"] for row in report["rows"]):
        mine = [row for row in report["rows"] if row["precision"] == precision]
        base, *others = mine[0]["gflop_per_s"]
        titles = ["product", "ops", "copies", base, "of the registers"]
        titles += [title for name in others for title in (name, "ratio (95 %)")]
        lines += ["", f"## {precision}", "", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
        for row in mine:
            rates = row["gflop_per_s"]
            cells = [row["product"], ", ".join(row["ops"]), str(row["copies"]), f"{rates[base]:.0f}",
                     f"{row['registers_share']:.0%}"]  # fmt: skip
            for name in others:
                found = row["ratios"][name]
                cells += [f"{rates[name]:.0f}", f"{found['ratio']:.2f} ({told(found['ratio_interval'], 2)})"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
