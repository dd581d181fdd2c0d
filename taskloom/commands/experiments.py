"""`taskloom experiments`: what was asked for, and how it scales."""

from __future__ import annotations

import itertools

import click

from taskloom import tables
from taskloom.client import Client
from taskloom.commands import analysis
from taskloom.commands.output import console, error_console, json_option, print_json, server_option
from taskloom.contract.experiments import ExperimentDetail


@click.group()
def experiments() -> None:
    """List, show and cancel experiments; their scaling tables."""


@experiments.command("list")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1), help="at most so many")
@server_option
@json_option
def list_experiments(limit: int, server: str, as_json: bool) -> None:
    """Experiments and how far they are."""
    with Client(server) as client:
        found = list(itertools.islice(client.experiments(), limit))
    if as_json:
        print_json(found)
    else:
        console().print(tables.experiments(found))


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@server_option
@json_option
def show(experiment_id: int, server: str, as_json: bool) -> None:
    """An experiment and its runs."""
    with Client(server) as client:
        _print(client, client.experiment(experiment_id), as_json)


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@server_option
@json_option
def cancel(experiment_id: int, server: str, as_json: bool) -> None:
    """Cancel every run of it that has not ended."""
    with Client(server) as client:
        _print(client, client.cancel_experiment(experiment_id), as_json)


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@server_option
@json_option
def retry(experiment_id: int, server: str, as_json: bool) -> None:
    """Queue every run of it once more that failed, was cancelled or quarantined."""
    with Client(server) as client:
        _print(client, client.retry_experiment(experiment_id), as_json)


@experiments.command()
@click.argument("experiment_id", metavar="ID", type=int)
@server_option
@json_option
def scaling(experiment_id: int, server: str, as_json: bool) -> None:
    """Step time, speedup and efficiency of every variant."""
    with Client(server) as client:
        answer = client.scaling(experiment_id)
    if as_json:
        print_json(answer)
        return
    console().print(tables.scaling(answer))
    console().print(answer.base, markup=False, highlight=False)
    for warning in answer.warnings:
        error_console().print(f"warning: {warning}", markup=False, highlight=False)


def _print(client: Client, experiment: ExperimentDetail, as_json: bool) -> None:
    if as_json:
        print_json(experiment)
        return
    out = console()
    out.print(tables.experiments([experiment]))
    out.print(tables.runs(client.runs(experiment.id)))
    if experiment.stopping is not None:
        out.print(tables.stopping(experiment.stopping), markup=False, highlight=False, soft_wrap=True)


for command in analysis.COMMANDS:
    experiments.add_command(command)
