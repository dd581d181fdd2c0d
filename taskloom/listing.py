"""Options by which lists and exports are filtered and sorted, and the columns that are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

import click

from taskloom.contract.runs import RunState

F = TypeVar("F", bound=Callable[..., Any])
SORTS = ("id", "created_at", "started_at", "finished_at", "median_step_s")
INSTANT = "an instant (2026-11-22T10:00:00Z), or how long ago (90s, 12h, 7d)"


class Sort(click.ParamType[str]):
    """A column, with - before it: descending. `finished` is `finished_at`."""

    name = "[-]COLUMN"

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns

    def convert(self, value: str, parameter: click.Parameter | None, context: click.Context | None) -> str:
        minus, asked = ("-", value[1:]) if value.startswith("-") else ("", value)
        for column in self._columns:
            if asked in (column, column.removesuffix("_at"), column.removesuffix("_s")):
                return minus + column
        return self.fail(f"{asked!r} is none of {', '.join(self._columns)}", parameter, context)


def period_options(command: F) -> F:
    """--since, --until, --finished-since, --finished-until"""
    for name, told in (
        ("--finished-until", "that ended before"),
        ("--finished-since", "that ended from"),
        ("--until", "submitted before"),
        ("--since", "submitted from"),
    ):
        command = click.option(name, metavar="INSTANT", help=f"{told} {INSTANT}")(command)
    return command


def run_options(command: F) -> F:
    """What chooses and sorts runs."""
    options = (
        click.option("--experiment", "experiment_id", type=int, help="only this experiment's"),
        click.option("--state", multiple=True, type=click.Choice(get_args(RunState)), help="only in these states"),
        click.option("--filter", "settings", multiple=True, metavar="SETTING=VALUE", help="as scheduler=task"),
        click.option("--node", help="only whose result was made there"),
        click.option("--label", multiple=True, metavar="KEY=VALUE", help="only whose experiment requires it"),
        click.option("--flagged/--clean", default=None, help="only with, or without, flagged steps"),
        period_options,
        click.option("--sort", type=Sort(SORTS), help="-COLUMN: descending; among " + ", ".join(SORTS)),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def run_query(given: dict[str, Any]) -> dict[str, Any]:
    """The options of `run_options` as filters of Client.runs."""
    query = {name: value for name, value in given.items() if value not in (None, ())}
    if "settings" in query:
        query["filter"] = query.pop("settings")
    return {name: list(value) if isinstance(value, tuple) else value for name, value in query.items()}
