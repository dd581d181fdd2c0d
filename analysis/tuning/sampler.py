"""Chooses the next settings of a tuning: a pure function of the space, the results so far and the seed."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from taskloom.analysis.tuning.space import Point, Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

Sampler = Literal["tpe", "random", "grid"]
STARTUP = 10  # settings at random before the first that follow from results
TRIES = 40  # of TPE for each setting of a batch, before one is drawn at random


@dataclass(frozen=True)
class Tried:
    """A point of the space, and its value: the logarithm of its time over the default's, or None if it has none."""

    point: int
    value: float | None


def choose(space: Space, tried: Sequence[Tried], count: int, seed: int, sampler: Sampler) -> list[int]:
    """The next points, at most `count`; fewer where the space has no more. tried: in the order of the runs.

    random, tpe: points that were not tried. grid: all points round after round, each round in another order.
    """
    if sampler == "grid":
        return _grid(len(space), len(tried), count, seed)
    done = {each.point for each in tried}
    shuffled = random.Random(f"{seed} explore").sample(range(len(space)), len(space))
    fresh = [point for point in shuffled if point not in done]
    if sampler == "random" or len(tried) < STARTUP or all(each.value is None for each in tried):
        return fresh[: min(count, STARTUP - len(tried)) if sampler == "tpe" and len(tried) < STARTUP else count]
    return _tpe(space, tried, fresh, count, seed)


def _grid(size: int, started: int, count: int, seed: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        number, at = divmod(started + len(found), size)
        turn = random.Random(f"{seed} grid {number}").sample(range(size), size)
        found += turn[at : at + count - len(found)]
    return found


def _tpe(space: Space, tried: Sequence[Tried], fresh: Sequence[int], count: int, seed: int) -> list[int]:
    """Points by a tree-structured Parzen estimator (Bergstra et al. 2011), multivariate; points of the same batch count
    as bad until their results are there (the constant liar)."""
    import optuna

    distributions = _distributions(space)
    if not distributions:
        return list(fresh[:count])
    logging.getLogger("optuna").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of experimental options
        seeded = random.Random(f"{seed} {len(tried)}").getrandbits(31)
        sampler = optuna.samplers.TPESampler(
            seed=seeded, n_startup_trials=STARTUP, multivariate=True, constant_liar=True
        )
        study = optuna.create_study(sampler=sampler)
        worst = max(each.value for each in tried if each.value is not None)
        for each in tried:
            value = worst if each.value is None else each.value
            params = _params(space, space.points[each.point], distributions)
            study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
        return _asked(study, space, fresh, count, distributions)


def _asked(
    study: Study, space: Space, fresh: Sequence[int], count: int, distributions: Mapping[str, BaseDistribution]
) -> list[int]:
    from optuna.trial import TrialState

    left = dict.fromkeys(fresh)  # in the order of the draw
    found: list[int] = []
    for _ in range(min(count, len(fresh))):
        chosen = next(iter(left))
        for _ in range(TRIES):
            trial = study.ask(dict(distributions))
            point = space.place.get(_point(space, trial.params))
            if point in left:
                chosen = point
                break
            study.tell(trial, state=TrialState.FAIL)
        del left[chosen]
        found.append(chosen)
    return found


def _order(values: Sequence[Any]) -> list[int] | None:
    """The indices of numbers by size; None unless all values are numbers."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return sorted(range(len(values)), key=lambda at: values[at])
    return None


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    """Numbers are ordered, other values are not. A setting with one value has no distribution."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    found: dict[str, BaseDistribution] = {}
    for name, values in zip(space.names, space.values, strict=True):
        if len(values) > 1:
            ordered = _order(values) is not None
            found[name] = (IntDistribution(0, len(values) - 1) if ordered
                           else CategoricalDistribution(tuple(range(len(values)))))  # fmt: skip
    return found


def _params(space: Space, point: Point, distributions: Mapping[str, BaseDistribution]) -> dict[str, int]:
    found = {}
    for name, values, at in zip(space.names, space.values, point, strict=True):
        if name in distributions:
            order = _order(values)
            found[name] = at if order is None else order.index(at)
    return found


def _point(space: Space, params: Mapping[str, Any]) -> Point:
    found = []
    for name, values in zip(space.names, space.values, strict=True):
        order, at = _order(values), int(params.get(name, 0))
        found.append(at if order is None else order[at])
    return tuple(found)
