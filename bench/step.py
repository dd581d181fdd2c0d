"""Compare our training step with PyTorch's, as installed and tuned (bench.torch_peers), eager and compiled: same
weights, tokens, threads, cores and precision.

    python -m bench.step --shapes 4x64,4x256 --threads 1,2 --precisions fp32,bf16 --rounds 7 --steps 12

Without options: all shapes and both precisions of the targets, with and without clipping, on one thread and on all
cores: some hours. The first rows of the table are the ratios to the fastest peer of each case.

Every measurement is a fresh process; in each round every variant runs once, so rounds are pairs (bench/rounds.py). One
that other processes disturbed is repeated (bench.quiet). The figure of a process is the median of its timed steps.
Variants are compared by the ratios of their rounds, with an exact interval from six rounds on. Occasions differ;
`python -m bench.combine` combines recordings of several hours. Losses are compared first: if they differ by more than
LOSS_TOLERANCE, relative, no ratio is shown. Our ops are compared with the node's roof, if it was measured
(`taskloom doctor --peaks`). Raw samples, the machine and tables are written to --out (.json and .md); with --budget-s
no round begins that would end later.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from bench.bound import HOW as OF_THE_BOUND
from bench.bound import share_of_bound
from bench.quiet import ATTEMPTS, QUIET, undisturbed
from bench.ratios import HOW, NO_RATIO, limits, ratio
from bench.record import ROOT, Measured, head, machine, out_option, save
from bench.rounds import round_order
from bench.torch_peers import PEERS, environment
from gpt2core.data.sources import open_tokens, write_tokens
from gpt2core.networks.network import network_of
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import TOKENS
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.latency import quantile
from gpt2core.spec.models import model_from
from gpt2core.spec.phases import MODES
from gpt2core.spec.result import median
from gpt2core.spec.wording import counted
from taskloom.analysis.roofline import peaks_of, roofline

OURS = ("task", "fork-join", "serial")
LOSS_TOLERANCE = {"fp32": 1e-4, "bf16": 1e-2}
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Case:
    """Settings that all variants of a comparison share."""

    batch: int
    seq: int
    threads: int
    precision: str = "fp32"
    grad_clip: float = 0.0

    def __str__(self) -> str:
        threads = counted(self.threads, "thread")
        clipped = f", grad-clip {self.grad_clip:g}" if self.grad_clip else ""
        return f"B{self.batch} T{self.seq}, {threads}, {self.precision}{clipped}"


def arguments(name: str, defaults: Mapping[str, Any], about: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=about,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    cores = len(launch.allowed_cores())
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--shapes", default="4x64,4x256,1x1024", help="BATCHxSEQ, separated by commas")
    parser.add_argument("--threads", default=",".join(str(n) for n in sorted({1, cores})))
    parser.add_argument("--precisions", default="fp32,bf16", help=", ".join(LOSS_TOLERANCE))
    parser.add_argument("--mode", choices=MODES, default="train")
    parser.add_argument("--logits", choices=("all", "last"), default="all", help="in mode infer")
    parser.add_argument("--grad-accum", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--grad-clip", default="0,1", help="limits on the gradients' norm, with commas; 0: none")
    parser.add_argument("--variants", default="task,torch-compile,torch-tuned,torch-tuned-compile",
                        help=", ".join((*OURS, *PEERS)))  # fmt: skip
    parser.add_argument("--rounds", type=int, default=6, help="processes of each variant")
    parser.add_argument("--steps", type=int, default=6, help="steps of each process, warm-up included")
    parser.add_argument("--warmup", type=int, default=2, help="steps of these that are not timed")
    parser.add_argument("--budget-s", type=float, help="no round except the first begins that would end later")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="how often a disturbed process is tried at most")
    parser.add_argument("--seed", type=int, default=1337, help="seed of the weights")
    out_option(parser, name.removeprefix("bench."))
    parser.set_defaults(**defaults)
    given = parser.parse_args()
    unknown = set(given.variants.split(",")) - {*OURS, *PEERS}
    unknown |= set(given.precisions.split(",")) - set(LOSS_TOLERANCE)
    if unknown or min(given.rounds, given.attempts) < 1 or given.warmup >= given.steps:
        parser.error("unknown variant or precision, no rounds, no attempt, or no timed step")
    return given


def main(
    name: str = "bench.step", defaults: Mapping[str, Any] = MappingProxyType({}), about: str | None = __doc__
) -> None:
    """Measure, compare and record. defaults: of options, by their names. Raises SystemExit."""
    given = arguments(name, defaults, about)
    shapes = [parse_shape(text) for text in given.shapes.split(",")]
    cases = [
        Case(batch, seq, int(threads), precision, float(grad_clip))
        for batch, seq in shapes
        for threads in given.threads.split(",")
        for precision in given.precisions.split(",")
        for grad_clip in given.grad_clip.split(",")
    ]
    variants = given.variants.split(",")
    before = machine()
    with tempfile.TemporaryDirectory(prefix="bench-step-") as folder:
        base = prepare(Path(folder), given, max(batch * seq for batch, seq in shapes))
        runs = []
        begun_s = time.monotonic()
        for round_no in range(given.rounds):
            runs += measure(cases, variants, base, round_no, Path(folder), given.attempts)
            spent_s = time.monotonic() - begun_s
            if given.budget_s is not None and spent_s * (round_no + 2) / (round_no + 1) > given.budget_s:
                break
    comparisons = [compare(case, variants, runs, base.warmup_steps) for case in cases]
    report = {
        "name": name,
        **head("taskloom.bench.step/1", {**before, "load_average_after": list(os.getloadavg())}),
        "runs": runs,
        "comparisons": comparisons,
        "headlines": [line for each in comparisons if (line := headline(each, comparisons, runs, base.warmup_steps))],
        "roofs": [roof for case in cases for variant in variants if (roof := roof_of(case, variant, runs)) is not None],
    }
    save(given.out, report, table(report))


def parse_shape(text: str) -> tuple[int, int]:
    """(B, T) from "4x64". Raises ConfigError."""
    batch, _, seq = text.partition("x")
    if not batch.isdecimal() or not seq.isdecimal():
        raise ConfigError("shape", text, "two numbers, such as 4x64")
    return int(batch), int(seq)


def prepare(folder: Path, given: argparse.Namespace, most_tokens: int) -> TrainConfig:
    """Write the weights and the data that every variant reads; the settings that point to them."""
    model = model_from(given.model)
    print(f"writing the weights of {model.name} and the data", flush=True)
    initial = str(folder / f"initial.{'bin' if model.network == 'gpt2' else 'safetensors'}")
    new = TrainConfig(model=model, batch=1, seq=1, seed=given.seed, save=initial)
    network = network_of(new)
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in network.tensors(new)["weights"]}
    network.initialise(new, weights)
    network.write(new, weights)
    data = "synthetic"  # images have the same bytes in every process
    if model.reads == TOKENS:
        used = most_tokens * given.grad_accum * given.steps
        text = "stdlib" if model.vocab >= 256 else "synthetic"
        tokens = open_tokens(TrainConfig(model=model, batch=1, seq=1, steps=used, data=text))
        data = str(folder / "tokens.bin")
        write_tokens(data, tokens)
    return TrainConfig(
        model=model, batch=1, seq=1, steps=given.steps, warmup=given.warmup, seed=given.seed,
        grad_accum=given.grad_accum, data=data, checkpoint=initial, mode=given.mode, logits=given.logits,
        score=given.mode == "infer",
    )  # fmt: skip


def measure(
    cases: Sequence[Case], variants: Sequence[str], base: TrainConfig, round_no: int, folder: Path, attempts: int
) -> list[Measured]:
    """Run every variant of every case once."""
    runs: list[Measured] = []
    for case in cases:
        for variant in round_order(variants, round_no, str(case)):
            cores = tuple(launch.allowed_cores()[: case.threads])
            config = dataclasses.replace(base, cores=cores, **dataclasses.asdict(case))
            run = functools.partial(run_torch if variant in PEERS else run_ours, config, variant, folder)
            result, others = undisturbed(run, f"{case}, {variant}", attempts)
            runs.append({"round": round_no, "variant": variant, **dataclasses.asdict(case), **result, "others": others})
            step_s = median(result["step_s"][base.warmup_steps :])
            print(
                f"[round {round_no + 1}, {len(runs)}/{len(cases) * len(variants)}] {case}: {variant} "
                f"{step_s * 1e3:.2f} ms a step, loss {result['losses'][-1]:.6f}, "
                f"{result['peak_rss_bytes'] / MIB:.0f} MiB",
                flush=True,
            )
    return runs


def run_ours(config: TrainConfig, variant: str, folder: Path) -> Measured:
    """One process of our trainer. Its cores are pinned by itself."""
    result = folder / "result.json"
    spec = dataclasses.replace(config, scheduler=variant).to_dict()
    child(launch.command(result), json.dumps(spec), launch.environment())
    measured = json.loads(result.read_text(encoding="utf-8"))
    kept = ("losses", "step_s", "phase_s", "ops", "environment", "config", "warnings")
    faults = [measured["validity"]["steps"][kind] for kind in ("minor_faults", "major_faults")]
    return {
        **{key: measured[key] for key in kept},
        "peak_rss_bytes": measured["memory_bytes"]["peak_rss"],
        "page_faults": [None if None in pair else sum(pair) for pair in zip(*faults, strict=True)],
        "threads_on": [thread["observed_cores"] for thread in measured["threads"]],
    }


def run_torch(config: TrainConfig, variant: str, _: Path) -> Measured:
    """One process of PyTorch."""
    command = [sys.executable, "-m", "bench.torch_step"]
    spec = {"config": config.to_dict(), **dataclasses.asdict(PEERS[variant])}
    settings = environment(PEERS[variant], config.cores or ())
    measured: Measured = json.loads(child(command, json.dumps(spec), {**os.environ, **settings}))
    return {**measured, "environment": {**measured["environment"], "settings": settings}}


def child(command: Sequence[str], stdin: str, environment: dict[str, str]) -> str:
    """Run a process and return its standard output. Raises SystemExit if it fails."""
    done = subprocess.run(command, input=stdin, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stdout[-2000:] + done.stderr[-2000:]
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout


def of_case(case: Case, variant: str, runs: Sequence[Measured]) -> list[Measured]:
    """The runs of a variant of a case, by round."""
    wanted = {**dataclasses.asdict(case), "variant": variant}
    return [run for run in runs if all(run[key] == value for key, value in wanted.items())]


def roof_of(case: Case, variant: str, runs: Sequence[Measured]) -> Measured | None:
    """Rates of a variant's ops over all processes, relative to the node's roof, and the share that its bound has
    (bench/bound.py); None for a peer."""
    mine = of_case(case, variant, runs)
    if variant in PEERS or not mine:
        return None
    peaks = peaks_of(mine[0]["environment"], case.threads, case.precision)
    label = f"{case}, {variant}"
    if peaks is None:
        return {"label": label, "peaks": None, "ops": [], "bound_share": None}
    summed: dict[tuple[str, str], Measured] = {}
    for op in (op for run in mine for op in run["ops"]):
        total = summed.setdefault((op["op"], op["phase"]), {**op, "time_s": 0.0, "flop": 0, "bytes": 0})
        for key in ("time_s", "flop", "bytes"):
            total[key] += op[key]
    roofs = [dataclasses.asdict(roof) for roof in roofline(list(summed.values()), peaks)]
    return {
        "label": label, "peaks": dataclasses.asdict(peaks), "ops": roofs, "bound_share": share_of_bound(roofs),
    }  # fmt: skip


def compare(case: Case, variants: Sequence[str], runs: Sequence[Measured], warmup: int) -> Measured:
    """Medians of a case's variants, and the ratio of each to the first one, if their losses agree."""
    of = {variant: of_case(case, variant, runs) for variant in variants}
    medians = {variant: [median(r["step_s"][warmup:]) for r in mine] for variant, mine in of.items()}
    rows = []
    for variant, mine in of.items():
        first = of[variants[0]][0]["losses"]
        loss_difference = float(np.max([abs(a / b - 1) for r in mine for a, b in zip(r["losses"], first, strict=True)]))
        agrees = loss_difference <= LOSS_TOLERANCE[case.precision]
        rows.append({
            "variant": variant,
            "median_step_s": median(medians[variant]),
            "min_step_s": min(medians[variant]),
            "max_step_s": max(medians[variant]),
            "p99_step_s": median([quantile(r["step_s"][warmup:], 0.99) for r in mine]),
            "loss_difference": loss_difference,
            **(ratio(medians[variant], medians[variants[0]]) if agrees else NO_RATIO),
            "peak_rss_bytes": median([float(r["peak_rss_bytes"]) for r in mine]),
            "page_faults": median([float(n) for r in mine for n in r["page_faults"][warmup:]]),
            "bound": all(len(cores) == 1 for r in mine for cores in r["threads_on"]),
            "disturbed": sum(r["others"] > QUIET for r in mine),
        })  # fmt: skip
    return {"case": dataclasses.asdict(case), "label": str(case), "base": variants[0], "rows": rows}


