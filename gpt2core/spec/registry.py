"""Registries: components of this package by name, and those that other packages add by entry points.

A package adds a network `mlp`, whose module `its_package.network` has the value NETWORK, by these lines of its
pyproject.toml:

    [project.entry-points."taskloom.networks"]
    mlp = "its_package.network"
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from gpt2core.spec.errors import MachineError

V = TypeVar("V")


class Registry(Mapping[str, V]):
    """Values by name: those given, then those of other packages, which are looked for when a name is not given.

    With an `attribute`, values are names of modules that define the component under it; without, values are the
    components.
    """

    def __init__(self, group: str, given: Mapping[str, V], attribute: str | None = None) -> None:
        self._group, self._given, self._attribute = f"taskloom.{group}", given, attribute

    @functools.cached_property
    def _others(self) -> dict[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for each in entry_points(group=self._group):
            known = found.setdefault(each.name, each)
            if known.value != each.value:
                raise MachineError(
                    f"{self._group}: {each.name} is declared by two packages, {_package(known)} and {_package(each)}"
                )
        return {name: each for name, each in found.items() if name not in self._given}

    def __getitem__(self, name: str) -> V:
        if name in self._given:
            return self._given[name]
        value: Any = self._others[name].value if self._attribute else self._of_package(name)
        return value  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        yield from self._given
        yield from self._others

    def __len__(self) -> int:
        return len(self._given) + len(self._others)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._given or name in self._others)

    def component(self, name: str) -> Any:
        """The component of that name. Raises KeyError, or MachineError if another package's cannot be loaded."""
        if not self._attribute:
            return self[name]
        if name in self._given:
            return getattr(importlib.import_module(str(self._given[name])), self._attribute)
        return self._of_package(name)

    def _of_package(self, name: str) -> Any:
        entry = self._others[name]
        try:
            loaded = entry.load()
            return loaded if entry.attr or not self._attribute else getattr(loaded, self._attribute)
        except (ImportError, AttributeError) as error:
            package = _package(entry)
            raise MachineError(f"{self._group}: {name} of package {package} cannot be loaded: {error}") from error


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "unknown"
