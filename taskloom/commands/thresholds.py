"""`taskloom thresholds`: Set, list and delete thresholds of step times in the history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpt2core.spec.wording import counted
from taskloom import analysis_tables
from taskloom.analysis import thresholds as limits
from taskloom.analysis.wording import settings
from taskloom.commands.output import connect, json_option, limit_option, print_items, print_json, say, server_option
from taskloom.commands.report import read_thresholds
from taskloom.contract.thresholds import ThresholdRequest
from taskloom.errors import EXIT_WORK_FAILED

if TYPE_CHECKING:
    from taskloom.client import Client
    from taskloom.contract.series import SeriesRow

F = TypeVar("F", bound=Callable[..., Any])


def series_options(command: F) -> F:
    """--series or --run, of which a command needs one."""
    for option in (
        click.option("--run", "run_id", type=int, metavar="RUN", help="the series of this run"),
        click.option("--series", "series_id", type=int, metavar="ID", help="the series, as `list` shows it"),
    ):
        command = option(command)
    return command


@click.group()
def thresholds() -> None:
    """Set, list and delete thresholds of step times in the history.

    A series is all runs of one configuration on one machine. Its newest experiment is judged when its threshold is set,
    and each later one when it has ended; an alert is raised if the runs are outside.
    """


@thresholds.command("set")
@series_options
@click.option("--reference", "reference_s", type=float, required=True, metavar="S",
              help="expected median step time in seconds")  # fmt: skip
@click.option("--upper", type=float, metavar="PERCENT", help="longest that is allowed above the reference, such as 5")
@click.option("--lower", type=float, metavar="PERCENT", help="shortest that is allowed, such as -10")
@server_option
@json_option
def set_threshold(
    series_id: int | None,
    run_id: int | None,
    reference_s: float,
    upper: float | None,
    lower: float | None,
    server: str,
    as_json: bool,
) -> None:
    """Set the threshold of a series, or replace it."""
    with connect(server) as client:
        chosen = _series(client, series_id, run_id)
        _set(client, chosen, limits.StepLimits(reference_s, lower, upper))
        _print(client, [chosen], as_json)


@thresholds.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--node", metavar="NAME", help="only series on this machine")
@server_option
@json_option
def load(file: Path, node: str | None, server: str, as_json: bool) -> None:
    """Set the thresholds of FILE, which is that of `report --thresholds`, for every series with their settings.

    The exit code is 1 if a threshold fits no series.
    """
    chosen: list[int] = []
    missing = False
    with connect(server) as client:
        for threshold in read_thresholds(file, "FILE"):
            found = [series.id for series in client.series(filter=dict(threshold.settings), node=node)]
            for series_id in found:
                _set(client, series_id, threshold)
            chosen += found
            if not found:
                missing = True
                say(f"no series has {settings(threshold.settings) or 'any settings'}", err=True)
        _print(client, chosen, as_json)
    if missing:
        raise click.exceptions.Exit(EXIT_WORK_FAILED)


@thresholds.command("list")
@limit_option
@server_option
@json_option
def list_thresholds(limit: int, server: str, as_json: bool) -> None:
    """List the series that have a threshold, the newest run first."""
    with connect(server) as client:
        print_items(client.series(threshold=True), limit, analysis_tables.thresholds, as_json)


@thresholds.command()
@series_options
@server_option
@json_option
def delete(series_id: int | None, run_id: int | None, server: str, as_json: bool) -> None:
    """Delete the threshold of a series; its open alert is dismissed."""
    with connect(server) as client:
        chosen = _series(client, series_id, run_id)
        client.delete_threshold(chosen)
    if as_json:
        print_json({"series_id": chosen, "deleted": True})
    else:
        click.echo(f"series {chosen} has no threshold any more")


def _series(client: Client, series_id: int | None, run_id: int | None) -> int:
    """The series that the options name. Raises UsageError or BadParameter."""
    if (series_id is None) == (run_id is None):
        raise click.UsageError("name the series by either --series or --run")
    if series_id is not None:
        return series_id
    found: SeriesRow | None = next(client.series(run_id=run_id), None)
    if found is None:
        raise click.BadParameter(f"run {run_id} has no result, so it is in no series", param_hint="--run")
    return found.id


def _set(client: Client, series_id: int, given: limits.StepLimits) -> None:
    # The server checks the values.
    request = ThresholdRequest.model_construct(
        reference_s=given.reference_s, lower=given.lower, upper=given.upper
    )
    client.set_threshold(series_id, request)


def _print(client: Client, chosen: list[int], as_json: bool) -> None:
    """Print what was set, and which series are outside now."""
    found = [series for series in client.series(threshold=True) if series.id in chosen]
    if as_json:
        print_json(found)
        return
    click.echo(f"{counted(len(chosen), 'threshold')} set; see: taskloom thresholds list")
    for series in found:
        for alert in series.alerts:
            if alert.kind == "threshold" and alert.state in limits.EXCEEDED:
                say(alert.reason)