def headline(
    comparison: Measured, comparisons: Sequence[Measured], runs: Sequence[Measured], warmup: int
) -> Measured | None:
    """The ratio of a case to its fastest peer, and what clipping costs the base; None without a peer."""
    base, rows = comparison["base"], {row["variant"]: row for row in comparison["rows"]}
    peers = [row for name, row in rows.items() if name in PEERS and row["ratio"] is not None]
    if base in PEERS or not peers:
        return None
    fastest = min(peers, key=lambda row: row["median_step_s"])
    case = Case(**comparison["case"])
    same = dataclasses.replace(case, grad_clip=0.0)
    clipping = None
    if case.grad_clip and dataclasses.asdict(same) in [other["case"] for other in comparisons]:
        clipped, free = ([median(r["step_s"][warmup:]) for r in of_case(each, base, runs)] for each in (case, same))
        clipping = ratio(clipped, free)
    kept, roof = ("ratio", "ratio_middle", "ratio_interval", "rounds"), roof_of(case, base, runs)
    return {
        "label": comparison["label"], "peer": fastest["variant"], **{key: fastest[key] for key in kept},
        "memory_share": rows[base]["peak_rss_bytes"] / fastest["peak_rss_bytes"], "clipping": clipping,
        "bound_share": roof and roof["bound_share"],
    }  # fmt: skip


