"""Errors of a request, collected over all its variants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt2core.spec.errors import ConfigError
from taskloom.contract.bodies import MOST_ERRORS
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.settings import size_of
from taskloom.server.errors import InvalidRequest
from taskloom.server.problems import pointer
from taskloom.server.queue.experiments.canonical import text


class Refusals:
    """Distinct errors, each with a pointer to the field."""

    def __init__(self, request: ExperimentRequest) -> None:
        self._request = request
        self._entries: dict[tuple[str, str], dict[str, Any]] = {}
        self._places: dict[str, dict[str, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, where: str, field: str, value: object, accepted: str) -> None:
        """Add an error. Raises InvalidRequest once there are MOST_ERRORS."""
        entry = {"pointer": where, "field": field, "value": value, "accepted": accepted}
        self._entries.setdefault((where, accepted), entry)
        if len(self._entries) >= MOST_ERRORS:
            self.raise_if_any()

    def add_setting(self, choice: Mapping[str, Any], error: ConfigError) -> None:
        """Add a rejected setting of a variant, located in its axis, zip or base."""
        inner = size_of(error)
        name = "model" if inner else error.field
        self.add(self.where(name, choice) + pointer(inner), error.field, error.value, error.accepted)

    def where(self, name: str, choice: Mapping[str, Any]) -> str:
        if name in self._request.axes:
            return pointer(["axes", name, self._place(name, self._request.axes[name], choice[name])])
        if name in self._request.space and name in choice:
            return pointer(["space", name, self._place(name, self._request.space[name], choice[name])])
        for i, group in enumerate(self._request.zip):
            if name in group:
                return pointer(["zip", i, name, self._place(name, group[name], choice[name])])
        return pointer(["base", name])

    def _place(self, name: str, values: list[Any], value: object) -> int:
        """Index of the first equal value."""
        if name not in self._places:
            self._places[name] = {text(values[i]): i for i in range(len(values) - 1, -1, -1)}
        return self._places[name][text(value)]

    def raise_if_any(self) -> None:
        if self._entries:
            raise InvalidRequest(list(self._entries.values()))
