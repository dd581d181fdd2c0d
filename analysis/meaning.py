"""Descriptions of fields of answers, which the OpenAPI document shows."""

from __future__ import annotations


def says(description: str) -> dict[str, str]:
    """The metadata of a dataclass field with this description."""
    return {"description": description}
