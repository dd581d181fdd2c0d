"""Options by which lists and exports are filtered and sorted, and the columns that are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from taskloom.contract.runs import RunState

F = TypeVar("F", bound=Callable[..., Any])
SHORT = {"created": "created_at", "started": "started_at", "finished": "finished_at", "median_step": "median_step_s"}
INSTANT = "an instant (2026-11-22T10:00:00Z), or how long ago (90s, 12h, 7d)"


class Sort(click.ParamType[str]):
    """A column name, which the server checks; a leading - means descending. `finished` stands for `finished_at`."""

    name = "[-]COLUMN"

    def convert(self, value: str, parameter: click.Parameter | None, context: click.Context | None) -> str:
        del parameter, context
        minus, name = ("-", value[1:]) if value.startswith("-") else ("", value)
        return minus + SHORT.get(name, name)


def sort_option(default: str = "") -> Callable[[F], F]:
    """--sort [-]COLUMN"""
    text = "sort by this column, one of the names that --filter knows; -COLUMN: descending"
    return click.option("--sort", type=Sort(), help=f"{text}  [default: {default}]" if default else text)


def period_options(command: F) -> F:
    """--since, --until, --finished-since, --finished-until"""
    for name, text in (
        ("--finished-until", "ended before"),
        ("--finished-since", "ended at or after"),
        ("--until", "submitted before"),
        ("--since", "submitted at or after"),
    ):
        command = click.option(name, metavar="INSTANT", help=f"{text} {INSTANT}")(command)
    return command


def commit_options(command: F) -> F:
    """--commit, --branch, --code-version: of the commit that the submitter named"""
    options = (
        click.option("--commit", help="only of this commit, as submitted; its first 7 digits suffice"),
        click.option("--branch", help="only of this branch, as submitted"),
        click.option("--code-version", "version", help="only of this version, as submitted"),
    )
    for option in reversed(options):
        command = option(command)
    return command


def filter_option(what: str, example: str = "median_step_s < 0.1 and scheduler = task") -> Callable[[F], F]:
    """--filter EXPRESSION"""
    return click.option(
        "--filter", multiple=True, metavar="EXPRESSION",
        help=f"only {what} that match, such as '{example}'; a name or value that does "
        "not exist is an error, which lists those that do",
    )  # fmt: skip


def run_options(command: F) -> F:
    """Options that filter and sort runs."""
    options = (
        click.option("--experiment", "experiment_id", type=int, help="only runs of this experiment"),
        click.option("--state", multiple=True, type=click.Choice(get_args(RunState)),
                     help="only runs in this state; may be repeated"),
        filter_option("runs"),
        click.option("--node", help="only runs whose result is from this node"),
        click.option("--label", multiple=True, metavar="KEY=VALUE", help="only runs that require this label"),
        click.option("--flagged/--clean", default=None, help="only runs with, or without, flagged steps"),
        commit_options,
        click.option("--trainer-commit", help="only runs by a trainer of this commit; its first 7 digits suffice"),
        click.option("--trainer-branch", help="only runs by a trainer of this branch"),
        click.option("--trainer-version", help="only runs by this version of the trainer"),
        period_options,
        sort_option(),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def run_query(given: dict[str, Any]) -> dict[str, Any]:
    """The options of `run_options` as filters of Client.runs."""
    query = {name: value for name, value in given.items() if value not in (None, ())}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in query.items()}
