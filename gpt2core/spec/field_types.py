"""Types of the settings, resolved from TrainConfig's annotations."""

from __future__ import annotations

import functools
import typing
from typing import Any

from gpt2core.spec.config import TrainConfig


@functools.cache
def _types() -> dict[str, Any]:
    return typing.get_type_hints(TrainConfig)


def field_type(name: str) -> Any:
    """The resolved annotation of a TrainConfig field."""
    return _types()[name]


def is_integer(name: str) -> bool:
    """Whether a setting is an integer in every run, or null."""
    kind = field_type(name)
    return {*(typing.get_args(kind) or (kind,))} - {type(None)} == {int}
