"""Variants: processes of the same configuration, and the columns that describe them in every table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt2core.spec.config import DEFAULTS
from gpt2core.spec.roles import PROBLEM
from gpt2core.spec.wording import counted
from taskloom.analysis.comparison import identity
from taskloom.analysis.processes import Process
from taskloom.analysis.wording import TILES, told_apart

Group = Sequence[Process]
Sides = tuple[Mapping[str, Any], Mapping[str, Any]]  # the variants of a comparison of b with a


@dataclass(frozen=True)
class Variant:
    """Variant of a row, and its number of runs."""

    variant: dict[str, Any]
    scheduler: str
    sync: str
    threads: int
    batch_slice: int
    token_slice: int
    runs: int

    @property
    def name(self) -> str:
        return f"{self.scheduler} {told_apart(self)}, {counted(self.threads, 'thread')}"


def variant_of(group: Group) -> Variant:
    config = group[0].config
    return Variant(
        dict(group[0].variant),
        str(config["scheduler"]),
        str(config["sync"]),
        int(config["threads"]),
        int(config["batch_slice"]),
        int(config["token_slice"]),
        len(group),
    )


def varying(variants: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings in which variants differ: the scheduler first, those that change the computation last."""
    names = list(dict.fromkeys(name for variant in variants for name in variant))
    found = [n for n in names if len({json.dumps(variant.get(n), sort_keys=True) for variant in variants}) > 1]
    return sorted(found, key=lambda name: (name != "scheduler", name in PROBLEM))


def opposed_as(sides: Sides | None, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two variants are the sides of a comparison, in either order."""
    return sides is not None and sides in ((a, b), (b, a))


def opposed(variants: Sequence[Mapping[str, Any]], axis: str) -> list[tuple[int, int]]:
    """Each variant, by its place, with the first variant that differs only along the axis."""
    firsts: dict[str, int] = {}
    found = []
    for place, variant in enumerate(variants):
        rest = json.dumps({name: value for name, value in variant.items() if name != axis}, sort_keys=True)
        if firsts.setdefault(rest, place) != place:
            found.append((firsts[rest], place))
    return found


def by_variant(processes: Sequence[Process]) -> list[list[Process]]:
    """The processes of each variant, in the order of problem, scheduler, slices and threads."""
    groups: dict[str, list[Process]] = {}
    for process in processes:
        groups.setdefault(identity(process), []).append(process)
    return sorted(groups.values(), key=_order)


def _order(group: Group) -> tuple[str, str, int, int, int, str]:
    config = group[0].config
    return (
        json.dumps([config[name] for name in PROBLEM if name in config], sort_keys=True),
        str(config["scheduler"]),
        int(config["batch_slice"]),
        int(config["token_slice"]),
        int(config["threads"]),
        identity(group[0]),
    )


def tiles_of(group: Group) -> str:
    """A key that is equal for variants whose tasks do the same, under any scheduler and number of threads."""
    config = group[0].config
    return json.dumps([config.get(name, DEFAULTS[name]) for name in TILES])


def loops_of(group: Group) -> str:
    """A key that is equal for variants with the same tiles in the same loops of fork-join."""
    return json.dumps([tiles_of(group), group[0].config.get("op_order", DEFAULTS["op_order"])])


def one_thread(group: Group, groups: Sequence[Group]) -> Group | None:
    """The one-thread variant with the same tiles, of the same scheduler and settings if possible."""
    alike = [each for each in groups if each[0].config["threads"] == 1 and tiles_of(each) == tiles_of(group)]
    return min(
        alike,
        key=lambda each: tuple(each[0].config[n] != group[0].config[n] for n in ("scheduler", "sync")),
        default=None,
    )
