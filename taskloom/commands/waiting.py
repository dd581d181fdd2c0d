"""Commands with `--wait`: an experiment is followed to its end; its runs, warnings and verdict are printed."""

from __future__ import annotations

import click

from taskloom import tables, watch
from taskloom.client import Client
from taskloom.commands.output import console, error_console, print_json, say_verdict, say_warnings
from taskloom.contract.experiments import ExperimentDetail
from taskloom.errors import EXIT_WORK_FAILED, ServerUnreachable, TaskloomError

wait_option = click.option("--wait", is_flag=True, help="wait until the experiment has ended; exit 1 if a run failed")


def to_its_end(
    client: Client, experiment: ExperimentDetail, as_json: bool, verbose: bool = False, follow_logs: bool = False
) -> None:
    """Wait until an experiment has ended and print what came of it. Exits with 1 if a run failed.

    If it is interrupted, the experiment goes on, and it is said how to see and end it.
    """
    screen = error_console()
    try:
        ended = watch.until_finished(client, experiment.id, screen, not as_json, follow_logs=follow_logs)
    except (KeyboardInterrupt, ServerUnreachable) as end:
        screen.say(
            f"experiment {experiment.id} continues. See it: taskloom experiments show {experiment.id}; "
            f"end it: taskloom experiments cancel {experiment.id}"
        )
        if isinstance(end, ServerUnreachable):
            raise
        raise click.exceptions.Exit(EXIT_WORK_FAILED) from None
    runs = list(client.runs(ended.id))
    if as_json:
        print_json({
            "experiment": ended.model_dump(mode="json"), "runs": [run.model_dump(mode="json") for run in runs],
        })  # fmt: skip
    else:
        console().print(tables.runs(runs))
        _print_warnings(client, ended, verbose)
        if ended.stopping is not None:
            console().say(tables.stopping(ended.stopping))
        console().say(f"next: taskloom experiments report {ended.id}")
        say_verdict(console(), ended, client.server)
    if ended.by_state.get("succeeded", 0) < ended.runs:
        raise click.exceptions.Exit(EXIT_WORK_FAILED)


def _print_warnings(client: Client, experiment: ExperimentDetail, verbose: bool) -> None:
    if experiment.by_state.get("succeeded"):
        try:
            found = client.scaling(experiment.id)
        except TaskloomError as error:  # the runs have ended all the same
            error_console().say(f"it is unknown whether runs were disturbed: {error}")
        else:
            say_warnings(console(), found.warnings, found.brief, verbose)
