"""Follows an experiment to its end with a live progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from contract.experiments import ExperimentDetail
from contract.runs import RunDetail
from taskloom import tables
from taskloom.client import Client

POLL_S = 0.5
ENDED = ("succeeded", "failed", "cancelled", "quarantined")


def until_finished(
    client: Client, experiment_id: int, console: Console, shown: bool = True, check: Callable[[], None] = lambda: None
) -> ExperimentDetail:
    """The experiment once all its runs have ended. The bar is on `console`, unless it is not to be shown.

    `check` is called with every look, and may raise.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not shown, transient=True) as bar:
        task = bar.add_task("waiting for a worker")
        while True:
            check()
            experiment = client.experiment(experiment_id)
            ended = sum(experiment.by_state.get(state, 0) for state in ENDED)
            bar.update(task, total=experiment.runs, completed=ended)
            if ended >= experiment.runs:
                return experiment
            if shown:
                bar.update(task, description=_doing(client, experiment_id))
            time.sleep(POLL_S)


def _doing(client: Client, experiment_id: int) -> str:
    """The first active run, in words."""
    for state in ("running", "leased"):
        for summary in client.runs(experiment_id, state):
            return describe(client.run(summary.id))
    return "waiting for a worker"


def describe(run: RunDetail) -> str:
    """What a run is doing now."""
    progress = run.history[-1].progress if run.history else None
    text = f"run {run.id} {tables.variant(run.variant)}: "
    if progress is None:
        return text + "starting"
    if progress.stage != "training" or not progress.step:
        return text + progress.stage
    loss = "" if progress.loss is None else f", loss {progress.loss:.3f}"
    return text + f"step {progress.step}/{progress.steps}{loss}"
