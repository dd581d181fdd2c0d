"""AdamW of weights that another core has just read, and beside another core's AdamW.

    python -m bench.sharing --rounds 30

One core updates blocks of weights that are in no cache, after nobody, the same core, or another core has read the
weights (not the moments), and while another core updates other blocks, which shows how fast both together reach memory.
Where the two cores have no cache in common, each line that another core has read must first be taken from it, which can
make the update several times as long. On a virtual machine this changes within seconds, presumably when the host moves
its processors. A host may place busy and idle ones differently, so both cores compute before each update, as they do in
a training step. Results are written to --out (.json and .md): the median time of a block in each round.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bench.record import Measured, head, machine, out_option, save
from bench.rounds import SEED
from gpt2core.gemm.measuring import matrix
from gpt2core.optimizers.adamw import adamw_update
from gpt2core.process import launch
from gpt2core.spec.result import median

BLOCK = 288 * 768  # elements of a block of 124M's qkv
SETTINGS = np.array([1e-4, 0.9, 0.999, 1e-8, 0.0])
CASES = ("after nobody", "after the same core", "after another core", "beside another core's")
AFTER_NOBODY, _, AFTER_ANOTHER, BESIDE = CASES
AHEAD = 4  # blocks that the other core updates meanwhile
APART = 2.0  # from this ratio on, the cores of a round count as without a cache in common


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sharing", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--blocks", type=int, default=12, help="blocks that are updated in a round in each case")
    parser.add_argument("--weights", type=int, default=124_000_000, help="elements; more than the caches have")
    parser.add_argument("--busy-s", type=float, default=0.05, help="for which both cores compute before each update")
    out_option(parser, "sharing")
    given = parser.parse_args(arguments)
    cores = launch.allowed_cores()[:2]
    if len(cores) < 2:
        parser.error("this process may use one core, but two are compared")
    if given.weights < (1 + AHEAD) * BLOCK:
        parser.error(f"--weights {given.weights}: at least {1 + AHEAD} blocks, {(1 + AHEAD) * BLOCK}")
    before = machine()
    rounds = measure(cores, given.rounds, given.blocks, given.weights // BLOCK, given.busy_s)
    report = {**head("taskloom.bench.sharing/2", before), "cores": list(cores), "block": BLOCK, "rounds": rounds}
    save(given.out, report, table(report))


def measure(cores: Sequence[int], rounds: int, blocks: int, of: int, busy_s: float) -> list[Measured]:
    """For each round, a block's median time in seconds in each case."""
    weights, first, second = (matrix(of * BLOCK) for _ in range(3))
    for array in (weights, first, second):
        array.fill(1e-3)
    gradient = np.full(BLOCK, 1e-3, np.float32)
    rng = np.random.default_rng(SEED)

    def update(block: int) -> float:
        gradient.sum()  # it is in the cache, as one that was just computed
        begin = time.perf_counter()
        m, v = first[block * BLOCK :], second[block * BLOCK :]
        adamw_update(weights, gradient, m, v, SETTINGS, SETTINGS[0], SETTINGS[4], np.float32(1.0), 0,
                     block * BLOCK, (block + 1) * BLOCK, 0)  # fmt: skip
        return time.perf_counter() - begin

    def update_next(block: int) -> None:
        for following in range(block + 1, block + 1 + AHEAD):
            update(following)

    def read(block: int) -> None:
        weights[block * BLOCK : (block + 1) * BLOCK].sum()

    def compute() -> None:
        end = time.perf_counter() + busy_s
        while time.perf_counter() < end:
            gradient.sum()

    found = []
    with bound(cores[0]) as ours, bound(cores[1]) as other:
        ours.submit(update, 0).result()  # compiles
        for number in range(rounds):
            seconds: Measured = {}
            for case, by in zip(CASES, (None, ours, other, None), strict=True):
                times = []
                for block in rng.integers(of - AHEAD, size=blocks).tolist():
                    for busy in [each.submit(compute) for each in (ours, other)]:
                        busy.result()
                    if by is not None:
                        by.submit(read, block).result()
                    beside = [other.submit(update_next, block)] if case == BESIDE else []
                    times.append(ours.submit(update, block).result())
                    for each in beside:
                        each.result()
                seconds[case] = median(times)
            found.append(seconds)
            print(f"[{number + 1}/{rounds}] {figures_of(seconds)}", flush=True)
    return found


def bound(core: int) -> ThreadPoolExecutor:
    """A thread that is bound to a core."""
    return ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, {core}))


def figures_of(seconds: Measured) -> str:
    return ", ".join(f"{case} {seconds[case] * 1e6:.0f} us" for case in CASES)


def table(report: Measured) -> str:
    """The rounds in which the other core's reading made the update slow, and the others."""
    ratios = [each[AFTER_ANOTHER] / each[AFTER_NOBODY] for each in report["rounds"]]
    lines = [
        f"# AdamW of weights that another core has just read, and beside another core's, {report['at'][:10]}", "",
        f"Machine: {report['machine']['cpu_model']}, {report['machine']['cores']} cores, Linux "
        f"{report['machine']['kernel']}; cores {report['cores']}; blocks of {report['block']} elements; medians of the "
        f"rounds, in microseconds for a block. The cores count as apart in rounds in which the update takes {APART:g} "
        "times as long or more after the other core has read the weights.", "",
        "| cores | rounds | " + " | ".join(CASES) + " |",
        "|---|---|" + "---|" * len(CASES),
    ]  # fmt: skip
    for name, of in (("together", False), ("apart", True)):
        rounds = [each for each, ratio in zip(report["rounds"], ratios, strict=True) if (ratio >= APART) == of]
        cells = [f"{median([each[case] for each in rounds]) * 1e6:.0f}" if rounds else "-" for case in CASES]
        lines.append(f"| {name} | {len(rounds)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
