"""Settings in a request: each value of a wrong type, or that no run accepts, with its place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpt2core.spec.config import NAME_SET, wrong
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.models import ModelConfig

Place = tuple[str | int, ...]
SIZES = frozenset(item.name for item in dataclasses.fields(ModelConfig))


def wrong_values(request: Mapping[str, Any]) -> Iterator[tuple[Place, ConfigError]]:
    """Each value of `base`, `axes`, `space` and `zip` that no run accepts. Parts in another form than a request's are
    skipped."""
    for place, name, value in _named(request):
        for error in wrong(name, value):
            yield (*place, *size_of(error)), error


def _named(request: Mapping[str, Any]) -> Iterator[tuple[Place, str, Any]]:
    """Each value with its place and the name of its setting."""
    if isinstance(base := request.get("base"), Mapping):
        yield from ((("base", name), name, value) for name, value in base.items() if value is not None)
    for place, group in _varying(request):
        for name, values in group.items() if isinstance(group, Mapping) else ():
            if name not in NAME_SET:
                yield (*place, name), name, values
            elif isinstance(values, list):
                yield from (((*place, name, i), name, value) for i, value in enumerate(values))


def wrong_types(request: Mapping[str, Any]) -> Iterator[tuple[Place, str, Any]]:
    """Each value of `axes`, `space`, `zip` and `exclude` whose type is wrong: its place, pydantic's name of the error,
    and the value. The types of these parts themselves are not checked."""
    for place, group in _varying(request):
        if not isinstance(group, Mapping):
            if place[0] == "zip":
                yield place, "dict_type", group
            continue
        for name, values in group.items():
            if not isinstance(values, list):
                yield (*place, name), "list_type", values
                continue
            for i, value in enumerate(values):
                if isinstance(value, float) and not math.isfinite(value):
                    yield (*place, name, i), "finite_number", value
    entries = request.get("exclude")
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        if not isinstance(entry, Mapping):
            yield ("exclude", i), "dict_type", entry


def _varying(request: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
    """What should map settings to values: the axes, the space and each group of `zip`."""
    yield from (((part,), request.get(part)) for part in ("axes", "space"))
    groups = request.get("zip")
    yield from ((("zip", i), group) for i, group in enumerate(groups if isinstance(groups, list) else ()))


def size_of(error: ConfigError) -> tuple[str, ...]:
    """Place of an error within the value of its setting: the size of a model, if it is about one."""
    name, _, inner = error.field.partition(".")
    return (inner,) if inner else (name,) if name not in NAME_SET and name in SIZES else ()
