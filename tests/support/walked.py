"""The pages of a list, one after another."""

from __future__ import annotations

from typing import Any

from tests.support.caller import Caller


def walk(api: Caller, path: str, **query: Any) -> list[int]:
    """The ids on all pages."""
    found: list[int] = []
    cursor: dict[str, Any] | None = {}
    while cursor is not None:
        page = api.get(path, **query, **cursor)
        found += [item["id"] for item in page["items"]]
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else None
    return found
