"""Compare our schedulers with each other: slicings, syncs, policies and shares, paired and in fresh processes.

    python -m bench.schedulers --shape 4x64 --threads 2 --rounds 6

In each round every variant runs once, in a random order. The figure of a process is the median of its timed steps. A
variant is compared with the first one by the ratios of their rounds, with an exact interval from six rounds on. Losses
and weights must be bit-identical among variants of the same slices. Raw samples, the machine and a table are written to
--out (.json and .md).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from bench.ratios import HOW, limits, ratio
from bench.record import Measured, head, out_option, save
from bench.rounds import round_order
from bench.step import child, parse_shape
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import POLICIES, SYNCS
from gpt2core.spec.result import median

SCHEDULERS: dict[str, dict[str, Any]] = {
    "fork-join static": {"scheduler": "fork-join"},
    "fork-join dynamic": {"scheduler": "fork-join", "assignment": "dynamic"},
    **{f"task {sync}": {"scheduler": "task", "sync": sync} for sync in SYNCS},
    **{f"task step {policy}": {"scheduler": "task", "policy": policy} for policy in POLICIES},
}
SLICES = ((2, 64), (1, 64), (1, 16))
VARIANTS: dict[str, dict[str, Any]] = {
    f"{name} {batch}x{token}": {**settings, "batch_slice": batch, "token_slice": token}
    for batch, token in SLICES
    for name, settings in SCHEDULERS.items()
}
OVERSUBSCRIBED: dict[str, dict[str, Any]] = {
    f"{name} 2x64 P{threads}": {
        **VARIANTS[f"{name} 2x64"], "threads": threads, "allow_oversubscription": True,
    }
    for name in ("fork-join dynamic", "task step", "task none")
    for threads in (3, 8)
}  # fmt: skip



def main() -> None:
    known = {**VARIANTS, **OVERSUBSCRIBED}
    parser = argparse.ArgumentParser(prog="python -m bench.schedulers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--shape", default="4x64", help="BATCHxSEQ")
    parser.add_argument("--threads", type=int, default=len(launch.allowed_cores()))
    parser.add_argument(
        "--variants",
        default=",".join(VARIANTS),
        help="names with commas; the first is the base; with P3 or P8: threads on the same cores",
    )
    parser.add_argument("--rounds", type=int, default=6, help="processes of each variant")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)
    out_option(parser, "schedulers")
    given = parser.parse_args()
    names = given.variants.split(",")
    if set(names) - set(known):
        parser.error("variants are: " + ", ".join(known))
    batch, seq = parse_shape(given.shape)
    base = {
        "model": given.model, "batch": batch, "seq": seq, "steps": given.steps, "warmup": given.warmup,
        "threads": given.threads, "cores": list(launch.allowed_cores()[: given.threads]), "data": "stdlib",
    }  # fmt: skip
    runs = measure(base, {name: known[name] for name in names}, given.rounds)
    report = {
        **head("taskloom.bench.schedulers/1"),
        "runs": runs,
        "rows": [row(name, runs, names[0], given.warmup) for name in names],
    }
    save(given.out, report, table(report, base))


def measure(base: dict[str, Any], variants: dict[str, dict[str, Any]], rounds: int) -> list[Measured]:
    """Every variant once a round. Raises SystemExit if two runs of one slicing trained to different bits."""
    runs: list[Measured] = []
    bits: dict[tuple[int, int], tuple[Any, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-schedulers-") as folder:
        result = Path(folder) / "result.json"
        for round_no in range(rounds):
            for name in round_order(list(variants), round_no):
                spec = TrainConfig.from_dict({**base, **variants[name]}).to_dict()
                child(launch.command(result), json.dumps(spec), launch.environment())
                got = json.loads(result.read_text(encoding="utf-8"))
                mine = (*got["losses"], got["weights_sha256"])
                if bits.setdefault((spec["batch_slice"], spec["token_slice"]), mine) != mine:
                    raise SystemExit(f"{name}: losses or weights differ from another variant's of the same slices")
                kept = ("step_s", "threads", "graph", "phase_busy_s", "warnings", "environment")
                runs.append({"round": round_no, "variant": name, **{key: got[key] for key in kept}})
                step_s = median(got["step_s"][base["warmup"] :])
                print(f"[{len(runs)}/{len(variants) * rounds}] {name}: {step_s * 1e3:.1f} ms a step", flush=True)
    return runs


def row(name: str, runs: list[Measured], first: str, warmup: int) -> Measured:
    """Figures of one variant beside those of the first."""
    of = {each: [r for r in runs if r["variant"] == each] for each in (name, first)}
    medians = {each: [median(r["step_s"][warmup:]) for r in mine] for each, mine in of.items()}
    mine = of[name]
    elapsed = [sum(r["step_s"][warmup:]) * len(r["threads"]) for r in mine]
    idle = [1 - sum(t["useful_s"] for t in r["threads"]) / e for r, e in zip(mine, elapsed, strict=True)]
    return {
        "variant": name,
        "median_step_s": median(medians[name]),
        "min_step_s": min(medians[name]),
        "max_step_s": max(medians[name]),
        **ratio(medians[first], medians[name]),
        "idle_share": median(idle),
        "t1_s": median([r["graph"]["t1_s"] for r in mine]),
        "tinf_s": median([r["graph"]["tinf_s"] for r in mine]),
        "fork_join_tinf_s": median([r["graph"]["fork_join_tinf_s"] for r in mine]),
    }


def table(report: Measured, base: dict[str, Any]) -> str:
    """The rows as Markdown."""
    what = f"{base['model']}, B{base['batch']} T{base['seq']}, {base['threads']} threads"
    of, columns = report["machine"], ("median step, ms", "fastest to slowest process, ms", "ratio", "95 %", "idle",
                                      "T1, ms", "Tinf, ms", "fork-join Tinf, ms")  # fmt: skip
    lines = [
        f"# Schedulers, {what}, {report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, {of['cores']} cores, {of['memory_bytes'] / (1 << 30):.0f} GiB, Linux "
        f"{of['kernel']}; load average at the end {of['load_average'][0]:.1f}", "",
        f"Ratio: median step of {report['rows'][0]['variant']} / median step of the variant, above 1 where the variant "
        f"is faster, {HOW}. Idle: share of the threads' time outside tasks. "
        "T1: work; Tinf: critical path of the graph, and with fork-join's barriers.", "",
        "| variant | " + " | ".join(columns) + " |", "|" + "---|" * (1 + len(columns)),
    ]  # fmt: skip
    for r in report["rows"]:
        lines.append(
            f"| {r['variant']} | {r['median_step_s'] * 1e3:.1f} "
            f"| {r['min_step_s'] * 1e3:.1f} to {r['max_step_s'] * 1e3:.1f} "
            f"| {r['ratio']:.3f} | {limits(r['ratio_interval'])} | {r['idle_share']:.1%} | {r['t1_s'] * 1e3:.0f} "
            f"| {r['tinf_s'] * 1e3:.0f} | {r['fork_join_tinf_s'] * 1e3:.0f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
