"""Words that agree with their numbers, and names of settings."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gpt2core.spec.roles import PROBLEM, with_role
from gpt2core.spec.wording import counted, slices

# Settings that the name of a variant has apart from the others.
STATED = ("scheduler", "threads", "batch_slice", "token_slice", "unit_slice", "op_order", "ranks", "parallel")
WORK = ("fusion", "blas")  # settings that decide what a task does with its slice
TILES = (*PROBLEM, *with_role("slices"), *WORK)  # all that decide it


def disturbed_share(disturbed: int, runs: int) -> str:
    """The share of disturbed runs: 3 of 24 runs were disturbed; most runs were disturbed (22 of 24)."""
    if 2 * disturbed > runs:
        return f"Most runs were disturbed ({disturbed} of {runs})"
    return f"{disturbed} of {counted(runs, 'run')} {'was' if disturbed == 1 else 'were'} disturbed"


def words(name: str) -> str:
    """The name of a setting in words: token slice."""
    return name.replace("_", " ")


def value_name(axis: str | None, value: Any) -> str:
    """A value of an axis, or settings without one: task, 2 threads, batch slice 4, fusion default, op threads qkv=1."""
    if axis is None:
        return settings(value) if isinstance(value, Mapping) else str(value)
    if axis == "threads" and value is not None:
        return counted(value, "thread")
    text = value_text(axis, value)
    return text if axis == "scheduler" else f"{words(axis)} {text}"


def value_text(axis: str, value: Any) -> str:
    """A value without its axis: task, 4, default, qkv=1."""
    if axis == "build":
        return str(value[:12])
    if isinstance(value, Mapping) and "name" in value:
        value = value["name"]
    if isinstance(value, Mapping):
        value = ",".join(f"{key}={each}" for key, each in value.items())
    return value if isinstance(value, str) else "default" if value is None else json.dumps(value)


def settings(values: Mapping[str, Any]) -> str:
    """Settings with their values: task, slices 1x64, 2 threads."""
    rest = dict(values)
    threads = {"threads": rest.pop("threads")} if "threads" in rest else {}
    sliced = []
    if "batch_slice" in rest and "token_slice" in rest:
        sliced = [f"slices {slices({name: rest.pop(name) for name in ('batch_slice', 'token_slice')})}"]
    first = {"scheduler": rest.pop("scheduler")} if "scheduler" in rest else {}
    listed = [[value_name(name, value) for name, value in part.items()] for part in (first, rest, threads)]
    return ", ".join([*listed[0], *sliced, *listed[1], *listed[2]])


class Row(Protocol):
    """A row about a variant, which is one combination of the values of an experiment's axes."""

    @property
    def variant(self) -> Mapping[str, Any]: ...
    @property
    def batch_slice(self) -> int: ...
    @property
    def token_slice(self) -> int: ...


def told_apart(of: Row, by: Container[str] | None = None) -> str:
    """Slices of a row, and all else that tells its variant from those of its scheduler and threads: 1x64, precision
    bf16. by: only these settings."""
    rest = {name: value for name, value in of.variant.items() if name not in STATED and (by is None or name in by)}
    return ", ".join(filter(None, (slices(of), settings(rest))))


def tiles_name(of: Row) -> str:
    """Slices of a row, and all else that tells its tiles from those of other rows: 4x16, by diagonals."""
    return told_apart(of, TILES)


def is_or_are(axis: str | None, value: Any) -> str:
    """The verb of a value: 2 threads are, 1 thread is."""
    return "are" if axis == "threads" and value != 1 else "is"


@dataclass(frozen=True)
class Sides:
    """What the comparisons of a sweep have in common. ratio: fork-join time / task time. above_1: task is faster.
    shared: false if the values vary; then they are called first and second."""

    ratio: str
    above_1: str
    shared: bool


def sides_of(compared: Iterable[tuple[str | None, Any, Any]]) -> Sides:
    """compared: (axis, first value, second value) of each comparison; axis: None for several settings."""
    pairs = {(value_name(axis, a), value_name(axis, b)): (axis, b) for axis, a, b in compared}
    if len(pairs) != 1:
        return Sides("first time / second time", "the second is faster", False)
    ((first, second), (axis, value)), = pairs.items()
    return Sides(f"{first} time / {second} time", f"{second} {is_or_are(axis, value)} faster", True)
