"""The matrix products of a step, one by one: our own product and the libraries', in turns on one thread.

    python -m bench.products --precisions fp32,bf16 --rounds 6     # 3 minutes on two cores

The products are those of the step program without clipping. (In bf16 the step computes the logits in parts that stay in
a core's cache, here they are computed whole.) In each round a fresh process computes each of them by every candidate on
the first core. The candidates take turns, and the figure of a round is the median of a candidate's repetitions.
mkl/1536 computes 1,536 columns at a time.

A weight is read from memory, since a step has used others in the meantime: there are copies of it, used in turn, that
together are COLD times as large as the last cache. Of the operands of a weight's gradient and of attention there is one
copy, and before each timed product the same candidate computes it once untimed. C has one copy. A step is harder: both
threads share a cache and the memory, and a weight's gradient finds only part of its operands in the cache.

Before it is timed, every candidate must have written all of C, and its first row is compared with NumPy's. The
registers' rate is the larger of two of gpt2core.run.roof (itself the best of some repetitions), before and after the
products of a round. Raw figures, the machine and a table are written to --out (.json and .md).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.quiet import QUIET, undisturbed
from bench.ratios import HOW, limits, ratio
from bench.record import Measured, head, machine, out_option, save
from bench.rounds import SEED, round_order
from bench.step import child, parse_shape
from gpt2core.compile import clock
from gpt2core.gemm import libraries, table
from gpt2core.gemm.measuring import matrix, operand
from gpt2core.gemm.multiply import new_scratch, product_of_floats, time_product
from gpt2core.gemm.sizes import PANEL
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.node import host
from gpt2core.process import launch
from gpt2core.run import prepare, roof
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import PRECISIONS
from gpt2core.spec.result import median
from gpt2core.step.ops import Product, Tensor

OWN, OTHERS = "own", "own-rounded,mkl,mkl/1536,openblas"
FORM = "own-rounded, mkl, openblas, mkl/COLUMNS or openblas/COLUMNS"
COLD, UNKNOWN_CACHE = 4, 32 << 20  # times the last cache; its bytes where the system does not say
FEWEST, MOST, ROUND_FLOP = 6, 60, 10_000_000_000  # repetitions of a candidate in a round: limits, and their FLOP
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}  # of a row's largest value
REGISTERS = {"fp32": "registers_gflop_per_s", "bf16": "bf16_registers_gflop_per_s"}
Candidate = tuple[str, libraries.Library, int]  # name, library, columns at a time
Order = Callable[[Sequence[Candidate], int], list[Candidate]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.products", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--shape", default="4x64", help="BATCHxSEQ")
    parser.add_argument("--threads", type=int, default=2, help="of the step, whose slices depend on them")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--others", default=OTHERS, help=f"compared with our own: {FORM} (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=6, help="processes of each precision")
    out_option(parser, "products")
    given = parser.parse_args(arguments)
    precisions = list(dict.fromkeys(given.precisions.split(",")))
    asked = {"model": given.model, "shape": given.shape, "threads": given.threads,
             "candidates": [OWN, *dict.fromkeys(given.others.split(","))], "seed": SEED}  # fmt: skip
    try:
        if given.rounds < 1:
            raise ConfigError("rounds", given.rounds, "at least 1")
        for name in asked["candidates"][1:]:
            check_candidate(name)
        for precision in precisions:
            config_of({**asked, "precision": precision})
    except ConfigError as error:
        parser.error(str(error))
    before = machine()
    rounds = []
    for number in range(given.rounds):
        for precision in round_order(precisions, number):
            one = functools.partial(process, {**asked, "precision": precision, "round": number})
            found, others = undisturbed(one, f"{precision}, round {number + 1}")
            rounds.append({"precision": precision, "round": number, "others": others, **found})
            print(f"[{number + 1}/{given.rounds}] {precision}: {found['registers_gflop_per_s']:.0f} GFLOP/s in "
                  f"registers, {len(found['products'])} products", flush=True)  # fmt: skip
    report = {
        **head("taskloom.bench.products/1", {**before, "load_average_after": list(os.getloadavg())}),
        **asked, "rounds": rounds, "rows": [row for p in precisions for row in rows(rounds, p)],
    }  # fmt: skip
    save(given.out, report, document(report))


def check_candidate(name: str) -> None:
    """Raise ConfigError for a name that no precision has."""
    library, _, columns = name.partition("/")
    in_pieces = library in ("mkl", "openblas") and columns.isdecimal() and int(columns) > 0
    if name not in ("own-rounded", "mkl", "openblas") and not in_pieces:
        raise ConfigError("others", name, FORM)


def config_of(asked: Mapping[str, Any]) -> TrainConfig:
    """The run whose products are asked for. Raises ConfigError."""
    if asked["precision"] not in PRECISIONS:
        raise ConfigError("precisions", asked["precision"], "of " + ", ".join(PRECISIONS))
    batch, seq = parse_shape(asked["shape"])
    return TrainConfig.from_dict({
        "model": asked["model"], "batch": batch, "seq": seq, "precision": asked["precision"],
        "threads": asked["threads"], "allow_oversubscription": True, "data": "synthetic",
    })  # fmt: skip


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
    precision, core = asked["precision"], launch.allowed_cores()[0]
    os.sched_setaffinity(0, [core])
    found = candidates(asked["candidates"], precision)
    cold_bytes = COLD * (host.last_level_cache_bytes([core]) or UNKNOWN_CACHE)
    before, first = registers(core, precision), clock.pair()
    products: list[Measured] = []
    for (product, weight), ops in products_of(config_of(asked)).items():
        check(product, found, precision)
        copies = -(-cold_bytes // (4 * product.k * product.n)) if weight else 1
        order = functools.partial(round_order, case=f"{product} {asked['round']}", seed=asked["seed"])
        ticks = timed(product, copies, weight, found, order)
        flop = 2 * product.m * product.n * product.k
        products.append({"product": str(product), "ops": ops, "flop": flop, "copies": copies, "ticks": ticks})
    scale = clock.Calibration.between(first, clock.pair()).seconds_per_tick
    for each in products:
        each["seconds"] = {name: median(values) * scale for name, values in each.pop("ticks").items()}
    return {"registers_gflop_per_s": max(before, registers(core, precision)), "cold_bytes": cold_bytes,
            "versions": {library.name: library.version for _, library, _ in found}, "products": products}  # fmt: skip


def candidates(names: Sequence[str], precision: str) -> list[Candidate]:
    """Those that this node and precision have: our own first."""
    known = {library.name: library for library in libraries.available(precision)}
    parts = [(name, *name.partition("/")[::2]) for name in names]
    return [
        (name, known[library], int(columns or 0))
        for name, library, columns in parts
        if library in known and (not columns or known[library].entry is product_of_floats)
    ]


def products_of(config: TrainConfig) -> dict[tuple[Product, bool], list[str]]:
    """The products of a step that are worth choosing a library for, by whether B is a weight, with their ops."""
    weights = {spec.name for spec in weight_specs(config.model)}
    found: dict[tuple[Product, bool], list[str]] = {}
    for call in (call for op in prepare.plan(config).program.ops for call in op.calls):
        weight = any(isinstance(each, Tensor) and each.name in weights for each in call.operands)
        for product in (each for each in call.operands if isinstance(each, Product)):
            ops = found.setdefault((product, weight), [])
            if call.name not in ops:
                ops.append(call.name)
    worth = set(table.worth_choosing([product for product, _ in found]))
    return {(product, weight): ops for (product, weight), ops in found.items() if product in worth}


def check(p: Product, found: Sequence[Candidate], precision: str) -> None:
    """Raise SystemExit for a candidate that leaves part of C unwritten or computes another first row than NumPy."""
    rng = np.random.default_rng(0)
    a, b, c = operand(rng, p.m * p.k, p.half_a), operand(rng, p.k * p.n, p.half_b), matrix(p.m * p.n)
    row = first_row(p, a, b)
    words, scratch = new_scratch()
    for name, library, piece in found:
        c.fill(np.nan)
        time_product(library.by(piece, scratch), *shape_of(p), a, b, c, 0)
        wrong = np.abs(c[: p.n] - row).max() > TOLERANCE[precision] * np.abs(row).max()
        if wrong or not np.isfinite(c).all():
            raise SystemExit(f"{p} by {name} is wrong")
    del words


def timed(p: Product, copies: int, weight: bool, found: Sequence[Candidate], order: Order) -> dict[str, list[int]]:
    """Ticks of each repetition by each candidate. order(candidates, repetition): their order.

    Copies lie a panel apart: our product fetches the panel behind its last one, which is another product's in a step.
    """
    rng, size_b = np.random.default_rng(0), p.k * p.n
    a, one, c = operand(rng, p.m * p.k, p.half_a), operand(rng, size_b, p.half_b), matrix(p.m * p.n)
    far = size_b + PANEL * max(p.k, p.n)
    b = matrix(far * copies).view(one.dtype)[: far * copies].reshape(copies, far)[:, :size_b]
    b[:] = one
    words, scratch = new_scratch()
    ticks: dict[str, list[int]] = {name: [] for name, _, _ in found}
    turn = 0
    for repetition in range(max(FEWEST, min(ROUND_FLOP // (2 * p.m * size_b), MOST)) // 2 * 2):
        for name, library, piece in order(found, repetition):
            product = functools.partial(time_product, library.by(piece, scratch), *shape_of(p), a, b[turn % copies], c)
            if not weight:
                product(1 - p.trans_a)
            ticks[name].append(product(1 - p.trans_a))
            turn += 1
    del words
    return ticks


def shape_of(p: Product) -> tuple[int, ...]:
    """The arguments of `time_product` that describe a product."""
    return (p.half_a, p.half_b, p.trans_a, p.trans_b, p.m, p.n, p.k)


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
    found = roof.all_registers_gflop_per_s([core])[REGISTERS[precision]]
    assert found is not None, f"{precision}: no rate of the registers"
    return found


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
        f"time of a candidate divided by that of our own, above 1 where ours is faster: {HOW}. Rows x columns x depth, "
        "n: as stored, t: transposed. Copies: of a weight (B), which is read from memory. Others took more than "
        f"{QUIET:.0%} of the machine during {sum(r['others'] > QUIET for r in report['rounds'])} of "
        f"{len(report['rounds'])} processes.",
    ]  # fmt: skip
    for precision in dict.fromkeys(row["precision"] for row in report["rows"]):
        mine = [row for row in report["rows"] if row["precision"] == precision]
        base, *others = mine[0]["gflop_per_s"]
        titles = ["product", "ops", "copies", base, "of the registers"]
        titles += [title for name in others for title in (name, "ratio (95 %)")]
        versions = next(r["versions"] for r in report["rounds"] if r["precision"] == precision)
        said = "; ".join(f"{name}: {version}" for name, version in versions.items())
        lines += ["", f"## {precision}", "", f"{said}.", "", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
        for row in mine:
            rates = row["gflop_per_s"]
            cells = [row["product"], ", ".join(row["ops"]), str(row["copies"]), f"{rates[base]:.0f}",
                     f"{row['registers_share']:.0%}"]  # fmt: skip
            for name in others:
                found = row["ratios"][name]
                cells += [f"{rates[name]:.0f}", f"{found['ratio']:.2f} ({limits(found['ratio_interval'], 2)})"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
