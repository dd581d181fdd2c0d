"""Settings in a request: each value that no run accepts, with its place."""

from __future__ import annotations

import dataclasses
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
    groups = request.get("zip")
    varying: list[tuple[Place, Any]] = [((part,), request.get(part)) for part in ("axes", "space")]
    varying += [(("zip", i), group) for i, group in enumerate(groups)] if isinstance(groups, list) else []
    named: list[tuple[Place, str, Any]] = []
    if isinstance(base := request.get("base"), Mapping):
        named += [(("base", name), name, value) for name, value in base.items() if value is not None]
    for place, group in varying:
        for name, values in group.items() if isinstance(group, Mapping) else ():
            if name not in NAME_SET:
                named.append(((*place, name), name, values))
            elif isinstance(values, list):
                named += [((*place, name, i), name, value) for i, value in enumerate(values)]
    for place, name, value in named:
        for error in wrong(name, value):
            yield (*place, *size_of(error)), error


def size_of(error: ConfigError) -> tuple[str, ...]:
    """Place of an error within the value of its setting: the size of a model, if it is about one."""
    name, _, inner = error.field.partition(".")
    return (inner,) if inner else (name,) if name not in NAME_SET and name in SIZES else ()
