"""Follows an experiment to its end and shows its progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from gpt2core.spec.wording import counted
from taskloom import tables
from taskloom.client import Client
from taskloom.contract.attempts import STEPPING
from taskloom.contract.runs import LogLine, RunDetail, RunSummary
from taskloom.errors import TaskloomError
from taskloom.experiment import Experiment
from taskloom.progress import Bar
from taskloom.screen import Screen

POLL_S, MOST_POLL_S = 0.5, 5.0
ENDED = ("succeeded", "failed", "cancelled", "quarantined")
FAILED, MOST_REASONS = {"failed", "quarantined"}, 5


class Logs:
    """Follows the output of runs' trainers and reports each line once, from the last `tail` lines on if given."""

    def __init__(self, client: Client, show: Callable[[LogLine], None], tail: int | None = None) -> None:
        self._client, self._show, self._tail = client, show, tail
        self._cursors: dict[int, str] = {}
        self._done: set[int] = set()

    def look(self, runs: Iterable[RunSummary]) -> None:
        """Report the new lines of these runs."""
        for run in runs:
            if run.state == "queued" or run.id in self._done:
                continue
            more = True
            while more:
                cursor = self._cursors.get(run.id)
                page = self._client.log(run.id, cursor, tail=self._tail if cursor is None else None)
                self._cursors[run.id] = page.cursor
                for line in page.items:
                    self._show(line)
                more = bool(page.items)
            if run.state in ENDED:
                self._done.add(run.id)


def until_finished(
    client: Client,
    experiment_id: int,
    console: Screen,
    shown: bool = True,
    check: Callable[[], None] = lambda: None,
    follow_logs: bool = False,
) -> Experiment:
    """Wait until an experiment has ended, and return it with its verdict. `console` shows its progress, if wanted.

    `check` is called with every request, and may raise. follow_logs: print the trainers' output on `console`.
    """

    def tell(line: LogLine) -> None:
        console.say(f"run {line.run_id}: {line.text}")

    begun = time.monotonic()
    logs = Logs(client, tell)
    with Bar(console, shown, "waiting for a worker") as bar:
        while True:
            check()
            experiment = client.experiment(experiment_id)
            ended = sum(experiment.by_state.get(state, 0) for state in ENDED)
            bar.update(completed=ended, total=experiment.runs)
            if follow_logs:
                logs.look(client.runs(experiment_id))
            if experiment.state != "active":  # with a stopping rule, more runs may follow the last one
                if shown and FAILED & experiment.by_state.keys():
                    _say_failures(client, experiment_id, console)
                return _judged(experiment, console)
            if shown:
                bar.update(_doing(client, experiment_id))
            time.sleep(pause_s(time.monotonic() - begun))


def _say_failures(client: Client, experiment_id: int, console: Screen) -> None:
    """Say why runs have failed, each reason once."""
    reasons: dict[str, list[int]] = {}
    for run in client.runs(experiment_id, sorted(FAILED)):
        reasons.setdefault(run.state if run.error is None else run.error.detail or run.error.slug, []).append(run.id)
    for reason, of in list(reasons.items())[:MOST_REASONS]:
        console.say(f"{counted(len(of), 'run')} failed, such as run {of[0]}: {reason}")


def _judged(experiment: Experiment, console: Screen) -> Experiment:
    """An ended experiment with its verdict, if that can be had."""
    try:
        return experiment.judged()
    except TaskloomError as error:  # the runs have ended all the same
        console.say(f"the verdict is not known yet: {error}")
        return experiment


def pause_s(waited_s: float) -> float:
    """Seconds until the next request: more after long waits, since requests disturb cores that may be measured."""
    return min(max(POLL_S, waited_s / 20), MOST_POLL_S)


def _doing(client: Client, experiment_id: int) -> str:
    """Describe the first active run, or why the first queued one waits."""
    for state in ("running", "leased"):
        for summary in client.runs(experiment_id, state, limit=1):
            return describe(client.run(summary.id))
    for summary in client.runs(experiment_id, "queued", limit=1):
        place = client.run(summary.id).queue
        return "starting" if place is None else f"waiting: {place.waiting_for}"
    return "finishing"


def describe(run: RunDetail) -> str:
    """Describe what a run is doing now."""
    progress = run.history[-1].progress if run.history else None
    text = f"run {run.id} {tables.variant(run.variant)}: "
    if progress is None:
        return text + "starting"
    if progress.stage not in STEPPING or not progress.step:
        return text + progress.stage
    loss = "" if progress.loss is None else f", loss {progress.loss:.3f}"
    return text + f"step {progress.step}/{progress.steps}{loss}"
