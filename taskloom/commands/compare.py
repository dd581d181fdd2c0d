"""`taskloom compare`: Compare two runs or two selections of runs."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpt2core.spec import extras
from taskloom import tables
from taskloom.commands.output import (
    connect,
    console,
    error_console,
    fail_on_option,
    failure,
    json_option,
    print_json,
    say_warnings,
    server_option,
    shown_at,
    verbose_option,
)
from taskloom.errors import EXIT_WORK_FAILED

if TYPE_CHECKING:
    from taskloom.analysis.compared import Comparison
    from taskloom.client import Client
    from taskloom.experiment import Experiment

MOST_RUNS = 1000  # of a side


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--commit", "by_commit", is_flag=True,
              help="A and B are commits: their sides are all stored runs that measured them and succeeded")
@click.option("--filter", "chosen", metavar="EXPRESSION", help="with --commit: the runs of both sides")
@click.option("--experiment", "file", type=click.Path(path_type=Path),
              help="with --commit: run both commits' trainers in turn with the settings of this file (.toml, .yaml, "
              ".json), and compare these runs in pairs")  # fmt: skip
@click.option("--noise-floor", type=click.FloatRange(0, 1, min_open=True, max_open=True), metavar="SHARE",
              help="smaller relative differences are ignored; declare it beforehand  [default: 0.01]")  # fmt: skip
@click.option("--leave-out-flagged", is_flag=True, help="exclude steps that the trainer flagged")
@fail_on_option
@verbose_option
@server_option
@json_option
def compare(
    a: str,
    b: str,
    by_commit: bool,
    chosen: str | None,
    file: Path | None,
    noise_floor: float | None,
    leave_out_flagged: bool,
    fail_on: tuple[str, ...],
    verbose: bool,
    server: str,
    as_json: bool,
) -> None:
    """Compare two runs or two selections of runs: verdict on B relative to A, ratio, 95 % interval.

    A and B are run ids such as 12,13, or a selection such as experiment_id=7,scheduler=task,threads=2. With --commit
    they are commits (7 digits suffice): those that the submitters named, or else the trainers'. The verdict is
    faster, slower, same, undecided or refused. Two variants of one experiment are judged in its family of comparisons,
    the experiment's question alone. The exit code is 1 if --fail-on names the verdict, otherwise 0.

    With --experiment, run it on a worker's node, as the worker's user, in a checkout of Taskloom that has both commits:
    it stores their trainers where the worker finds them, queues an experiment and waits for it. A repeated call
    continues with the same experiment; another name in the file queues new runs.
    """
    if not by_commit and (chosen is not None or file is not None):
        raise click.UsageError(f"--{'experiment' if chosen is None else 'filter'} needs --commit")
    if chosen is not None and file is not None:
        raise click.UsageError("--filter chooses among stored runs, --experiment asks for new ones; give one of both")
    experiment = None
    with connect(server, waits=file is not None) as client:
        if file is not None:
            experiment = _measured(client, file, a, b, not as_json)
            first, second = _sides(client, experiment, as_json)
        else:
            first, second = (_runs_of(client, a, chosen), _runs_of(client, b, chosen)) if by_commit else (a, b)
        answer = client.compare(first, second, noise_floor, leave_out_flagged)
    if as_json:
        print_json(answer)
    else:
        if by_commit:
            paired = "paired by block" if answer.paired else "not paired: only runs of one block of an experiment are"
            click.echo(f"A is commit {a}, B is commit {b}; their runs are {paired}")
        _print(answer, verbose)
        if experiment is not None:
            console().say(shown_at(experiment, server))
        elif by_commit and (answer.verdict == "undecided" or not answer.paired):
            how = f"taskloom compare --commit {a} {b} --experiment FILE"
            console().say(f"to measure them in pairs, on a worker's node: {how}")
    if answer.verdict in fail_on:
        raise click.exceptions.Exit(EXIT_WORK_FAILED)


def _measured(client: Client, file: Path, a: str, b: str, shown: bool) -> Experiment:
    """An ended experiment that has run the trainers of two commits in turn. Raises ConfigError."""
    from taskloom import trainers, watch

    extras.require("worker")
    content = trainers.of_file(file)
    trainers.check_single(content, "repetitions", "stop")
    commits = trainers.commit_of("a", a), trainers.commit_of("b", b)
    builds = trainers.both_stored(*commits, "b")
    name = " or ".join(commit.sha[: tables.SHORT_COMMIT] for commit in commits)
    experiment = trainers.queued(client, {"name": f"commit {name}?", **content}, commits[1], builds)
    return watch.until_finished(client, experiment.id, error_console(), shown)


def _sides(client: Client, experiment: Experiment, as_json: bool) -> list[str]:
    """Ids of the runs of each build that succeeded. Raises Exit if a build has none."""
    runs = list(client.runs(experiment.id, "succeeded"))
    builds = experiment.request["builds"]
    sides = [",".join(str(run.id) for run in runs if run.variant["build"] == build) for build in builds]
    for name, side in zip("AB", sides, strict=True):
        if not side:
            message = f"no run of {name} has succeeded in experiment {experiment.id}"
            raise failure(message, {"error": message, "experiment_id": experiment.id}, EXIT_WORK_FAILED, as_json)
    return sides


def _runs_of(client: Client, commit: str, chosen: str | None) -> str:
    """Ids of the runs of a commit. Raises BadParameter."""
    for whose in ("commit", "trainer_commit"):
        query: dict[str, Any] = {whose: commit, "filter": chosen}
        found = client.runs(state="succeeded", **query)
        ids = [str(run.id) for run in islice(found, MOST_RUNS + 1)]
        if len(ids) > MOST_RUNS:
            raise click.BadParameter(f"commit {commit} has more than {MOST_RUNS} runs; --filter chooses among them")
        if ids:
            return ",".join(ids)
    among = "" if chosen is None else f" and has {chosen}"
    raise click.BadParameter(f"no run that succeeded measured commit {commit}{among}")


def _print(answer: Comparison, verbose: bool) -> None:
    out = console()
    out.print(tables.comparison(answer))
    family = [answer.family.sentence] if answer.family is not None and answer.family.sentence else []
    lines = [answer.sentence, *family, answer.reason, *tables.instructions(answer.instructions)]
    lines += [f"other differences between A and B: {', '.join(answer.differs)}"] if answer.differs else []
    out.say(*lines)
    say_warnings(out, answer.marks, answer.brief, verbose)
