"""Parses JSON of clients and artifacts within limits that every reader and the database support.

Depth is bounded, integers fit into 64 bits, other numbers are finite, text is valid Unicode.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from taskloom.contract.bodies import MOST_ERRORS
from taskloom.contract.results import LARGEST, SMALLEST
from taskloom.server.errors import BodyTooComplex, InvalidRequest
from taskloom.server.problems import pointer

MOST_INTEGER = (1 << 63) - 1
DIGITS = 20  # of a 64-bit integer, with its sign
NUMBER = "a finite number within the limits; an integer from -(2^63 - 1) to 2^63 - 1"
TEXT = "valid Unicode"
SEPARATORS = (b",", b"[", b"{")  # their number bounds the number of values


@dataclass(frozen=True)
class Limits:
    """Limits of JSON values: depth, number, and members of an object. unique: no name may be given twice."""

    depth: int
    values: int
    members: int = sys.maxsize
    smallest: float = 0.0  # least absolute value of a number other than 0
    largest: float = sys.float_info.max
    unique: bool = False


# Few members, since the error for an invalid member is larger than the member.
REQUEST = Limits(depth=32, values=1_000_000, members=5000, unique=True)
ARTIFACT = Limits(depth=32, values=8_000_000)
RESULT = Limits(depth=32, values=4_000_000, smallest=SMALLEST, largest=LARGEST)


def parse(content: bytes, limits: Limits) -> Any:
    """Parse and check a value. Raises json.JSONDecodeError, UnicodeDecodeError, BodyTooComplex or InvalidRequest."""
    value = load(content, limits)
    refuse_odd(value, limits)
    return value


def load(content: bytes, limits: Limits) -> Any:
    """Parse a value without checking its numbers and texts. The number of values is limited, since a short text can
    hold many.

    Raises json.JSONDecodeError, UnicodeDecodeError, BodyTooComplex, or InvalidRequest for a name that is given twice.
    """
    if sum(map(content.count, SEPARATORS)) > limits.values:
        raise _too_complex(limits)
    try:
        return json.loads(content, parse_int=_integer, object_pairs_hook=_unique if limits.unique else None)
    except RecursionError:
        raise _too_complex(limits) from None


def refuse_odd(value: object, limits: Limits) -> None:
    """Raises BodyTooComplex, or InvalidRequest with a pointer to each number and text that cannot be stored, up to
    MOST_ERRORS."""
    entries = []
    for path, accepted, odd in _faults(value, limits, limits.depth):
        names = [part for part in path if isinstance(part, str)]  # an item of a list has its list's name
        shown = repr(odd)[:200] if accepted == TEXT else str(odd)
        field = names[0] if names else "body"
        entries.append({"pointer": pointer(path[::-1]), "field": field, "value": shown, "accepted": accepted})
    if entries:
        raise InvalidRequest(entries)


Fault = tuple[list[str | int], str, object]  # path to a value, last part first; what is accepted; the value
NONE: tuple[Fault, ...] = ()


def _faults(value: object, limits: Limits, depth: int) -> Sequence[Fault]:
    kind = type(value)
    if kind is str:
        return NONE if _is_text(value) else [([], TEXT, value)]  # type: ignore[arg-type]
    if kind is float:
        size: float = abs(value)  # type: ignore[arg-type]
        return NONE if size == 0 or limits.smallest <= size <= limits.largest else [([], NUMBER, value)]
    if kind is int:
        return NONE if -MOST_INTEGER <= value <= MOST_INTEGER else [([], NUMBER, value)]  # type: ignore[operator]
    if not isinstance(value, dict | list):
        return NONE
    if depth == 0 or (isinstance(value, dict) and len(value) > limits.members):
        raise _too_complex(limits)
    found: list[Fault] = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(key, str) and not _is_text(key):
            found.append(([], TEXT, key))
        elif faults := _faults(item, limits, depth - 1):
            for path, _, _ in faults:
                path.append(key)
            found += faults
        if len(found) >= MOST_ERRORS:
            return found[:MOST_ERRORS]
    return found


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises InvalidRequest. Parsers differ in which of two values they take."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise InvalidRequest([{"pointer": "", "field": name[:200], "value": None, "accepted": "one value"}])
    return found


def _integer(digits: str) -> int | float:
    """Parse an integer. Longer ones are out of range, and Python refuses to parse very long ones."""
    return int(digits) if len(digits) <= DIGITS else math.inf


def _too_complex(limits: Limits) -> BodyTooComplex:
    text = f"values nest at most {limits.depth} deep, and there are at most {limits.values} of them"
    if limits.members == sys.maxsize:
        return BodyTooComplex(text, max_depth=limits.depth, max_values=limits.values)
    text += f", {limits.members} in one object"
    return BodyTooComplex(text, max_depth=limits.depth, max_values=limits.values, max_members=limits.members)
