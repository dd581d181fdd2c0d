"""True step times for simulated tunings: a network's step, replayed for every setting of a space on up to 16 cores.

    python -m bench.tuning_spaces [NAME...]    # writes tests/golden/tuning-NAME.json

A task takes its flop at RATE plus its bytes at the bandwidth of a cache plus an overhead, so that a product of 4 rows
runs at a third of the speed of a large one, as measured (9-networks). The graph is that of the trainer, the replay that
of forecasts (analysis/forecast.py): a barrier after each op, or the order of the graph.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.measure.profile import profile
from gpt2core.networks import program
from gpt2core.networks.memory import plan as plan_memory
from gpt2core.spec.config import TrainConfig
from gpt2core.step import graph
from taskloom.analysis import forecast
from taskloom.analysis.forecast import Ceiling
from taskloom.analysis.profile import Profile, profile_of
from taskloom.analysis.roofline import Peaks
from taskloom.analysis.tuning.space import Space, space

FOLDER = Path(__file__).parents[1] / "tests/golden"
RATE, CACHE = 80e9, 20e9  # flop/s and bytes/s of one core
OVERHEAD_S = 2e-6  # of each task
CEILING = Ceiling((Peaks(1, 80.0, 12.0), Peaks(16, 1280.0, 60.0)))
SCHEDULES: Mapping[str, Sequence[Any]] = {
    "scheduler": ["fork-join", "task"], "assignment": ["static", "dynamic"], "threads": [1, 2, 4, 8, 16],
}  # fmt: skip
SPACES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Sequence[Any]]]] = {
    "lstm-deep": (
        {"model": "lstm-deep", "batch": 4, "seq": 64, "steps": 5, "sync": "step"},
        {**SCHEDULES, "op_order": ["layers", "diagonals"], "batch_slice": [2, 4], "token_slice": [16, 32, 64],
         "unit_slice": [128, 512], "fusion": ["none", "all"]},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Known:
    """A space whose true step times are known: seconds of each of its points."""

    space: Space
    step_s: NDArray[np.float64]


def space_of(name: str) -> Space:
    base, values = SPACES[name]
    return space(base, values)


def load(name: str) -> Known:
    """The recorded times of a space. Raises ValueError if they are of another space."""
    found = space_of(name)
    step_ms = json.loads((FOLDER / f"tuning-{name}.json").read_text(encoding="utf-8"))["step_ms"]
    if len(step_ms) != len(found):
        raise ValueError(f"{name}: {len(step_ms)} times of {len(found)} settings; python -m bench.tuning_spaces {name}")
    return Known(found, np.array(step_ms) / 1e3)


def replayed(config: TrainConfig) -> Profile:
    """The step's graph, with the times of its tasks."""
    config = program.decided(config)
    arenas = plan_memory(config)
    step = program.build(config, arenas)
    seconds = [tile.flop / RATE + tile.bytes / CACHE + OVERHEAD_S for _, tile in step.tasks]
    return profile_of(profile({}, {}, step, graph.build(step, config.sync), seconds))


def step_s(config: TrainConfig, of: Profile) -> float:
    """The time of a step under the config's scheduler."""
    if forecast.waits_for_ops(config.scheduler):
        return forecast.fork_join_step_s(of, config.threads, CEILING, dynamic=config.assignment == "dynamic")
    return forecast.task_step_s(of, config.threads, CEILING)


def times(name: str) -> list[float]:
    """Seconds of each point of a space. Points with the same tasks share a graph."""
    base, _ = SPACES[name]
    found = space_of(name)
    of: dict[tuple[Any, ...], Profile] = {}
    seconds = []
    for index in range(len(found)):
        config = TrainConfig.from_dict({**base, **found.settings(index), "allow_oversubscription": True})
        key = (config.threads, config.op_order, config.batch_slice, config.token_slice, config.unit_slice,
               config.fused, config.sync if config.scheduler == "task" else "")  # fmt: skip
        if key not in of:
            of[key] = replayed(config)
        seconds.append(step_s(config, of[key]))
        if index % 100 == 0:
            print(f"{name}: {index} of {len(found)} settings", file=sys.stderr)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SPACES)} [all]")
    for name in parser.parse_args().names or SPACES:
        found = {"space": SPACES[name], "step_ms": [round(1e3 * s, 3) for s in times(name)]}
        (FOLDER / f"tuning-{name}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
