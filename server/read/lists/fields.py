"""The names that filters know: how each reads a value, and its SQL."""

from __future__ import annotations

import bisect
import datetime
import difflib
import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Integer, SelectBase, and_, case, cast, func, not_, or_
from sqlalchemy.orm import Session

from gpt2core.spec import networks
from gpt2core.spec.config import FIELDS, NAMES, wrong
from gpt2core.spec.field_types import field_type, is_integer
from gpt2core.spec.fields import parse_cores
from gpt2core.spec.generation import parse_prompt
from gpt2core.spec.models import model_names, preset_name
from gpt2core.spec.series import LATER_SETTINGS
from taskloom.contract import durations
from taskloom.contract.bodies import MOST
from taskloom.contract.commits import SHORT
from taskloom.contract.filters import FilterKind, FilterName
from taskloom.server.db import now
from taskloom.server.read.lists.grammar import Comparison, Either, Every, Not, Tree, Value, comparisons
from taskloom.server.read.lists.keyset import Kind
from taskloom.server.read.lists.members import json_number, json_text, json_value, spellings

Condition = ColumnElement[bool]
INSTANT = f"an instant such as 2026-11-22T10:00:00Z, or how long ago: {durations.EXAMPLES}"
EQUALITY = ("=", "!=", "in")
ORDER = ("=", "!=", "<", "<=", ">", ">=", "in")
OPERATORS: Mapping[FilterKind, tuple[str, ...]] = {
    "integer": ORDER,
    "number": ORDER,
    "text": (*EQUALITY, "~"),
    "choice": EQUALITY,
    "boolean": ("=", "!="),
    "instant": ("<", "<=", ">", ">="),
    "json": ("=", "!="),
}
MOST_NAMED = 20  # values in a sentence


class Refused(ValueError):
    """What a filter would accept instead."""


