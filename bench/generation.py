"""Compare our generation of tokens with PyTorch's, eager, tuned and compiled (bench.torch_generation): time to the
first token, time per token, and the rate at which weights are read.

    python -m bench.generation --model gpt2-124m --threads 2 --rounds 6 --budget-s 600

Every measurement is a fresh process; in each round every variant runs once, so rounds are pairs (bench/rounds.py). One
that other processes disturbed is repeated (bench.quiet). Both sides start from the same weights and prompt and choose
the largest logit. Both read the prompt in one pass: PyTorch in the second generation of its process, ours in the first
and only one. With bf16, our weights are bfloat16; all of PyTorch's values are. Tokens come first: with fp32, a variant
with other tokens than the first one's has no ratio; with bf16, the number of equal ones is shown.

Rate: bytes of the weights that a token reads / median time per token; its share is of the triad that was measured with
as many threads (`taskloom doctor --peaks`), which also writes. Raw samples, the machine and tables are written to --out
(.json and .md); with --budget-s no round begins that would end later.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.quiet import ATTEMPTS, QUIET, undisturbed
from bench.ratios import HOW, NO_RATIO, limits, ratio
from bench.record import Measured, head, machine, out_option, save
from bench.rounds import round_order
from bench.step import OURS, child
from bench.torch_peers import PEERS, environment
from gpt2core.networks.network import network_of
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import PRECISIONS
from gpt2core.spec.generation import rates, read_bytes
from gpt2core.spec.latency import quantile
from gpt2core.spec.models import model_from
from gpt2core.spec.result import median
from gpt2core.spec.wording import counted

MIB = 1 << 20


def main() -> None:
    """Measure, compare and record."""
    given = arguments()
    variants = given.variants.split(",")
    before = machine()
    with tempfile.TemporaryDirectory(prefix="bench-generation-") as folder:
        bases = prepare(Path(folder), given)
        runs: list[Measured] = []
        begun_s = time.monotonic()
        for round_no in range(given.rounds):
            for base in bases:
                runs += measure(base, variants, round_no, Path(folder), given.attempts)
            spent_s = time.monotonic() - begun_s
            if given.budget_s is not None and spent_s * (round_no + 2) / (round_no + 1) > given.budget_s:
                break
    report = {
        "name": "bench.generation",
        **head("taskloom.bench.generation/1", {**before, "load_average_after": list(os.getloadavg())}),
        "runs": runs,
        "comparisons": [compare(base, variants, runs) for base in bases],
    }
    save(given.out, report, table(report))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.generation", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--threads", default=str(len(launch.allowed_cores())))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--generate", type=int, default=64, help="tokens of each process")
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--variants", default="task,torch-eager,torch-tuned,torch-tuned-compile",
                        help=", ".join((*OURS, *PEERS)))  # fmt: skip
    parser.add_argument("--rounds", type=int, default=6, help="processes of each variant")
    parser.add_argument("--budget-s", type=float, help="no round except the first begins that would end later")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS, help="how often a disturbed process is tried at most")
    parser.add_argument("--seed", type=int, default=1337, help="seed of the weights and of the prompt")
    out_option(parser, "generation")
    given = parser.parse_args()
    unknown = set(given.variants.split(",")) - {*OURS, *PEERS} | set(given.precisions.split(",")) - set(PRECISIONS)
    if unknown or min(given.rounds, given.attempts, given.prompt_tokens) < 1 or given.generate < 2:
        parser.error("unknown variant or precision, no rounds, no attempt, no prompt, or fewer than two tokens")
    return given


def prepare(folder: Path, given: argparse.Namespace) -> list[TrainConfig]:
    """Write the weights that every variant reads; the settings of each case."""
    model = model_from(given.model)
    print(f"writing the weights of {model.name}", flush=True)
    initial = str(folder / f"initial.{'bin' if model.network == 'gpt2' else 'safetensors'}")
    new = TrainConfig(model=model, batch=1, seq=1, seed=given.seed, save=initial)
    network = network_of(new)
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in network.tensors(new)["weights"]}
    network.initialise(new, weights)
    network.write(new, weights)
    prompt = np.random.default_rng(given.seed).integers(0, model.vocab, given.prompt_tokens)
    return [
        TrainConfig(
            model=model, mode="infer", generate=given.generate, prompt=tuple(map(int, prompt)), precision=precision,
            threads=threads, cores=tuple(launch.allowed_cores()[:threads]), checkpoint=initial, seed=given.seed,
        )
        for threads in map(int, given.threads.split(","))
        for precision in given.precisions.split(",")
    ]  # fmt: skip


def label_of(config: TrainConfig) -> str:
    return f"{config.model.name}, {counted(config.threads, 'thread')}, {config.precision}"


def measure(
    base: TrainConfig, variants: Sequence[str], round_no: int, folder: Path, attempts: int
) -> list[Measured]:
    """Run every variant once."""
    runs: list[Measured] = []
    for variant in round_order(variants, round_no, label_of(base)):
        run = functools.partial(run_torch if variant in PEERS else run_ours, base, variant, folder)
        result, others = undisturbed(run, f"{label_of(base)}, {variant}", attempts)
        runs.append({"round": round_no, "case": label_of(base), "variant": variant, **result, "others": others})
        print(f"[round {round_no + 1}] {label_of(base)}: {variant} {result['first_s'] * 1e3:.1f} ms to the first "
              f"token, {median(result['token_s']) * 1e3:.2f} ms per token", flush=True)  # fmt: skip
    return runs


def run_ours(config: TrainConfig, variant: str, folder: Path) -> Measured:
    """One process of our trainer."""
    result = folder / "result.json"
    spec = dataclasses.replace(config, scheduler=variant).to_dict()
    child(launch.command(result), json.dumps(spec), launch.environment())
    measured = json.loads(result.read_text(encoding="utf-8"))
    return {
        "tokens": measured["tokens"],
        "first_s": measured["time_to_first_token_s"],
        "token_s": measured["step_s"],
        "peak_rss_bytes": measured["memory_bytes"]["peak_rss"],
        "environment": measured["environment"],
        "warnings": measured["warnings"],
    }


def run_torch(config: TrainConfig, variant: str, _: Path) -> Measured:
    """One process of PyTorch."""
    spec = {"config": config.to_dict(), **dataclasses.asdict(PEERS[variant])}
    settings = environment(PEERS[variant], config.cores or ())
    text = child([sys.executable, "-m", "bench.torch_generation"], json.dumps(spec), {**os.environ, **settings})
    measured: Measured = json.loads(text)
    return {**measured, "environment": {**measured["environment"], "settings": settings}}


def compare(base: TrainConfig, variants: Sequence[str], runs: Sequence[Measured]) -> Measured:
    """Figures of a case's variants, and the ratios of each to the first one, if it generates the same tokens."""
    of = {name: [run for run in runs if (run["case"], run["variant"]) == (label_of(base), name)] for name in variants}
    first = of[variants[0]]
    peaks = next((run["environment"] for run in first if "peaks" in run["environment"]), {"peaks": None})
    rows = []
    for variant, mine in of.items():
        token_s = [median(run["token_s"]) for run in mine]
        equal = min(equal_tokens(run["tokens"], first[0]["tokens"]) for run in mine)
        agrees = base.precision != "fp32" or equal == base.generate
        found = rates(base, peaks, median(token_s))
        rows.append({
            "variant": variant,
            "token_s": median(token_s),
            "p99_token_s": median([quantile(run["token_s"], 0.99) for run in mine]),
            "first_s": median([run["first_s"] for run in mine]),
            "equal_tokens": equal,
            **(ratio(token_s, [median(run["token_s"]) for run in first]) if agrees else NO_RATIO),
            "first_ratio": ratio([run["first_s"] for run in mine], [run["first_s"] for run in first])
            if agrees else NO_RATIO,
            **found,
            "peak_rss_bytes": median([float(run["peak_rss_bytes"]) for run in mine]),
            "disturbed": sum(run["others"] > QUIET for run in mine),
        })  # fmt: skip
    return {"label": label_of(base), "base": variants[0], "weight_bytes": read_bytes(base), "rows": rows}


