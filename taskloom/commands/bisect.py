"""`taskloom bisect`: Find the commit from which on training takes another time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gpt2core.spec import extras
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.version import git
from gpt2core.spec.wording import counted, enumerated
from taskloom import trainers, watch
from taskloom.analysis.bisection import FEWEST_BLOCKS, Blocks, Decision, Side, compare, judge, search
from taskloom.client import Client
from taskloom.commands.output import connect, console, error_console, json_option, print_json, server_option
from taskloom.contract.runs import RunRow
from taskloom.errors import EXIT_WORK_FAILED
from taskloom.options import require_option, required_labels, several_settings, train_options
from taskloom.tables import SHORT_COMMIT, number
from taskloom.trainers import Commit

TRAINER = "gpt2core"
MORE = 3  # blocks that are added to those of a commit that is not yet decided


@dataclass(frozen=True)
class Step:
    """A decision on a commit. experiment_id: null if no run was needed."""

    commit: str
    decision: Decision
    experiment_id: int | None = None
    runs: int = 0

    def __str__(self) -> str:
        found = self.decision
        interval = "" if found.low is None else f" [{number(found.low, 3)}, {number(found.high, 3)}]"
        ratio = "" if found.ratio is None else f"; {number(found.ratio, 3)} times the step time of GOOD{interval}"
        experiment = "" if self.experiment_id is None else f"; experiment {self.experiment_id}"
        return f"{self.commit[:SHORT_COMMIT]}: {found.side} ({found.reason}){ratio}{experiment}"


@click.command()
@click.argument("good")
@click.argument("bad")
@click.option("--experiment", "file", type=click.Path(path_type=Path),
              help="file (.toml, .yaml, .json) with the settings of the run, instead of options")  # fmt: skip
@train_options(several=True)
@click.option("--name", help="beginning of the experiments' names; a new one queues new runs  [default: the commits]")
@click.option("--most-blocks", "most", default=30, show_default=True, type=click.IntRange(FEWEST_BLOCKS, 500),
              help="most blocks of a commit, after which it stays undecided")  # fmt: skip
@require_option
@server_option
@json_option
def bisect(
    good: str,
    bad: str,
    file: Path | None,
    name: str | None,
    most: int,
    required: tuple[str, ...],
    server: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Find the commit from which on training takes another time: the first after GOOD that takes as long as BAD.

    Run it on a worker's node, as the worker's user, in a checkout of Taskloom: it stores the trainers of commits where
    the worker finds them. Each commit that it asks about runs in blocks beside GOOD and BAD, until the interval of its
    step time excludes the middle between both. A repeated call continues with the same experiments. The exit code is 1
    if no commit is found.
    """
    extras.require("worker")
    content = _content(file, given, required)
    first, commits = _commits(good, bad)
    with connect(server, waits=True) as client:
        bisection = Bisection(client, {**content, "name": name or content.get("name") or f"bisect {good}..{bad}"}, most,
                          first, commits[-1], not as_json)  # fmt: skip
        steps = [bisection.opening(len(commits))]
        found: list[Commit] = []
        if steps[0].decision.side == "bad":
            points = [first, *commits]

            def judged(place: int) -> Side:
                steps.append(bisection.step(points[place]))
                return steps[-1].decision.side

            low, high = search(len(points), judged)
            found = points[low + 1 : high + 1]
    measured = [step.decision for step in steps if found and step.commit == found[-1].sha and step.decision.ratio]
    of_it = measured[-1] if measured else steps[0].decision
    runs = sum(step.runs for step in steps)
    if as_json:
        print_json({
            "good": first.sha, "bad": bisection.bad.sha, "first_bad": found[0].sha if len(found) == 1 else None,
            "candidates": [dataclasses.asdict(each) for each in found], "ratio": of_it.ratio, "low": of_it.low,
            "high": of_it.high, "runs": runs, "steps": [dataclasses.asdict(step) for step in steps],
        })  # fmt: skip
    else:
        console().say(_sentence(found, of_it, runs))
    if len(found) != 1:
        raise click.exceptions.Exit(EXIT_WORK_FAILED)


def _sentence(found: Sequence[Commit], of: Decision, runs: int) -> str:
    """The answer."""
    interval = "" if of.low is None else f" [{number(of.low, 3)}, {number(of.high, 3)}]"
    cost = f"{counted(runs, 'run')} asked"
    if not found:
        return f"no commit is searched: it is not known that BAD differs from GOOD ({of.reason}); {cost}"
    if len(found) > 1:
        return f"the first bad commit is {enumerated(found, 'or')}; {cost}"
    return f"the first bad commit is {found[0]}: {number(of.ratio, 3)} times the step time of GOOD{interval}; {cost}"


