"""Cursors of lists: the last id of a page, opaque to the caller."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TypeVar

from taskloom.contract.bodies import MOST_ID
from taskloom.server.errors import BadCursor, PageTooLarge

T = TypeVar("T")

DEFAULT_LIMIT = 100


def encode(last: int | str) -> str:
    return base64.urlsafe_b64encode(f"after:{last}".encode()).decode().rstrip("=")


def decode(cursor: str | None) -> str | None:
    """Decode a cursor of `encode`. Raises BadCursor."""
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise BadCursor from None
    if not text.startswith("after:"):
        raise BadCursor
    return text.removeprefix("after:")


def decode_id(cursor: str | None) -> int | None:
    """The id that `encode` was given. Raises BadCursor."""
    text = decode(cursor)
    if text is None:
        return None
    return whole_id(text)


def whole_id(text: str) -> int:
    """An id from a cursor. Raises BadCursor."""
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or int(text) > MOST_ID:
        raise BadCursor
    return int(text)


def check_limit(limit: int, most: int) -> None:
    """Raises PageTooLarge."""
    if limit > most:
        raise PageTooLarge(f"a page has at most {most} items", limit=limit, max_limit=most)


def split(rows: Sequence[T], limit: int) -> tuple[Sequence[T], bool]:
    """The page from up to limit + 1 rows, and whether there is a next page."""
    return rows[:limit], len(rows) > limit
