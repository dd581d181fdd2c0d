"""Simulated tunings: regret of the search, coverage of the confirmed ratio, and whether the share's bound holds.

    python -m bench.tuning [--spaces 400] [--runs 48 96] [--samplers random tpe] [--times effects]

The true step time of every setting is known. effects: main effects of each value, interactions of 2 % between any two,
and Amdahl's law over the threads. The name of a network: its step, replayed for every setting
(bench/tuning_spaces.py). A run's time is the true one times the noise of its block and of itself, under each of
the ten noise models of tests/unit/test_noises.py, and short runs, which scatter by 12 %.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from bench import tuning_spaces
from bench.tuning_spaces import Known
from taskloom.analysis.estimators import paired
from taskloom.analysis.tuning import protocol
from taskloom.analysis.tuning.protocol import Run, Terms
from taskloom.analysis.tuning.sampler import Sampler
from taskloom.analysis.tuning.share import beats_at_least
from taskloom.analysis.tuning.space import Space, space

BASE = {"model": "small", "batch": 8, "seq": 256}
VALUES: dict[str, Sequence[Any]] = {
    "scheduler": ["fork-join", "task"], "sync": ["phase", "step", "none"],
    "policy": ["breadth-first", "critical-path", "program-order"], "assignment": ["static", "dynamic"],
    "threads": [1, 2, 4, 8, 16], "batch_slice": [1, 2, 4, 8], "token_slice": [16, 32, 64, 128, 256],
    "fusion": ["none", "rows", "all"],
}  # fmt: skip
EFFECTS = "effects"
Noise = Callable[[np.random.Generator, int, int], np.ndarray]  # logarithms of (runs of a block, blocks)


def own(rng: np.random.Generator, runs: int, blocks: int, sd: float = 0.01) -> np.ndarray:
    """Independent noise of each run."""
    return rng.normal(0, sd, (runs, blocks))


def weather(rng: np.random.Generator, blocks: int) -> np.ndarray:
    """Noise of blocks; that of neighbours is correlated."""
    noise = rng.normal(0, 0.02, blocks)
    for i in range(1, blocks):
        noise[i] = 0.8 * noise[i - 1] + 0.6 * noise[i]
    return noise[None, :]


def rough(rng: np.random.Generator, runs: int, blocks: int) -> np.ndarray:
    """2 % a run, 3 % a block, and 5 % of runs are 5 to 50 % slower."""
    slow = np.log1p(rng.uniform(0.05, 0.5, (runs, blocks))) * (rng.random((runs, blocks)) < 0.05)
    found: np.ndarray = rng.normal(0, 0.03, (1, blocks)) + own(rng, runs, blocks, 0.02) + slow
    return found


NOISES: dict[str, Noise] = {
    "gauss": own,
    "lognormal": lambda rng, runs, blocks: 0.01 * rng.lognormal(0, 1, (runs, blocks)),
    "t2": lambda rng, runs, blocks: 0.01 * rng.standard_t(2, (runs, blocks)),
    "bimodal": lambda rng, runs, blocks: 0.05 * (rng.random((runs, blocks)) < 0.3) + own(rng, runs, blocks, 0.003),
    "drift": lambda rng, runs, blocks: np.linspace(0, 0.1, blocks)[None, :] + own(rng, runs, blocks),
    "autocorrelated": lambda rng, runs, blocks: weather(rng, blocks) + own(rng, runs, blocks),
    "outliers": lambda rng, runs, blocks: 0.3 * (rng.random((runs, blocks)) < 0.05) + own(rng, runs, blocks),
    "blocks": lambda rng, runs, blocks: rng.normal(0, 0.05, (1, blocks)) + own(rng, runs, blocks),
    "unequal": lambda rng, runs, blocks: own(rng, runs, blocks) * rng.choice([1.0, 5.0], (runs, 1)),
    "rough": rough,
    "short": lambda rng, runs, blocks: rng.normal(0, 0.05, (1, blocks)) + own(rng, runs, blocks, 0.12),
}


@functools.cache
def settings() -> Space:
    """The space of all simulations."""
    return space(BASE, VALUES)


def true_s(seed: int) -> np.ndarray:
    """The true step time of every setting of a space of effects."""
    rng = np.random.default_rng([seed, 47])
    found = settings()
    points = np.array(found.points)
    log = np.zeros(len(points))
    threads = np.array(VALUES["threads"], float)
    serial = rng.uniform(0.02, 0.3)
    for column, name in enumerate(found.names):
        if name == "threads":
            log += np.log(serial + (1 - serial) / threads)[points[:, column]]
        else:
            log += rng.normal(0, 0.08, len(VALUES[name]))[points[:, column]]
    for a, b in itertools.combinations(range(len(found.names)), 2):
        shape = len(found.values[a]), len(found.values[b])
        log += rng.normal(0, 0.02, shape)[points[:, a], points[:, b]]
    return np.exp(log)


@dataclass(frozen=True)
class Outcome:
    """regret: of the winner over the best setting. ratio: true, of the default's time to the winner's; found, low,
    high: as confirmed. share: of settings truly slower than the winner; at_least: its bound. overstated: ratio of the
    winner's best run over its true one."""

    regret: float
    ratio: float
    found: float
    low: float
    high: float
    share: float
    at_least: float
    overstated: float