def _content(file: Path | None, given: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    """Fields of the experiments' request. Raises UsageError or ConfigError."""
    used = [key for key, value in given.items() if value is not None]
    if (file is None) == (not used):
        raise click.UsageError("give either --experiment FILE or settings such as --scheduler task --threads 2")
    if file is not None:
        content = trainers.of_file(file)
    else:
        base, axes = several_settings(given)
        content = {"base": base, **({"axes": axes} if axes else {})}
    trainers.check_single(content)
    if required:
        content["requires"] = {**content.get("requires", {}), "labels": required_labels(required)}
    return content


def _commits(good: str, bad: str) -> tuple[Commit, list[Commit]]:
    """GOOD, and the commits after it up to BAD that change the trainer, oldest first. Raises ConfigError."""
    first, last = trainers.commit_of("good", good), trainers.commit_of("bad", bad)
    if git(trainers.HERE, "merge-base", "--is-ancestor", first.sha, last.sha) is None:
        raise ConfigError("good", good, f"an ancestor of {bad}")
    log = ("log", "--first-parent", "--reverse", "--format=%H %s", f"{first.sha}..{last.sha}", "--", TRAINER)
    lines = filter(None, (git(trainers.HERE, *log) or "").split("\n"))  # a subject may contain other ends of lines
    commits = [Commit(*line.split(" ", 1)) for line in lines]
    if not commits:
        raise ConfigError("bad", bad, f"a commit whose trainer ({TRAINER}) is not that of {good}")
    return first, commits


class Bisection:
    """Asks for runs of commits, and decides them. bad: the last commit that changed the trainer."""

    def __init__(
        self, client: Client, content: dict[str, Any], most: int, good: Commit, bad: Commit, shown: bool
    ) -> None:
        self._client, self._content, self._most, self._shown = client, content, most, shown
        self.good, self.bad = good, bad
        self._builds = trainers.both_stored(good, bad, "bad")

    def opening(self, commits: int) -> Step:
        """Whether BAD differs from GOOD."""
        self._say(f"{counted(commits, 'commit')} after {self.good} changed the trainer, the last is {self.bad}")
        return self._measured(self.bad, self._builds)

    def step(self, commit: Commit) -> Step:
        """The decision on a commit between them."""
        good, bad = self._builds
        try:
            build = trainers.stored(commit)
        except ConfigError as error:
            return self._reported(Step(commit.sha, Decision("undecided", None, None, None, 0, str(error))))
        if build in (good, bad):  # it was reverted
            side: Side = "good" if build == good else "bad"
            reason = f"its trainer is that of {side.upper()}"
            return self._reported(Step(commit.sha, Decision(side, None, None, None, 0, reason)))
        return self._measured(commit, [good, build, bad])

    def _measured(self, commit: Commit, builds: list[str]) -> Step:
        """Run the builds in turn until the commit is decided or has had its blocks."""
        name = f"{self._content['name']}: {commit.sha[:SHORT_COMMIT]}"
        content = {**self._content, "name": name, "repetitions": FEWEST_BLOCKS}
        experiment = trainers.queued(self._client, content, commit, builds)
        while True:
            experiment = watch.until_finished(self._client, experiment.id, error_console(), self._shown)
            runs = list(self._client.runs(experiment.id))
            decision = _decided(runs, builds)
            done, failed = max(run.repetition for run in runs), sum(run.state != "succeeded" for run in runs)
            if failed and decision.side == "undecided":
                reason = f"{decision.reason}; {counted(failed, 'run')} did not succeed"
                decision = dataclasses.replace(decision, reason=reason)
            if decision.side != "undecided" or failed or done >= self._most:
                return self._reported(Step(commit.sha, decision, experiment.id, len(runs)))
            experiment = self._client.extend_experiment(experiment.id, min(MORE, self._most - done))

    def _reported(self, step: Step) -> Step:
        self._say(str(step))
        return step

    def _say(self, line: str) -> None:
        if self._shown:
            console().say(line)


def _decided(runs: Sequence[RunRow], builds: Sequence[str]) -> Decision:
    """The decision by the runs of two builds, or of three."""
    sides: list[Blocks] = [
        {run.block: run.median_step_s for run in runs if run.median_step_s and run.variant["build"] == build}
        for build in builds
    ]
    return compare(sides[0], sides[1]) if len(sides) == 2 else judge(sides[0], sides[1], sides[2])