def table(report: Measured) -> str:
    """The comparisons as Markdown."""
    base, on = report["comparisons"][0]["base"], report["machine"]
    lines = [
        f"# A step: {base} against its peers, {report['at'][:10]}", "",
        f"Machine: {on['cpu_model']}, {on['cores']} cores, {on['memory_bytes'] / (1 << 30):.0f} GiB, Linux "
        f"{on['kernel']}; load average {on['load_average'][0]:.1f} before, {on['load_average_after'][0]:.1f} after; "
        f"command: `python -m {report['name']} {' '.join(report['command'])}`", "",
        f"Ratio: step of the variant / step of {base}, above 1 where {base} is faster, {HOW}. "
        "Spread: the fastest and the slowest process's median. p99: 99th percentile of a process's steps, its median "
        "over processes. Losses: the largest relative "
        f"difference from {base}'s. Faults: median page faults of a step. Bound: whether each thread that worked was "
        "bound to one core. Disturbed: counted processes during which others used more than "
        f"{QUIET:.0%} of the machine.", "",
    ]  # fmt: skip
    if report["headlines"]:
        lines += [
            "Against the fastest peer of each case; of several it was chosen by the same rounds, so its ratio is "
            f"rather too low ({OF_THE_BOUND}; memory: peak RSS of {base} / the peer's; clipping: step of {base} "
            "with clipping / without):", "",
            "| case | fastest peer | ratio | 95 % | share of the bound | memory | clipping |",
            "|---|---|---|---|---|---|---|",
            *(headline_line(each) for each in report["headlines"]), "",
        ]  # fmt: skip
    lines += [
        "| case | variant | median step, ms | spread, ms | p99, ms | ratio | 95 % | peak RSS, MiB | losses, rel. "
        "| faults | bound | disturbed |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for comparison in report["comparisons"]:
        for row in comparison["rows"]:
            refused = row["ratio"] is None
            lines.append(
                f"| {comparison['label']} | {row['variant']} | {row['median_step_s'] * 1e3:.2f} "
                f"| {row['min_step_s'] * 1e3:.2f} to {row['max_step_s'] * 1e3:.2f} "
                f"| {row['p99_step_s'] * 1e3:.2f} "
                f"| {'losses disagree' if refused else format(row['ratio'], '.3f')} "
                f"| {limits(row['ratio_interval'])} | {row['peak_rss_bytes'] / MIB:.0f} "
                f"| {row['loss_difference']:.1e} | {row['page_faults']:.0f} | {'yes' if row['bound'] else 'no'} "
                f"| {row['disturbed']} |"
            )
    for roof in report["roofs"]:
        lines += ["", *roof_lines(roof)]
    return "\n".join(lines) + "\n"


def headline_line(of: Measured) -> str:
    """The ratio to a case's fastest peer as Markdown."""
    clipping = of["clipping"]
    costs = "-" if clipping is None else f"{clipping['ratio']:.3f} ({limits(clipping['ratio_interval'])})"
    return (
        f"| {of['label']} | {of['peer']} | {of['ratio']:.3f} | {limits(of['ratio_interval'])} "
        f"| {bound(of['bound_share'])} | {of['memory_share']:.0%} | {costs} |"
    )


def bound(share: float | None) -> str:
    """The share of the bound in a table."""
    return "-" if share is None else f"{share:.1%}"


def roof_lines(roof: Measured) -> list[str]:
    """Ops against the roof as Markdown."""
    peaks = roof["peaks"]
    if peaks is None:
        return [
            f"{roof['label']}: no share of the roof, the node's peaks are not measured (`taskloom doctor --peaks`)."
        ]
    most = peaks["registers_gflop_per_s"]
    in_registers = "registers not measured" if most is None else f"{most:.0f} GFLOP/s in registers"
    lines = [
        f"{roof['label']}: ops against the roof of {peaks['gflop_per_s']:.0f} GFLOP/s of products and "
        f"{peaks['triad_gb_per_s']:.1f} GB/s, all threads together ({in_registers}; share "
        f"of the bound: {bound(roof['bound_share'])}):", "",
        "| op | phase | share of time | flop/byte | GFLOP/s | GB/s | of its roof | of registers | bound by |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for op in roof["ops"]:
        intensity = "" if op["intensity"] is None else f"{op['intensity']:.1f}"
        shares = ("" if share is None else f"{share:.0%}" for share in (op["share"], op["registers_share"]))
        lines.append(
            f"| {op['op']} | {op['phase']} | {op['time_share']:.1%} | {intensity} | {op['achieved_gflop_per_s']:.1f} "
            f"| {op['achieved_gb_per_s']:.1f} | {' | '.join(shares)} | {op['bound']} |"
        )
    return lines


if __name__ == "__main__":
    main()
