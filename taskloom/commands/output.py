"""Options and output that commands share."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpt2core.node.files import check_output
from taskloom.contract.logs import printable_lines
from taskloom.contract.options import DEFAULT_SERVER

if TYPE_CHECKING:
    from rich.table import Table

    from taskloom.client import Client
    from taskloom.contract.experiments import ExperimentDetail
    from taskloom.local_run import LocalEnding
    from taskloom.screen import Screen

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

json_option = click.option("--json", "as_json", is_flag=True, help="print JSON")
server_option = click.option(
    "--server", metavar="URL", envvar="TASKLOOM_SERVER", default=DEFAULT_SERVER, show_default=True, show_envvar=True
)
VERDICTS = ("faster", "slower", "same", "undecided", "refused")


class Verdicts(click.ParamType[tuple[str, ...]]):
    """Verdicts, separated by commas."""

    name = "VERDICT,..."

    def convert(
        self, value: str | tuple[str, ...], parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):  # click converts defaults as well
            return value
        found = tuple(part.strip() for part in value.split(","))
        for part in found:
            if part not in VERDICTS:
                self.fail(f"{part!r} is not one of {', '.join(VERDICTS)}", parameter, context)
        return found


class OutputFile(click.Path):
    """A file that a command writes. One that cannot be written is refused before the command's work."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        del context
        path = Path(value)
        check_output("file" if parameter is None else str(parameter.name), path)
        return path


fail_on_option = click.option(
    "--fail-on", type=Verdicts(), default=(), help="exit 1 on these verdicts, such as slower,refused"
)
verbose_option = click.option("-v", "--verbose", is_flag=True, help="list every disturbed run")
limit_option = click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1), help="maximum number of items"
)


def say(text: str, err: bool = False) -> None:
    """Print lines, perhaps of other people: they control no terminal."""
    click.echo(printable_lines(text), err=err)


def connect(server: str, waits: bool = False, check: Callable[[], None] = lambda: None) -> Client:
    """A client of a command. It waits for a server on this machine that is just starting. waits: the command waits for
    runs, and outlasts a server that restarts. check: called while the server does not answer; may raise."""
    from taskloom.client import Client
    from taskloom.patience import RESTARTING_S, Patience, starting_s

    patience = Patience(starting_s(), RESTARTING_S if waits else 0.0, lambda text: say(text, err=True), check)
    return Client(server, patience=patience)


def print_items(items: Iterable[T], limit: int, as_table: Callable[[Iterable[T]], Table], as_json: bool) -> None:
    """Print the first items of a list as a table or as a JSON array."""
    found = list(itertools.islice(items, limit))
    if as_json:
        print_json(found)
    else:
        console().print(as_table(found))


def print_json(value: Any) -> None:
    """Print a model, a list of models or plain JSON on standard output."""
    click.echo(json.dumps(_plain(value), indent=2 if sys.stdout.isatty() else None))


def _plain(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def show_answer(answer: object, shown: Iterable[Table | str], as_json: bool) -> None:
    """Print an answer as JSON, or the tables and lines in which it is shown."""
    if as_json:
        print_json(answer)
        return
    out = console()
    for part in shown:
        if isinstance(part, str):
            out.say(part)
        else:
            out.print(part)


def say_warnings(out: Screen, complete: Sequence[str], brief: Sequence[str], verbose: bool) -> None:
    """Print warnings, with disturbed runs in one line unless `verbose`."""
    for warning in complete if verbose else brief:
        more = "" if warning in complete else ": -v lists them"
        out.say(f"warning: {warning}{more}")


def shown_at(experiment: ExperimentDetail, server: str) -> str:
    """Where an experiment is shown, as a line."""
    return f"see: {server.rstrip('/')}/ui/experiment?id={experiment.id}"


def verdict_sentence(experiment: ExperimentDetail) -> str:
    """The verdict of an ended experiment."""
    return "no run has succeeded" if experiment.verdict is None else experiment.verdict.sentence


def say_verdict(out: Screen, experiment: ExperimentDetail, server: str) -> None:
    """Print where an ended experiment is shown and, last, its verdict in a sentence."""
    out.say(shown_at(experiment, server), f"verdict: {verdict_sentence(experiment)}")


def failure(message: str, document: Mapping[str, Any], exit_code: int, as_json: bool) -> click.exceptions.Exit:
    """Print an error on standard error, as JSON if requested; return the exception that exits with this code."""
    say(json.dumps(dict(document)) if as_json else f"error: {message}", err=True)
    return click.exceptions.Exit(exit_code)


def result_of(ending: LocalEnding, otherwise: str, as_json: bool) -> dict[str, Any]:
    """The result of a child process. Without one, raises `failure` with its error, or `otherwise`."""
    if ending.result is None:
        error = dict(ending.error or {})
        message = str(error.pop("detail", otherwise))
        raise failure(message, {"error": message, **error}, ending.exit_code, as_json)
    return ending.result


def console() -> Screen:
    """Console for tables: as wide as the terminal, or wide enough for most tables."""
    from taskloom.screen import Screen

    return Screen() if sys.stdout.isatty() else Screen(width=160)


def error_console() -> Screen:
    """For progress and notes: standard error."""
    from taskloom.screen import Screen

    return Screen(stderr=True)
