"""Compare the time of each op of a training step in this tree (or --ours) and in an earlier one.

    git worktree add /tmp/before COMMIT
    python -m bench.ops --before /tmp/before --shape 4x256 --precision bf16 --rounds 6     # 3 minutes

In each round both trees run once, each process alone, in an order that changes. The figure of an op is the time that it
takes of all threads in a timed step, the mean of a process's steps; a step's is that of all its threads, with waits. An
op of only one tree is shown without a ratio. Ratios are ours / before, below 1 where ours takes less. They contain the
host's changes between processes; bench.revisions compares whole steps in turns. Each op has an interval of its own, so
of thirty one or two exclude 1 by chance. Losses are compared, and the trees must use the same libraries for products.
Raw figures, the machine and a table are written to --out (.json and .md).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Mapping, Sequence

from bench.bound import roofs_s
from bench.quiet import QUIET, undisturbed
from bench.ratios import HOW, NO_RATIO, limits, ratio
from bench.record import Measured, head, machine, out_option, save
from bench.revisions import Case, revision, trees_of, trees_options
from bench.rounds import round_order
from bench.step import parse_shape
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.result import median

STEP = "step, all threads"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ops", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    trees_options(parser)
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--shape", default="4x64", help="BATCHxSEQ")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--scheduler", default="task")
    parser.add_argument("--threads", type=int, default=min(2, len(launch.allowed_cores())))
    parser.add_argument("--grad-clip", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6, help="processes of each tree")
    out_option(parser, "ops")
    given = parser.parse_args(arguments)
    try:
        case = case_of(given)
    except ConfigError as error:
        parser.error(str(error))
    trees = trees_of(given)
    revisions = {name: revision(tree) for name, tree in trees.items()}
    brief = dataclasses.replace(case, settings={**case.settings, "steps": 1, "warmup": 0})
    refuse_other_libraries({name: figures(brief.run(tree)) for name, tree in trees.items()})  # compiles, too
    before = machine()
    rounds: list[Measured] = []
    for number in range(given.rounds):
        found = {}
        for name in round_order(list(trees), number):
            result, others = undisturbed(functools.partial(case.run, trees[name]), f"{name}, round {number + 1}")
            found[name] = {**figures(result), "others": others}
        refuse_other_libraries(found)
        rounds.append({"round": number, "of": found})
        said = ", ".join(f"{name} {of['op_s'][STEP] * 1e3:.0f} ms" for name, of in sorted(found.items()))
        print(f"[{number + 1}/{given.rounds}] {said}", flush=True)
    report = {
        **head("taskloom.bench.ops/1", before), "revisions": revisions, "case": case.name, "rounds": rounds,
        "rows": rows(rounds),
    }  # fmt: skip
    save(given.out, report, table(report))


def case_of(given: argparse.Namespace) -> Case:
    """The case, checked as the tree of this script checks a run. Raises ConfigError."""
    batch, seq = parse_shape(given.shape)
    if given.rounds < 1:
        raise ConfigError("rounds", given.rounds, "at least 1")
    settings = {
        "model": given.model, "batch": batch, "seq": seq, "precision": given.precision, "scheduler": given.scheduler,
        "threads": given.threads, "cores": list(launch.allowed_cores()[: given.threads]), "steps": given.steps,
        "warmup": given.warmup, "grad_clip": given.grad_clip,
    }  # fmt: skip
    TrainConfig.from_dict(settings)
    name = f"{given.model}, B{batch} T{seq}, {given.scheduler}, {given.threads} threads, {given.precision}"
    name += f", grad-clip {given.grad_clip:g}" if given.grad_clip else ""
    return Case(name, settings, "step", 0.0)


def refuse_other_libraries(found: Mapping[str, Measured]) -> None:
    """Raise SystemExit if an op of both trees has its products from different libraries."""
    ours, before = found["ours"]["blas"], found["before"]["blas"]
    if other := [name for name in ours.keys() & before.keys() if ours[name] != before[name]]:
        raise SystemExit(f"the two trees use different libraries for products: {', '.join(sorted(other))}")


def figures(result: Measured) -> Measured:
    """Seconds of all threads in a timed step: of each op and phase, of the step, and of an op's roof (bench/bound.py).
    The ops' libraries; losses."""
    step_s = result["step_s"][result["config"]["warmup"] :]
    ops = {f"{op['op']}, {op['phase']}": op for op in result["ops"]}
    op_s = {name: op["time_s"] / len(step_s) for name, op in ops.items()}
    return {
        "op_s": {**op_s, STEP: sum(step_s) / len(step_s) * len(result["threads"])},
        "roof_s": {", ".join(name): seconds / len(step_s) for name, seconds in roofs_s(result).items()},
        "blas": {name: op["blas"] for name, op in ops.items()}, "losses": result["losses"],
    }  # fmt: skip


def rows(rounds: Sequence[Measured]) -> list[Measured]:
    """A row for each op of either tree, the longest first."""
    found = []
    for name in dict.fromkeys(name for r in rounds for of in r["of"].values() for name in of["op_s"]):
        sides = {tree: [r["of"][tree]["op_s"].get(name) for r in rounds] for tree in ("ours", "before")}
        known = {tree: None if None in values else median(values) for tree, values in sides.items()}
        compared = NO_RATIO if None in known.values() else ratio(sides["ours"], sides["before"])
        roof_s = rounds[0]["of"]["ours"]["roof_s"].get(name)
        of_roof = roof_s / known["ours"] if roof_s and known["ours"] else None
        seconds = {f"{tree}_s": value for tree, value in known.items()}
        found.append({"op": name, **seconds, "of_roof": of_roof, **compared})
    return sorted(found, key=lambda row: -max(row["ours_s"] or 0.0, row["before_s"] or 0.0))


def same_losses(rounds: Sequence[Measured]) -> bool:
    return all(r["of"]["ours"]["losses"] == r["of"]["before"]["losses"] for r in rounds)


def table(report: Measured) -> str:
    of = report["machine"]
    lines = [
        f"# Ops of {report['revisions']['ours']} and {report['revisions']['before']}, {report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, {of['cores']} cores, Linux {of['kernel']}; load average before "
        f"{of['load_average'][0]:.1f}. {report['case']}; losses are {'' if same_losses(report['rounds']) else 'not '}"
        f"the same. Others took more than {QUIET:.0%} of the machine during "
        f"{sum(each['others'] > QUIET for r in report['rounds'] for each in r['of'].values())} of "
        f"{2 * len(report['rounds'])} processes.", "",
        "Milliseconds of all threads in a timed step, medians of the rounds. Ratio: ours / before, below 1 where ours "
        f"takes less, {HOW}. Each op has an interval of its own, so of thirty one or two exclude 1 by chance. Of its "
        "roof: the time of its arithmetic in registers, exponentials too, or of its bytes at triad's rate, relative to "
        "ours.", "",
        "| op | before | ours | of its roof | ratio | 95 % | rounds |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in report["rows"]:
        sides = ("-" if row[key] is None else f"{1e3 * row[key]:.3g}" for key in ("before_s", "ours_s"))
        value = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
        of_roof = "-" if row["of_roof"] is None else f"{row['of_roof']:.0%}"
        lines.append(f"| {row['op']} | {' | '.join(sides)} | {of_roof} | {value} | {limits(row['ratio_interval'])} "
                     f"| {row['rounds']} |")  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