@functools.cache
def recorded(times: str) -> Known:
    return tuning_spaces.load(times)


def simulate(seed: int, noise: str, runs: int, sampler: Sampler = "tpe", times: str = EFFECTS) -> Outcome:
    """A whole tuning of one space. The default is a setting drawn at random. Each sampler gets noise of its own.
    times: where the true ones come from."""
    known = Known(settings(), true_s(seed)) if times == EFFECTS else recorded(times)
    chosen, truth = known.space, known.step_s
    rng = np.random.default_rng([seed, list(NOISES).index(noise), runs, get_args(Sampler).index(sampler)])
    default = int(rng.integers(len(chosen)))
    terms = Terms(runs=runs, seed=seed, sampler=sampler)
    factors = np.exp(NOISES[noise](rng, terms.batch + 1, terms.planned(len(chosen))))
    done: list[Run] = []
    for block in itertools.count():
        following = protocol.following(terms, chosen, done, 0.0)
        if following.reason is not None:
            break
        for slot, (role, point) in enumerate(following.parts):
            step_s = truth[default if point is None else point] * factors[slot, block]
            done.append(Run(len(done), block, role, point, float(step_s)))
    winner = protocol.best(chosen, done)
    assert winner is not None
    of = protocol.by_block(done).values()
    pairs = [{run.role: run.step_s or 0.0 for run in runs} for runs in of if protocol.phase_of(runs) == "confirm"]
    estimate = paired([each["default"] for each in pairs], [each["winner"] for each in pairs])
    fresh = [{run.role: run.step_s or 0.0 for run in runs} for runs in of if protocol.phase_of(runs) == "fresh"]
    slower = sum(each["drawn"] > each["winner"] for each in fresh)
    ratio = float(truth[default] / truth[winner])
    explored = protocol.values_of(protocol.tried(done))[winner]
    return Outcome(
        regret=float(truth[winner] / truth.min() - 1),
        ratio=ratio,
        found=estimate.value,
        low=estimate.low or 0.0,
        high=estimate.high or np.inf,
        share=float(np.mean(truth > truth[winner])),
        at_least=beats_at_least(slower, terms.fresh),
        overstated=float(np.exp(-explored) / ratio),
    )


def summary(outcomes: list[Outcome]) -> dict[str, float]:
    """Shares and quantiles over simulations."""
    regrets = [each.regret for each in outcomes]
    return {
        "simulations": len(outcomes),
        "regret_median": float(np.median(regrets)),
        "regret_p90": float(np.quantile(regrets, 0.9)),
        "covered": float(np.mean([each.low <= each.ratio <= each.high for each in outcomes])),
        "bias": float(np.median([each.found / each.ratio for each in outcomes]) - 1),
        "best_run_overstates": float(np.median([each.overstated for each in outcomes]) - 1),
        "bound_holds": float(np.mean([each.at_least <= each.share for each in outcomes])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spaces", type=int, default=400, help="number of spaces, shared by the noise models")
    parser.add_argument("--runs", type=int, nargs="+", default=[48, 96])
    parser.add_argument("--samplers", nargs="+", choices=get_args(Sampler), default=["random", "tpe"])
    parser.add_argument("--times", choices=(EFFECTS, *tuning_spaces.SPACES), default=EFFECTS, help="the true ones")
    given = parser.parse_args()
    each = max(1, given.spaces // len(NOISES))
    size = len(settings()) if given.times == EFFECTS else len(recorded(given.times).space)
    print(json.dumps({"times": given.times, "settings": size, "spaces": each * len(NOISES)}))
    for runs, sampler in itertools.product(given.runs, given.samplers):
        everything: list[Outcome] = []
        for at, noise in enumerate(NOISES):
            found = [simulate(at * each + seed, noise, runs, sampler, given.times) for seed in range(each)]
            everything += found
            print(json.dumps({"runs": runs, "sampler": sampler, "noise": noise, **summary(found)}), flush=True)
        print(json.dumps({"runs": runs, "sampler": sampler, "noise": "all", **summary(everything)}), flush=True)


if __name__ == "__main__":
    main()