class Stored:
    """What the database has to say about values: its time, and the stored values of fields. Each is queried once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._values: dict[str, list[str]] = {}

    @functools.cached_property
    def now(self) -> float:
        return now(self._session)

    def values(self, field: Field) -> list[str]:
        """The stored values of a field, sorted."""
        if field.name not in self._values:
            found = self._session.scalars(field.stored)
            self._values[field.name] = sorted({str(each) for each in found if each is not None})
        return self._values[field.name]


@dataclass(frozen=True)
class Field:
    """A name: its column or, with `inside`, the member of a column of JSON.

    choices: all accepted values. stored: a query of the stored values, if others are unknown. member: a condition on
    rows from one on `column`, of which a row has several values. is_commit: the first digits of a value suffice.
    """

    name: str
    kind: FilterKind
    description: str
    column: Any = None
    inside: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    stored: Any = None
    member: Callable[[Condition], Condition] | None = None
    nullable: bool = True
    is_commit: bool = False

    @property
    def operators(self) -> tuple[str, ...]:
        return OPERATORS[self.kind]

    def read(self, value: Value, operator: str, stored: Stored) -> Any:
        """The value as its column has it. Raises Refused."""
        if value.is_null:
            if not self.nullable or operator not in ("=", "!="):
                raise Refused("null takes = and !=" if self.nullable else f"{self.name} is never null")
            return None
        found = READ[self.kind](self, value, stored)
        if self.inside == (self.name,) and self.name in FIELDS and operator in EQUALITY:
            _check_setting(self.name, found)
        if self.kind == "text" and operator != "~":
            self._check_stored(found, stored)
        return found

    def _check_stored(self, value: str, stored: Stored) -> None:
        if self.stored is None or (self.name == "model" and value in MODELS):
            return
        known = stored.values(self)
        place = bisect.bisect_left(known, value)
        found = known[place : place + 1]  # the value itself, or the first one that begins with it
        if found != [value] and not (self.is_commit and found and _begins(found[0], value)):
            among = ", ".join(known[:MOST_NAMED]) + (", ..." if len(known) > MOST_NAMED else "")
            raise Refused(f"a stored value, which {value!r} is not{near(value, known)}: {among or 'there is none'}")

    def test(self, operator: str, values: Sequence[Any]) -> Condition:
        """SQL of a comparison with values of `read`."""
        if operator == "!=":
            return not_(self.test("=", values))
        found = self._test(operator, values)
        return found if self.member is None else self.member(found)

    def _test(self, operator: str, values: Sequence[Any]) -> Condition:
        if operator in ("=", "in"):
            return or_(*(self._equals(value) for value in values))
        value = values[0]
        if operator == "~":
            found: Condition = (self._text if self.inside else self.column).icontains(value, autoescape=True)
            return found
        here = self._number if self.inside else self.column
        by_operator: dict[str, Condition] = {
            "<": here < value, "<=": here <= value, ">": here > value, ">=": here >= value,
        }  # fmt: skip
        return by_operator[operator]

    @property
    def _text(self) -> ColumnElement[Any]:
        text = json_text(self.column, *self.inside)
        return func.coalesce(text, json.dumps(LATER_SETTINGS[self.name])) if self._may_lack else text

    @property
    def _number(self) -> ColumnElement[Any]:
        number, default = json_number(self.column, *self.inside), LATER_SETTINGS.get(self.name)
        is_number = isinstance(default, int | float) and not isinstance(default, bool)
        if not (self._may_lack and is_number):
            return number
        return case((json_text(self.column, *self.inside).is_(None), default), else_=number)

    @property
    def sorted_by(self) -> tuple[Any, Kind]:
        """SQL by which rows are sorted, and the kind of its values: false is 0, true is 1."""
        if self.kind == "boolean":
            if self.inside:
                return case((self._text == "true", 1), (self._text == "false", 0)), int
            return cast(self.column, Integer), int
        if self.kind in ("text", "choice"):
            return (json_value(self.column, *self.inside) if self.inside else self.column), str
        if self.inside:
            return self._number, float
        return self.column, int if self.kind == "integer" else float

    @property
    def _may_lack(self) -> bool:
        """Whether configurations of results lack this setting at its default."""
        return self.inside == (self.name,) and self.name in LATER_SETTINGS

    def _equals(self, value: Any) -> Condition:
        if not self.inside:
            if value is None:
                return self.column.is_(None)  # type: ignore[no-any-return]
            return has_commit(self.column, value) if self.is_commit else self.column == value
        text = self._text
        if value is None:
            return or_(text.is_(None), text == "null")
        return text.in_(spellings(preset_name(value) if self.name == "model" else value))

    def described(self, stored: Stored) -> FilterName:
        choices: Iterable[Any] = self.choices
        if self.name == "model":
            choices = MODELS
        elif self.stored is not None:
            choices = stored.values(self)[:MOST_NAMED]
        return FilterName(
            name=self.name, kind=self.kind, operators=list(self.operators), choices=list(choices),
            description=self.description,
        )  # fmt: skip


def has_commit(column: Any, commit: str) -> Condition:
    """SQL: the column has the commit, or begins with these digits of it."""
    whole: Condition = column == commit
    return whole if len(commit) < SHORT else whole | column.startswith(commit, autoescape=True)


def _begins(commit: str, digits: str) -> bool:
    return len(digits) >= SHORT and commit.startswith(digits)


MODELS = frozenset((*model_names(), *networks.KNOWN))
Fields = Mapping[str, Field]


def fields(*every: Iterable[Field]) -> Fields:
    """By their names; the first of a name counts."""
    found: dict[str, Field] = {}
    for field in itertools.chain(*every):
        found.setdefault(field.name, field)
    return found


def settings_in(column: Any, stored: Callable[[Any], SelectBase]) -> list[Field]:
    """A field for each setting, in a column of configurations. stored: the query of an expression's stored values."""
    found = []
    for name in NAMES:
        kind, inside = _setting_kind(name), (name, "name") if name == "model" else (name,)
        values = stored(json_value(column, *inside)) if kind == "text" else None
        choices = tuple(FIELDS[name].metadata.get("choices", ())) if kind == "choice" else ()
        found.append(Field(name, kind, FIELDS[name].metadata["help"], column, inside, choices, values))
    return found


def _setting_kind(name: str) -> FilterKind:
    if is_integer(name):
        return "integer"
    if "choices" in FIELDS[name].metadata:
        return "choice"
    if name == "model" or field_type(name) in (str, str | None):
        return "text"
    return {float: "number", bool: "boolean"}.get(field_type(name), "json")  # type: ignore[return-value]


