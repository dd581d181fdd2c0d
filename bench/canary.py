"""How far the canary follows the steps of a real host.

    python -m bench.canary --blocks 40

A block is one short process of the trainer. Its target is the median of its timed steps. Its canary is the one in
every result (gpt2core/run/canary.py). A history consists of values target / canary. This benchmark compares the spread
of log(target) over blocks with the spread of log(target / canary). Blocks run one after the other and never wait for a
quiet machine, since the host's changes are what is measured. A host may keep its level for minutes, so successive
blocks are not independent and no figure has an interval. Repeat it at another hour for another sample. Results are
written to --out (.json and .md).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.record import Measured, head, machine, out_option, save
from bench.step import child, parse_shape
from gpt2core.process import launch
from gpt2core.run import canary
from gpt2core.spec.config import TrainConfig
from taskloom.analysis.diagnosis import diagnose
from taskloom.analysis.estimators import FEWEST, logarithms
from taskloom.analysis.processes import Process

KEPT = ("config", "environment", "step_s", "losses", "weights_sha256", "flagged", "canary")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.canary", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--shape", default="4x64", help="BATCHxSEQ")
    parser.add_argument("--threads", type=int, default=min(2, len(launch.allowed_cores())))
    parser.add_argument("--blocks", type=int, default=40, help="processes, one after the other")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)
    out_option(parser, "canary")
    given = parser.parse_args()
    if canary.UNAVAILABLE is not None:
        parser.error(canary.UNAVAILABLE)
    batch, seq = parse_shape(given.shape)
    config = TrainConfig.from_dict({
        "model": given.model, "batch": batch, "seq": seq, "steps": given.steps, "warmup": given.warmup,
        "threads": given.threads, "cores": list(launch.allowed_cores()[: given.threads]), "data": "stdlib",
    })  # fmt: skip
    before = machine()
    with tempfile.TemporaryDirectory(prefix="bench-canary-") as folder:
        runs = measure(config, given.blocks, Path(folder))
    report = {
        **head("taskloom.bench.canary/1", before),
        "case": f"{given.model}, B{batch} T{seq}, {given.threads} threads",
        "runs": runs,
        **over_blocks(runs),
    }
    save(given.out, report, table(report))


def measure(config: TrainConfig, blocks: int, folder: Path) -> list[Measured]:
    """The results of fresh processes, without what is not needed here."""
    result, runs = folder / "result.json", []
    child(launch.command(result), json.dumps(config.to_dict()), launch.environment())  # compiles what is missing
    for number in range(blocks):
        child(launch.command(result), json.dumps(config.to_dict()), launch.environment())
        got = json.loads(result.read_text(encoding="utf-8"))
        runs.append({key: got[key] for key in KEPT})
        one = Process(number, runs[-1])
        canary_ms = float(one.canary_s or np.nan) * 1e3
        print(f"[{number + 1}/{blocks}] {one.median_step_s * 1e3:.1f} ms a step, canary {canary_ms:.3f} ms", flush=True)
    return runs


def over_blocks(runs: Sequence[Measured]) -> Measured:
    """What `followed` finds in the results of processes that follow each other."""
    seen = [Process(number, run) for number, run in enumerate(runs)]
    return followed([one.median_step_s for one in seen], [float(one.canary_s or np.nan) for one in seen])


def followed(target_s: Sequence[float], canary_s: Sequence[float]) -> Measured:
    """Spreads of the logarithms over blocks, and what division by the canary removes.

    removed: the share of the variance of log(target) that log(target / canary) does not have; negative if the canary
    adds more than it removes. slope: of log(canary) over log(target), that is how much of a change of the target the
    canary shows; a target's own scatter lowers it. Null for fewer blocks than FEWEST, or without any spread.
    """
    target, reference = logarithms(target_s), logarithms(canary_s)
    found: Measured = {
        "blocks": len(target), "sd_target": None, "sd_canary": None, "sd_over_canary": None,
        "correlation": None, "slope": None, "removed": None,
        "findings": {"target": diagnose(target_s).findings, "canary": diagnose(canary_s).findings},
    }  # fmt: skip
    if len(target) < FEWEST or np.ptp(target) == 0 or np.ptp(reference) == 0:
        return found
    (of_target, both), (_, of_canary) = np.cov(target, reference)
    rest = float(np.var(target - reference, ddof=1))
    return {
        **found,
        "sd_target": float(of_target**0.5), "sd_canary": float(of_canary**0.5), "sd_over_canary": rest**0.5,
        "correlation": float(both / (of_target * of_canary) ** 0.5), "slope": float(both / of_target),
        "removed": 1 - rest / float(of_target),
    }  # fmt: skip


def table(report: Measured) -> str:
    """The figures as Markdown."""
    of = report["machine"]

    def cell(name: str, form: str) -> str:
        return "-" if report[name] is None else format(report[name], form)

    lines = [
        f"# How far the canary follows the steps, {report['case']}, {report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, {of['cores']} cores, Linux {of['kernel']}; load average before "
        f"{of['load_average'][0]:.1f}.", "",
        "Standard deviations over blocks (processes) of the logarithm of the median step, of the canary's time, and of "
        "step / canary. Slope: of log(canary) over log(step). Removed: the share of the variance of log(step) that "
        "log(step / canary) does not have, negative where the canary adds more than it removes. The variance contains "
        "the processes' own scatter, which no canary removes. All this is about these blocks of one occasion: "
        f"blocks that follow each other are not independent, so nothing has an interval; fewer than {FEWEST} blocks "
        "give no figures.", "",
        "| blocks | sd step | sd canary | sd step / canary | correlation | slope | removed |",
        "|---|---|---|---|---|---|---|",
        f"| {report['blocks']} | {cell('sd_target', '.2%')} | {cell('sd_canary', '.2%')} "
        f"| {cell('sd_over_canary', '.2%')} | {cell('correlation', '.2f')} | {cell('slope', '.2f')} "
        f"| {cell('removed', '.0%')} |", "",
    ]  # fmt: skip
    for name, findings in report["findings"].items():
        lines.append(f"Findings about the {name} in the blocks' order: {'; '.join(findings) or 'none'}.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
