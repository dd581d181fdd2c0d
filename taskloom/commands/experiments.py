"""`taskloom experiments`: List, show, edit and cancel experiments; their analyses and reports."""

from __future__ import annotations

from typing import Any, get_args

import click

from gpt2core.spec.phases import MODES
from gpt2core.spec.wording import counted
from taskloom import listing, tables
from taskloom.analysis import node_time
from taskloom.client import Client
from taskloom.commands import analysis
from taskloom.commands.output import (
    connect,
    console,
    error_console,
    json_option,
    limit_option,
    print_items,
    print_json,
    say_warnings,
    server_option,
    verbose_option,
)
from taskloom.commands.waiting import to_its_end, wait_option
from taskloom.contract.analysis import AlertState
from taskloom.contract.experiments import ExperimentChange, ExperimentDetail


@click.group()
def experiments() -> None:
    """List, show, edit and cancel experiments; their analyses and reports."""


@experiments.command("list")
@click.option(
    "--state", multiple=True, type=click.Choice(["active", "finished", "cancelled"]), help="only in this state"
)
@click.option("--name", help="only with this text in the name")
@click.option("--submitter", metavar="WHO", help="only submitted by key:ID, user:NAME, local, alerts or calibrations")
@click.option("--group", help="only submitted by a key or user of this group")
@click.option("--label", multiple=True, metavar="KEY=VALUE", help="only experiments that require this label")
@click.option("--tag", multiple=True, help="only with this tag; repeated: with all of them")
@listing.commit_options
@listing.filter_option("experiments")
@listing.period_options
@listing.sort_option("-id")
@limit_option
@server_option
@json_option
def list_experiments(limit: int, server: str, as_json: bool, **chosen: Any) -> None:
    """List experiments, newest first, with progress, times and submitter."""
    with connect(server) as client:
        print_items(client.experiments(**listing.run_query(chosen)), limit, tables.experiments, as_json)


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@server_option
@json_option
def show(experiment_id: int, server: str, as_json: bool) -> None:
    """Show an experiment and its runs."""
    with connect(server) as client:
        _print(client, client.experiment(experiment_id), as_json)


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@click.option("--name", help="new name")
@click.option("--tag", "tags", multiple=True, help="add this tag; may be repeated")
@click.option("--untag", "untags", multiple=True, metavar="TAG", help="remove this tag")
@click.option("--notes", help="free text about the experiment")
@server_option
@json_option
def edit(
    experiment_id: int,
    name: str | None,
    tags: tuple[str, ...],
    untags: tuple[str, ...],
    notes: str | None,
    server: str,
    as_json: bool,
) -> None:
    """Change the name, tags or notes of an experiment."""
    if name is None and notes is None and not tags and not untags:
        raise click.UsageError("give --name, --tag, --untag or --notes")
    with connect(server) as client:
        fields: dict[str, Any] = {"name": name, "notes": notes}
        if tags or untags:
            known = client.experiment(experiment_id).tags
            fields["tags"] = [tag for tag in dict.fromkeys([*known, *tags]) if tag not in untags]
        given = {key: value for key, value in fields.items() if value is not None}
        # The server checks the values.
        _print(client, client.change_experiment(experiment_id, ExperimentChange.model_construct(**given)), as_json)


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@server_option
@json_option
def cancel(experiment_id: int, server: str, as_json: bool) -> None:
    """Cancel every run of an experiment that has not ended."""
    with connect(server) as client:
        _print(client, client.cancel_experiment(experiment_id), as_json)


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@wait_option
@server_option
@json_option
def retry(experiment_id: int, wait: bool, server: str, as_json: bool) -> None:
    """Queue every failed, cancelled or quarantined run of an experiment again."""
    with connect(server, waits=wait) as client:
        _shown(client, client.retry_experiment(experiment_id), wait, as_json)


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@click.option(
    "--repetitions", type=click.IntRange(1, 1000), required=True, help="number of further repetitions of every variant"
)
@wait_option
@server_option
@json_option
def extend(experiment_id: int, repetitions: int, wait: bool, server: str, as_json: bool) -> None:
    """Add repetitions to a finished experiment, on the same node.

    From then on its intervals are those that hold at any time.
    """
    with connect(server, waits=wait) as client:
        _shown(client, client.extend_experiment(experiment_id, repetitions), wait, as_json)


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@limit_option
@server_option
@json_option
def changes(experiment_id: int, limit: int, server: str, as_json: bool) -> None:
    """Show an experiment's history: who changed the state of its runs, when and why, oldest first."""
    with connect(server) as client:
        print_items(client.experiment_changes(experiment_id), limit, tables.changes, as_json)


@experiments.command()
@click.option("--state", type=click.Choice(get_args(AlertState)), help="only in this state")
@click.option("--mode", type=click.Choice(tuple(MODES)), help="only of runs in this mode")
@limit_option
@server_option
@json_option
def alerts(state: AlertState | None, mode: str | None, limit: int, server: str, as_json: bool) -> None:
    """List changes to slower steps with what fresh runs say about them, and runs outside thresholds, newest first."""
    with connect(server) as client:
        print_items(client.alerts(state, mode), limit, tables.alerts, as_json)


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@verbose_option
@server_option
@json_option
def scaling(experiment_id: int, verbose: bool, server: str, as_json: bool) -> None:
    """Show step time, speedup and efficiency of every variant."""
    with connect(server) as client:
        answer = client.scaling(experiment_id)
    if as_json:
        print_json(answer)
        return
    console().print(tables.scaling(answer))
    if answer.goals:
        console().print(tables.goals(answer.goals))
    console().say(answer.base)
    say_warnings(error_console(), answer.warnings, answer.brief, verbose)


def _shown(client: Client, experiment: ExperimentDetail, wait: bool, as_json: bool) -> None:
    """Print an experiment whose runs were just queued, now or, to wait, at its end."""
    if wait:
        to_its_end(client, experiment, as_json)
    else:
        _print(client, experiment, as_json)


def _print(client: Client, experiment: ExperimentDetail, as_json: bool) -> None:
    if as_json:
        print_json(experiment)
        return
    out = console()
    out.print(tables.experiments([experiment]))
    if experiment.verdict is not None:
        lead = "the question: " if experiment.verdict.primary else "verdict: "
        out.say(lead + experiment.verdict.sentence)
    if experiment.notes:
        out.say(experiment.notes)
    out.print(tables.runs(client.runs(experiment.id)))
    spent = node_time.sentence(experiment.node_time, experiment.node_time_missing)
    if spent and experiment.by_state.get("succeeded"):
        out.say(spent)
    if experiment.stopping is not None:
        out.say(tables.stopping(experiment.stopping))
    if experiment.extended:
        added = counted(experiment.extended, "repetition")
        out.say(f"extended by {added}: its intervals are those that hold at any time")
    if experiment.tuning is not None:
        found = client.tuning(experiment.id)
        said = [] if experiment.verdict is not None else [found.sentence]
        out.say(*tables.tuning(found), *said)


for command in analysis.COMMANDS:
    experiments.add_command(command)
