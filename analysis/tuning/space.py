"""The space of a tuning: every valid combination of the settings' values, each computation's schedule once."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpt2core.spec import schedulers
from gpt2core.spec.config import DEFAULTS, TrainConfig
from gpt2core.spec.errors import ConfigError

MOST_COMBINATIONS = 200_000
MOST_REFUSALS = 20  # different refusals that are kept
Point = tuple[int, ...]  # the index of each setting's value


class SpaceTooLarge(ValueError):
    """The space has more combinations than a tuning may enumerate."""

    def __init__(self, combinations: int) -> None:
        super().__init__(f"the space has {combinations} combinations; the limit is {MOST_COMBINATIONS}")
        self.combinations = combinations


@dataclass(frozen=True)
class Space:
    """The valid combinations of settings. points: one for each configuration, in the order of the product; place: the
    index in `points` of every valid combination, also of those that are equal to an earlier one.

    excluded: combinations that the request excludes; invalid: that the trainer refuses; equal: to an earlier one.
    """

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    points: list[Point] = field(repr=False)
    place: Mapping[Point, int] = field(repr=False)
    combinations: int
    excluded: int
    invalid: int
    refusals: list[ConfigError] = field(repr=False)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def equal(self) -> int:
        return len(self.place) - len(self.points)

    def settings(self, index: int) -> dict[str, Any]:
        """The settings of a point."""
        return {name: values[at] for name, values, at in zip(self.names, self.values, self.points[index], strict=True)}

    def index(self, settings: Mapping[str, Any]) -> int:
        """The point with these settings. Raises KeyError if there is none."""
        texts = [_text(settings.get(name)) for name in self.names]
        at = tuple(_find(text, values) for text, values in zip(texts, self.values, strict=True))
        return self.place[at]


def _find(text: str, values: Sequence[Any]) -> int:
    for at, value in enumerate(values):
        if _text(value) == text:
            return at
    raise KeyError(text)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def read_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings as the trainer uses them: those that its scheduler does not read are at their defaults."""
    scheduler = schedulers.scheduler(config.scheduler)
    used = dict(vars(config), fusion=config.fused)
    unread = {name for other in schedulers.KNOWN for name in schedulers.scheduler(other).options}
    for name in unread - set(scheduler.options):
        used[name] = DEFAULTS[name]
    if scheduler.order != "graph":
        used["sync"] = DEFAULTS["sync"]
    return used


def space(
    base: Mapping[str, Any],
    values: Mapping[str, Sequence[Any]],
    exclude: Sequence[Mapping[str, Any]] = (),
    as_used: Callable[[TrainConfig], Mapping[str, Any]] = read_settings,
    between: Callable[[], None] = lambda: None,
) -> Space:
    """Every valid combination over a base. exclude: combinations that match every value of an entry. as_used: the
    settings that a run uses; combinations with equal ones are one. between: called now and then; may raise to stop.

    Raises SpaceTooLarge.
    """
    names = tuple(values)
    combinations = math.prod(len(values[name]) for name in names)
    if combinations > MOST_COMBINATIONS:
        raise SpaceTooLarge(combinations)
    left_out = _excluded(base, values, exclude)
    points: list[Point] = []
    place: dict[Point, int] = {}
    known: dict[tuple[str, ...], int] = {}
    refusals: dict[tuple[str, str, str], ConfigError] = {}
    excluded = invalid = 0
    for number, point in enumerate(itertools.product(*(range(len(values[name])) for name in names))):
        if number % 100 == 0:
            between()
        if any(tuple(point[at] for at in places) in taken for places, taken in left_out.items()):
            excluded += 1
            continue
        try:
            config = TrainConfig.from_dict({**base, **{n: values[n][at] for n, at in zip(names, point, strict=True)}})
        except ConfigError as error:
            invalid += 1
            if len(refusals) < MOST_REFUSALS:
                refusals.setdefault((error.field, repr(error.value), error.accepted), error)
            continue
        used = as_used(config)
        key = tuple(repr(used[name]) for name in (*names, "fusion", "batch_slice", "token_slice"))
        if key not in known:
            known[key] = len(points)
            points.append(point)
        place[point] = known[key]
    kept = tuple(tuple(values[name]) for name in names)
    return Space(names, kept, points, place, combinations, excluded, invalid, list(refusals.values()))


def _excluded(
    base: Mapping[str, Any], values: Mapping[str, Sequence[Any]], exclude: Sequence[Mapping[str, Any]]
) -> dict[tuple[int, ...], set[Point]]:
    """Excluded indices, by the places of the settings that an entry names. An entry whose other settings differ from
    those of the base excludes nothing."""
    names = list(values)
    fixed = {**{name: _json(value) for name, value in DEFAULTS.items()}, **base}
    found: dict[tuple[int, ...], set[Point]] = {}
    for entry in exclude:
        inside = sorted(name for name in entry if name in values)
        if any(_text(fixed.get(name)) != _text(value) for name, value in entry.items() if name not in values):
            continue
        try:
            indices = tuple(_find(_text(entry[name]), values[name]) for name in inside)
        except KeyError:
            continue
        found.setdefault(tuple(names.index(name) for name in inside), set()).add(indices)
    return found


def _json(value: Any) -> Any:
    """A default as JSON: the model by its name."""
    return value.name if dataclasses.is_dataclass(value) and hasattr(value, "name") else value
