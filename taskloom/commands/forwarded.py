"""Options of a command that another of our processes parses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from taskloom.contract.options import Option

F = TypeVar("F", bound=Callable[..., Any])


def forwarded(options: Iterable[Option]) -> Callable[[F], F]:
    """A decorator that gives a command these options; their values are text."""

    def decorate(command: F) -> F:
        for each in reversed(tuple(options)):
            # To click, None would be a value, so that no option would be missing.
            default: dict[str, Any] = {} if each.default is None else {"default": each.default}
            command = click.option(
                *each.flags, each.name.replace("-", "_"), help=each.text, metavar=each.metavar, type=_type(each),
                is_flag=not each.takes_value, multiple=each.several, required=each.required,
                show_default=bool(each.default), **default,
            )(command)  # fmt: skip
        return command

    return decorate


def _type(option: Option) -> click.Choice[str] | click.FloatRange | click.IntRange | None:
    if option.choices:
        return click.Choice(option.choices)
    if option.most is None:
        return None
    if option.real:
        return click.FloatRange(option.least, option.most, min_open=True)
    return click.IntRange(option.least, option.most)


def arguments(options: Iterable[Option], given: Mapping[str, Any]) -> list[str]:
    """The given options as arguments of the other process."""
    found: list[str] = []
    for each in options:
        value = given[each.name.replace("-", "_")]
        if not each.takes_value:
            found += [each.flag] * bool(value)
        else:
            values = value if each.several else () if value is None else (value,)
            for one in values:
                found += [each.flag, str(one)]
    return found
