"""A value that a test expects where its type also allows None."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """The value. Raises AssertionError if it is None."""
    assert value is not None
    return value
