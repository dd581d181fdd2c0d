"""The protocol of a tuning: explore, confirm, fresh draws; which block comes next, and when it ends.

Everything follows from the request, the space, the runs in the order of their ids and the time spent, so any server
computes the same block, also after a restart.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpt2core.spec.result import median
from taskloom.analysis.tuning.expected import Seen, expected
from taskloom.analysis.tuning.sampler import STARTUP, Sampler, Tried, choose
from taskloom.analysis.tuning.space import Space

Phase = Literal["explore", "confirm", "fresh", "ended"]
Role = Literal["trial", "default", "winner", "drawn"]
Reason = Literal["complete", "budget", "no-results"]
GRID_ROUNDS = 3  # with so many runs for each setting, the grid is measured instead
FEWEST_PAIRS = 6  # of a confirmation: fewer cannot be significant
MOST_LOST_BLOCKS = 3  # whose default has no result, while no other block's has
MOST_REPEATED = 3  # blocks of a phase that are repeated because their runs had different nodes


@dataclass(frozen=True)
class Terms:
    """A tuning's request. runs: of settings, in explore; batch: of them in a block, beside one run of the default."""

    runs: int = 96
    budget_s: float | None = None
    batch: int = 6
    confirm: int = 8
    fresh: int = 20
    seed: int = 0
    sampler: Sampler = "tpe"

    def sampler_of(self, size: int) -> Sampler:
        """The sampler for a space of this size: the grid, if every setting can run GRID_ROUNDS times."""
        return "grid" if self.runs >= GRID_ROUNDS * size else self.sampler

    def explored(self, size: int) -> int:
        """Number of runs of settings in explore. The grid runs whole rounds, if the runs suffice for one."""
        if self.sampler_of(size) == "grid":
            return self.runs - self.runs % size if self.runs >= size else self.runs
        return min(self.runs, size)

    def explore_blocks(self, size: int) -> int:
        """Number of blocks of explore. The first settings at random end a block, because the next ones follow from
        their results."""
        explored = self.explored(size)
        first = min(explored, STARTUP) if self.sampler_of(size) == "tpe" else 0
        return -(-first // self.batch) + -(-(explored - first) // self.batch)

    def planned(self, size: int) -> int:
        """Number of all runs, at most, unless blocks are repeated."""
        return self.explored(size) + self.explore_blocks(size) + 2 * (self.confirm + self.fresh)


@dataclass(frozen=True)
class Run:
    """A run of a tuning. point: of the space; None: the default. step_s: None if the run has no result that counts, of
    which `fault` is the reason. apart: it has a result, but of another node than the run that it is compared with.
    ended: false while it is open."""

    run_id: int
    block: int
    role: Role
    point: int | None
    step_s: float | None = None
    fault: str | None = None
    disagrees: bool = False
    apart: bool = False
    flagged: bool = False
    ended: bool = True


@dataclass(frozen=True)
class Following:
    """The next block: a role and a point for each run, in order. reason: why there is none."""

    phase: Phase
    parts: tuple[tuple[Role, int | None], ...] = ()
    reason: Reason | None = None


def by_block(runs: Sequence[Run]) -> dict[int, list[Run]]:
    """The runs of each block."""
    found: dict[int, list[Run]] = {}
    for run in runs:
        found.setdefault(run.block, []).append(run)
    return found


def phase_of(runs: Sequence[Run]) -> Phase:
    """The phase of a block."""
    roles = {run.role for run in runs}
    return "explore" if "trial" in roles else "fresh" if "drawn" in roles else "confirm"


def of_phase(runs: Sequence[Run], phase: Phase) -> list[list[Run]]:
    """The blocks of a phase."""
    return [of for of in by_block(runs).values() if phase_of(of) == phase]


def repeated(runs: Sequence[Run], phase: Phase) -> list[list[Run]]:
    """The first MOST_REPEATED blocks of confirm or fresh whose node was lost between their runs: each is repeated,
    whatever its results were."""
    return [of for of in of_phase(runs, phase) if any(run.apart for run in of)][:MOST_REPEATED]


def counted(runs: Sequence[Run], phase: Phase) -> list[list[Run]]:
    """The blocks of confirm or fresh that count."""
    without = repeated(runs, phase)
    return [of for of in of_phase(runs, phase) if of not in without]


def control_s(runs: Sequence[Run]) -> float | None:
    """Step time of the default in a block; None if it has none."""
    return next((run.step_s for run in runs if run.role == "default"), None)


def tried(runs: Sequence[Run]) -> list[Tried]:
    """The points of explore with their values, in the order of the runs. Points beside which the default has no result
    on the same node are left out, and may be tried again, unless they failed themselves."""
    found = []
    controls = {block: control_s(of) for block, of in by_block(runs).items()}
    for run in runs:
        control = controls[run.block]
        if run.role != "trial" or run.point is None or ((control is None or run.apart) and run.fault is None):
            continue
        value = None if run.step_s is None or control is None else math.log(run.step_s) - math.log(control)
        found.append(Tried(run.point, value))
    return found


def values_of(results: Sequence[Tried]) -> dict[int, float]:
    """The median value of each point that has any, in the order of the first runs."""
    found: dict[int, list[float]] = {}
    for each in results:
        if each.value is not None:
            found.setdefault(each.point, []).append(each.value)
    return {point: median(values) for point, values in found.items()}


def best(space: Space, runs: Sequence[Run]) -> int | None:
    """The point with the smallest expected time of those that count, of equal ones the first; None without results.
    Once it is chosen, it stays."""
    chosen = next((run.point for run in runs if run.role == "winner"), None)
    if chosen is not None:
        return chosen
    counting = values_of(tried(runs))
    seen = [
        Seen(run.block, run.point, math.log(run.step_s)) for run in runs
        if run.step_s is not None and not run.apart and (run.role == "default" or run.point in counting)
    ]  # fmt: skip
    values = {point: round(value, 6) for point, value in expected(space.points, seen).items()}  # ties, but for rounding
    return min(values, key=values.__getitem__) if values else None


def draws(terms: Terms, size: int) -> list[int]:
    """The fresh draws: uniform, with replacement, without regard to any result."""
    chance = random.Random(f"{terms.seed} fresh")
    return [chance.randrange(size) for _ in range(terms.fresh)]


def following(terms: Terms, space: Space, runs: Sequence[Run], spent_s: float) -> Following:
    """The block after these runs, all of which have ended, or the reason why there is none."""
    confirmed, drawn_blocks = (len(counted(runs, phase)) for phase in ("confirm", "fresh"))
    exploring = all(run.role != "winner" for run in runs)
    number = max((run.block for run in runs), default=-1) + 1
    run_s = spent_s / len(runs) if runs else 0.0

    def affordable(more: int) -> bool:
        return terms.budget_s is None or not runs or spent_s + more * run_s <= terms.budget_s

    if exploring:
        more = _exploring(terms, space, runs)
        reserved = 2 * (terms.confirm + terms.fresh)
        if more and affordable(1 + len(more) + reserved):
            parts: list[tuple[Role, int | None]] = [("default", None), *(("trial", point) for point in more)]
            random.Random(f"{terms.seed} block {number}").shuffle(parts)
            return Following("explore", tuple(parts))
    winner = best(space, runs)
    if winner is None:
        return Following("ended", reason="no-results")
    if confirmed < terms.confirm and all(run.role != "drawn" for run in runs):
        if not affordable(2):
            return Following("ended", reason="budget")
        pair: tuple[tuple[Role, int | None], ...] = (("default", None), ("winner", winner))
        return Following("confirm", pair[::-1] if confirmed % 2 else pair)
    drawn = [point for point in draws(terms, len(space)) if point != winner]
    if drawn_blocks < len(drawn):
        if not affordable(2):
            return Following("ended", reason="budget")
        beside: list[tuple[Role, int | None]] = [("winner", winner), ("drawn", drawn[drawn_blocks])]
        random.Random(f"{terms.seed} block {number}").shuffle(beside)
        return Following("fresh", tuple(beside))
    return Following("ended", reason="complete")


def _exploring(terms: Terms, space: Space, runs: Sequence[Run]) -> list[int]:
    """The points of the next block of explore; none if it has ended."""
    trials = [run for run in runs if run.role == "trial"]
    results = tried(runs)
    controls = [control_s(of) for of in by_block(runs).values()]
    if len(controls) >= MOST_LOST_BLOCKS and all(control is None for control in controls):
        return []
    if len(results) >= STARTUP and all(each.value is None for each in results):
        return []
    sampler = terms.sampler_of(len(space))
    count = min(terms.batch, (terms.explored(len(space)) if sampler == "grid" else terms.runs) - len(trials))
    if sampler == "grid":  # continues where it is, whatever the results were
        results = [Tried(run.point, None) for run in trials if run.point is not None]
    return choose(space, results, count, terms.seed, sampler) if count > 0 else []


def shown_phase(runs: Sequence[Run], reason: str | None) -> Phase:
    """The phase that a tuning is in."""
    if reason is not None:
        return "ended"
    return phase_of(list(by_block(runs).values())[-1]) if runs else "explore"


def importance(values: Sequence[tuple[Mapping[str, str], float]]) -> list[tuple[str, float, int]]:
    """Mean |effect| of each setting's values on the logarithm of the time, over single trials, with their number; the
    largest first. Settings of one value are left out. Exploratory: the search chose the trials."""
    if not values:
        return []
    middle = math.fsum(value for _, value in values) / len(values)
    found = []
    for name in values[0][0]:
        groups: dict[str, list[float]] = {}
        for settings, value in values:
            groups.setdefault(settings[name], []).append(value)
        if len(groups) > 1:
            effects = (abs(math.fsum(of) - len(of) * middle) for of in groups.values())
            found.append((name, math.fsum(effects) / len(values), len(values)))
    return sorted(found, key=lambda each: -each[1])
