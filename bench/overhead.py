"""Compare the time of a training step outside its matrix products, in this tree and in an earlier one.

    git worktree add /tmp/before COMMIT
    python -m bench.overhead --before /tmp/before --rounds 8

The host's speed changes by a tenth between processes. Where two trees have the same machine code for matrix products,
the products of a process measure that speed. So the figure of a process is the time of its threads in timed steps / the
time of its linear layers' products, at least 1. It contains every other op, scheduling and waiting. bench.revisions
compares the seconds, but needs many more processes for the same interval.

In each round every variant of bench.schedulers runs once in each tree, in random order, each process alone. Ratios are
ours / before, below 1 where ours takes less. The processes of both trees must use the same libraries for products. Raw
figures, the machine and a table are written to --out (.json and .md).
"""

from __future__ import annotations

import argparse

from bench.ratios import HOW, limits, ratio
from bench.record import Measured, head, out_option, save
from bench.revisions import Case, revision, trees_of, trees_options
from bench.rounds import round_order
from bench.schedulers import SCHEDULERS
from gpt2core.spec.result import median

VARIANTS = [f"{name} 2x64" for name in SCHEDULERS]
TURNS = 3  # about three steps each


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    trees_options(parser)
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="of bench.schedulers, with commas")
    parser.add_argument("--rounds", type=int, default=8, help="processes of each variant and tree")
    out_option(parser, "overhead")
    given = parser.parse_args()
    trees = trees_of(given)
    revisions = {name: revision(tree) for name, tree in trees.items()}
    cases = [Case.parse(f"{given.model}:{name}:{given.threads}", TURNS) for name in given.variants.split(",")]
    rounds: list[Measured] = []
    for number in range(given.rounds):
        for case in round_order(cases, number):
            found = {name: figures(case.run(trees[name])) for name in round_order(list(trees), number, case.name)}
            rounds.append({"round": number, "variant": case.name.split(":")[1], "of": found})
            said = ", ".join(f"{name} {each['overhead']:.4f}" for name, each in sorted(found.items()))
            print(f"[{number + 1}/{given.rounds}] {case.name}: {said}", flush=True)
    report = {
        **head("taskloom.bench.overhead/1"),
        "revisions": revisions,
        "model": given.model,
        "threads": given.threads,
        "rounds": rounds,
        "rows": [row(name, rounds) for name in given.variants.split(",")],
    }
    save(given.out, report, table(report))


def figures(result: Measured) -> Measured:
    """The time of all threads in timed steps, in seconds, that of products, their ratio, and what must be equal."""
    products = {
        (op["op"], op["phase"]): op for op in result["ops"] if op["blas"] and op["op"] != "attention"
    }  # attention has other work besides its products
    step_s = result["step_s"][result["config"]["warmup"] :]
    threads_s, products_s = sum(step_s) * len(result["threads"]), sum(op["time_s"] for op in products.values())
    return {
        "threads_s": threads_s, "products_s": products_s, "overhead": threads_s / products_s,
        "blas": {f"{phase} {op}": each["blas"] for (op, phase), each in products.items()}, "losses": result["losses"],
    }  # fmt: skip


def row(variant: str, rounds: list[Measured]) -> Measured:
    """One variant in both trees. Raises SystemExit if their products came from different libraries."""
    mine = [each["of"] for each in rounds if each["variant"] == variant]
    if any(each["ours"]["blas"] != each["before"]["blas"] for each in mine):
        raise SystemExit(f"{variant}: the two trees use different libraries for products")
    sides = {name: [each[name]["overhead"] for each in mine] for name in ("ours", "before")}
    return {
        "variant": variant, **{name: median(values) for name, values in sides.items()},
        "same_losses": all(each["ours"]["losses"] == each["before"]["losses"] for each in mine),
        **ratio(sides["ours"], sides["before"]),
    }  # fmt: skip


def table(report: Measured) -> str:
    of = report["machine"]
    lines = [
        f"# {report['revisions']['ours']} against {report['revisions']['before']}, outside its products, "
        f"{report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, {of['cores']} cores, Linux {of['kernel']}; {report['model']}, B4 T64, "
        f"{report['threads']} threads.", "",
        "Figure of a process: time of its threads in timed steps / time of its linear layers' products. Ratio: ours / "
        f"before, below 1 where ours takes less, {HOW}.", "",
        "| variant | before | ours | ratio | 95 % | rounds | same losses |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in report["rows"]:
        same = "yes" if r["same_losses"] else "no"
        lines.append(
            f"| {r['variant']} | {r['before']:.4f} | {r['ours']:.4f} | {r['ratio']:.4f} | "
            f"{limits(r['ratio_interval'], 4)} | {r['rounds']} | {same} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
