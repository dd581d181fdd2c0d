"""The grammar of filters: `median_step_s < 0.1 and scheduler = task` (docs/reference/api.md#filters).

This module knows no names; what a name accepts is in `fields.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyparsing import (
    CaselessKeyword,
    DelimitedList,
    Forward,
    Group,
    MatchFirst,
    ParseBaseException,
    ParserElement,
    ParseResults,
    Regex,
    StringEnd,
    Suppress,
    ZeroOrMore,
)

MOST_CHARACTERS = 2000
MOST_PARENTHESES = 20  # the parser calls itself for each
LETTER = r'[^\s()=!<>~,"\[\]{}]'  # of a word
NO_KEYWORD = f"(?!(?i:and|or|not|in)(?!{LETTER}))"
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "~", "in")
EXAMPLE = "median_step_s < 0.1 and scheduler in (task, fork-join)"


class Unparsed(ValueError):
    """The text is not in the grammar; the message says what is accepted where."""


@dataclass(frozen=True)
class Value:
    """A value as it is written. Quotes make it text."""

    text: str
    quoted: bool = False

    @property
    def is_null(self) -> bool:
        return self.text == "null" and not self.quoted


@dataclass(frozen=True)
class Comparison:
    """A name compared with a value, or with several (`in`). The values are Value until `fields.resolved` reads them."""

    name: str
    operator: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Every:
    """All parts hold."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Either:
    """At least one part holds."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Not:
    """The part does not hold."""

    part: Tree


Tree = Comparison | Every | Either | Not


def parse(text: str) -> Tree:
    """Raises Unparsed."""
    if len(text) > MOST_CHARACTERS or text.count("(") > MOST_PARENTHESES:
        raise Unparsed(f"at most {MOST_CHARACTERS} characters and {MOST_PARENTHESES} pairs of parentheses")
    try:
        found: Tree = GRAMMAR.parse_string(text)[0]
    except ParseBaseException as error:
        rest = text[error.loc : error.loc + 20].strip()
        place = f"before {rest!r}" if rest else "at the end"
        expected = error.msg.removeprefix("Expected ").removeprefix(", found end of text")
        raise Unparsed(f"{expected} {place}; such as {EXAMPLE}") from None
    return found


def comparisons(tree: Tree) -> Iterator[Comparison]:
    """Every comparison of an expression."""
    match tree:
        case Comparison():
            yield tree
        case Not(part):
            yield from comparisons(part)
        case Every(parts) | Either(parts):
            for part in parts:
                yield from comparisons(part)


def _grammar() -> ParserElement:
    also, either, negated, among = (CaselessKeyword(word) for word in ("and", "or", "not", "in"))
    opening, closing = (Suppress(mark).set_name(mark) for mark in "()")
    name = Regex(rf"{NO_KEYWORD}[A-Za-z_][A-Za-z0-9_]*")
    quoted = Regex(r'"(?:[^"\\\n]|\\["\\/bfnrtu])*"').add_parse_action(_quoted)
    single = Regex(rf"'[^'\n]*'(?!{LETTER})").add_parse_action(lambda found: Value(found[0][1:-1], quoted=True))
    structure = Regex(r"\[[^\[\]]*\]|\{[^{}]*\}").add_parse_action(lambda found: Value(found[0]))
    word = Regex(f"{NO_KEYWORD}{LETTER}+").add_parse_action(lambda found: Value(found[0]))
    value = MatchFirst([each.set_name("a value") for each in (quoted, single, structure, word)]).set_name("a value")
    values = opening - Group(DelimitedList(value)) - closing
    operator = Regex("==|!=|<=|>=|=|<|>|~").add_parse_action(lambda found: "=" if found[0] == "==" else found[0])
    compared = MatchFirst([operator - Group(value), among - values]).set_name("one of " + " ".join(OPERATORS))
    comparison = (name - compared).add_parse_action(lambda found: Comparison(found[0], found[1], tuple(found[2])))
    whole = Forward()
    operand = MatchFirst([opening - whole - closing, comparison]).set_name("a name, not or (")
    factor = (ZeroOrMore(negated) + operand).add_parse_action(_negated)
    conjunction = (factor + ZeroOrMore(Suppress(also) - factor)).add_parse_action(_joined(Every))
    whole <<= (conjunction + ZeroOrMore(Suppress(either) - conjunction)).add_parse_action(_joined(Either))
    return (whole + StringEnd().set_name("and or or")).streamline()


def _quoted(found: ParseResults) -> Value:
    try:
        return Value(json.loads(found[0]), quoted=True)
    except ValueError:
        return Value(found[0][1:-1], quoted=True)


def _negated(found: ParseResults) -> Tree:
    tree: Tree = found[-1]
    return Not(tree) if len(found) % 2 == 0 else tree


def _joined(kind: type[Every] | type[Either]) -> Any:
    return lambda found: found[0] if len(found) == 1 else kind(tuple(found))


GRAMMAR = _grammar()
