"""Lists of settings that follow from what each setting declares."""

from __future__ import annotations

from typing import Any

from gpt2core.spec.config import FIELDS, SETTINGS


def with_role(*roles: str) -> tuple[str, ...]:
    """The settings that have one of these roles."""
    return tuple(item.name for item in SETTINGS if item.metadata["role"] in roles)


def declared(key: str, *values: Any) -> tuple[str, ...]:
    """The settings that declare this key, with one of these values if there are any."""
    found = [item for item in SETTINGS if key in item.metadata]
    return tuple(item.name for item in found if not values or item.metadata[key] in values)


MAIN = tuple(sorted(declared("main"), key=lambda name: FIELDS[name].metadata["main"]))
PROBLEM = with_role("size", "values", "seed")  # settings that determine the computation
