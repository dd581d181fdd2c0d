"""Minimum effective task granularity: `python -m gpt2core.taskbench.metg --result FILE`, settings
(MetgConfig) on standard input.

Sweeps of patterns and schedulers alternate, in a new random order in each repetition. One JSON event a line on standard
output, exit codes as in gpt2core.process.launch; beside its events

    sweep      done, total, pattern, scheduler, repetition
    point      pattern, scheduler, grain, task_s
"""

from __future__ import annotations

import argparse
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpt2core.process import trainer
from gpt2core.spec import schedulers
from gpt2core.spec.errors import Cancelled
from gpt2core.taskbench.granularity import GIVE_UP, MetgConfig, Point, Sweep, result

Emit = Callable[[dict[str, Any]], None]


def measure(config: MetgConfig, tell: Emit, stop: threading.Event) -> dict[str, Any]:
    """Run all sweeps. Raises ConfigError for missing cores, Violated, and Cancelled if `stop` is set."""
    from gpt2core.measure import environment  # after the cheap checks, because they load Numba
    from gpt2core.node import load, topology
    from gpt2core.taskbench.bench import Streams, TaskBench

    cores = topology.choose_cores(config.cores, config.threads, config.allow_oversubscription)
    pairs = [(pattern, scheduler) for pattern in config.pattern for scheduler in config.scheduler]
    tell({"event": "compiling", "done": 0, "total": 1, "kernel": "schedulers"})
    streams = Streams(cores) if config.kernel == "memory" else None
    benches = {pair: TaskBench(*pair, config.width, cores, streams, config.runtime) for pair in pairs}
    for bench in benches.values():
        bench.run(1, 1)
    sweeps: list[Sweep] = []
    others = load.Others()
    order, total = random.Random(0), len(pairs) * config.repetitions
    for repetition in range(config.repetitions):
        for pattern, scheduler in order.sample(pairs, len(pairs)):
            where = {"pattern": pattern, "scheduler": scheduler}
            tell({"event": "sweep", "done": len(sweeps), "total": total, **where, "repetition": repetition})
            points: list[Point] = []
            for grain in config.grains():
                if stop.is_set():
                    raise Cancelled(len(sweeps))
                points.append(benches[pattern, scheduler].time(grain, config.point_s))
                tell({"event": "point", **where, "grain": grain, "task_s": points[-1].task_s})
                if points[-1].iterations_per_s < GIVE_UP * points[0].iterations_per_s:
                    break
            sweeps.append(Sweep(pattern, scheduler, repetition, tuple(points)))
    busy_cores = others.busy_cores()
    about = environment.describe("none", "", cores)
    for name in config.scheduler:
        about.update({"scheduler": dict(runtime)} if (runtime := schedulers.scheduler(name).environment({})) else {})
    return result(config, sweeps, about, busy_cores)


def main() -> int:
    """Run and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gpt2core.taskbench.metg", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--result", type=Path, required=True, help="file for the result (JSON)")
    arguments = parser.parse_args()

    def work(stop: threading.Event) -> None:
        config = MetgConfig.from_dict(trainer.read_settings())
        trainer.started()
        trainer.deliver(arguments.result, measure(config, trainer.emit, stop))

    return trainer.main(work)


if __name__ == "__main__":
    trainer.leave(main())