def equal_tokens(tokens: Sequence[int], others: Sequence[int]) -> int:
    """Number of the first tokens that are equal."""
    pairs = enumerate(zip(tokens, others, strict=True))
    return next((number for number, (mine, its) in pairs if mine != its), len(others))


def table(report: Measured) -> str:
    """The comparisons as Markdown."""
    base, on = report["comparisons"][0]["base"], report["machine"]
    lines = [
        f"# Generation: {base} against PyTorch, {report['at'][:10]}", "",
        f"Machine: {on['cpu_model']}, {on['cores']} cores, {on['memory_bytes'] / (1 << 30):.0f} GiB, Linux "
        f"{on['kernel']}; load average {on['load_average'][0]:.1f} before, {on['load_average_after'][0]:.1f} after; "
        f"command: `python -m {report['name']} {' '.join(report['command'])}`", "",
        f"Ratio: time of the variant / time of {base}, above 1 where {base} is faster, {HOW}. First: time to the first "
        "token. p99: 99th percentile of a process's times per token, its median over processes. Rate: bytes of the "
        "weights / time per token, and its share of the triad of as many threads. Equal: first tokens that are those "
        f"of {base}. Disturbed: processes during which others used more than {QUIET:.0%} of the machine.", "",
        "| case | variant | per token, ms | p99, ms | ratio | 95 % | first, ms | ratio | rate, GB/s | of the triad "
        "| peak RSS, MiB | equal | disturbed |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for comparison in report["comparisons"]:
        for row in comparison["rows"]:
            triad = "not measured" if row["triad_share"] is None else f"{row['triad_share']:.0%}"
            lines.append(
                f"| {comparison['label']} | {row['variant']} | {row['token_s'] * 1e3:.2f} "
                f"| {row['p99_token_s'] * 1e3:.2f} | {_times(row['ratio'])} | {limits(row['ratio_interval'])} "
                f"| {row['first_s'] * 1e3:.1f} | {_times(row['first_ratio']['ratio'])} "
                f"| {row['weights_gb_per_s']:.1f} | {triad} | {row['peak_rss_bytes'] / MIB:.0f} "
                f"| {row['equal_tokens']} | {row['disturbed']} |"
            )
    return "\n".join(lines) + "\n"


def _times(value: float | None) -> str:
    return "tokens differ" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