def resolved(tree: Tree, known: Fields, stored: Stored) -> Tree:
    """The expression with values as its columns have them. Raises Refused."""
    match tree:
        case Not(part):
            return Not(resolved(part, known, stored))
        case Every(parts):
            check_once(parts, known)
            return Every(tuple(resolved(part, known, stored) for part in parts))
        case Either(parts):
            return Either(tuple(resolved(part, known, stored) for part in parts))
    if tree.name not in known:
        raise Refused(f"there is no {tree.name!r}{near(tree.name, known)}; names are {', '.join(known)}")
    field = known[tree.name]
    if tree.operator not in field.operators:
        raise Refused(f"{field.name} takes {' '.join(field.operators)}, not {tree.operator}")
    try:
        values = tuple(field.read(value, tree.operator, stored) for value in tree.values)
    except Refused as refusal:
        raise Refused(f"{field.name}: {refusal}") from None
    return Comparison(tree.name, tree.operator, values)


def check_once(parts: Sequence[Tree], known: Fields) -> None:
    """Check that no name of one value must equal two. Raises Refused."""
    once: set[str] = set()
    for part in parts:
        if isinstance(part, Comparison) and part.operator == "=":
            field = known.get(part.name)
            if part.name in once and (field is None or field.member is None):
                raise Refused(f"{part.name} equals one value at a time; several: {part.name} in (A, B)")
            once.add(part.name)


def condition(tree: Tree, known: Fields) -> Condition:
    """SQL of an expression of `resolved`."""
    match tree:
        case Not(part):
            return not_(condition(part, known))
        case Every(parts):
            return and_(*(condition(part, known) for part in parts))
        case Either(parts):
            return or_(*(condition(part, known) for part in parts))
    return known[tree.name].test(tree.operator, tree.values)


def names_of(tree: Tree) -> set[str]:
    return {comparison.name for comparison in comparisons(tree)}


def near(given: str, known: Iterable[str]) -> str:
    """A similar name, as a question."""
    found = difflib.get_close_matches(given, list(known), 1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _check_setting(name: str, value: Any) -> None:
    if errors := wrong(name, value):
        raise Refused(errors[0].accepted)


def _choice(field: Field, value: Value, _: Stored) -> str:
    if value.text not in field.choices:
        raise Refused(f"one of {', '.join(field.choices)}{near(value.text, field.choices)}")
    return value.text


def _number(field: Field, value: Value, _: Stored) -> float:
    try:
        found = None if value.quoted else json.loads(value.text)
    except (ValueError, RecursionError):
        found = None
    # The size first: no float is as large as integers may be.
    if isinstance(found, bool) or not isinstance(found, int | float) or abs(found) > MOST or not math.isfinite(found):
        unit = " of seconds" if field.name.endswith("_s") and not field.name.endswith("_per_s") else ""
        raise Refused(f"a number{unit}, not {value.text!r}")
    if field.kind == "integer" and isinstance(found, float):
        raise Refused(f"an integer, not {value.text}")
    return found


def _text(_: Field, value: Value, __: Stored) -> str:
    if "\0" in value.text or any("\ud800" <= character <= "\udfff" for character in value.text):
        raise Refused("text without U+0000 and without halves of characters (U+D800 to U+DFFF)")
    return value.text


def _boolean(_: Field, value: Value, __: Stored) -> bool:
    if value.quoted or value.text not in ("true", "false"):
        raise Refused(f"true or false, not {value.text!r}")
    return value.text == "true"


def _json(field: Field, value: Value, _: Stored) -> Any:
    if field.name == "cores" and not value.text.startswith("["):
        _check_setting(field.name, value.text)
        return list(parse_cores(value.text))
    if field.name == "prompt" and not value.text.startswith("["):
        _check_setting(field.name, value.text)
        return list(parse_prompt(value.text))
    try:
        return json.loads(value.text)
    except (ValueError, RecursionError):
        raise Refused(f"JSON, not {value.text!r}") from None


def instant(text: str, at: float) -> float:
    """Seconds since 1970. Raises Refused."""
    ago_s = durations.seconds(text)
    if ago_s is not None:
        return at - ago_s
    try:
        given = datetime.datetime.fromisoformat(text)
        seconds = given.timestamp()
    except (OverflowError, ValueError):
        raise Refused(INSTANT) from None
    if given.tzinfo is None:
        raise Refused(f"{INSTANT}; an instant needs a time zone")
    return seconds


READ: Mapping[FilterKind, Callable[[Field, Value, Stored], Any]] = {
    "integer": _number,
    "number": _number,
    "text": _text,
    "choice": _choice,
    "boolean": _boolean,
    "instant": lambda _, value, stored: instant(value.text, stored.now),
    "json": _json,
}
