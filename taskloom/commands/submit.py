"""`taskloom submit`: Queue an experiment from FILE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpt2core.spec.wording import counted
from taskloom import named_commit, request_file, tables, tuned
from taskloom.client import Client
from taskloom.commands.output import (
    connect,
    error_console,
    json_option,
    server_option,
    show_answer,
    verbose_option,
)
from taskloom.commands.waiting import to_its_end, wait_option
from taskloom.contract.experiments import ExperimentDetail, ExperimentRequest
from taskloom.errors import Problem
from taskloom.options import question, require_option, required_labels, several_settings, stop_rule, train_options


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@train_options(several=True)
@click.option("--name", default="", help="name of the experiment")
@click.option("--tag", "tags", multiple=True, help="tag of the experiment; may be repeated")
@click.option("--notes", default="", help="free text about the experiment")
@click.option(
    "--repetitions",
    type=click.IntRange(1),
    help="runs of each variant, each in a fresh process  [default: as many as can decide the question and any one "
    "other comparison; 1 if nothing is compared]",
)
@click.option(
    "--primary",
    metavar="B vs A",
    help="the question, judged alone: is B faster than A? Settings of one variant each, such as "
    "'scheduler=task,threads=2 vs scheduler=fork-join,threads=2'",
)
@click.option(
    "--timeout-s", type=float, help="kill and fail an attempt this many seconds after its claim  [default: 3600]"
)
@click.option("--trace", "trace", flag_value="all", help="trace each successful run in a separate attempt")
@click.option("--trace-first", "trace", flag_value="first", help="trace only the first repetition of each variant")
@click.option(
    "--stop",
    metavar="RULE",
    help="add repetitions, after --repetitions, until each interval is narrow enough or a limit is reached: "
    "rel_ci=0.02,max_repetitions=30,budget_s=3600 (rel_ci: half the relative width of a ratio's interval; "
    "max_repetitions: 50 if not given; budget_s: no limit if not given)",
)
@click.option(
    "--tuned", "use_tuned", is_flag=True,
    help="settings that are not given are those that a tuning of this network and shape has confirmed",
)
@named_commit.commit_options
@require_option
@click.option(
    "--nodes", type=click.IntRange(1),
    help="nodes over which the ranks of each run are divided (docs/how-to/several-nodes.md)  [default: 1]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="show the planned runs; queue nothing")
@wait_option
@click.option("--follow-logs", is_flag=True, help="with --wait: print the trainers' output on standard error")
@click.option("--idempotency-key", help="a repeated request with the same key queues nothing new")
@verbose_option
@server_option
@json_option
def submit(
    file: Path | None,
    name: str,
    tags: tuple[str, ...],
    notes: str,
    repetitions: int | None,
    primary: str | None,
    timeout_s: float | None,
    trace: str | None,
    stop: str | None,
    use_tuned: bool,
    required: tuple[str, ...],
    nodes: int | None,
    dry_run: bool,
    wait: bool,
    follow_logs: bool,
    idempotency_key: str | None,
    verbose: bool,
    server: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Queue an experiment from FILE (.toml, .yaml, .json) or from options. A comma list becomes an axis."""
    if follow_logs and not wait:
        raise click.UsageError("--follow-logs needs --wait")
    requires = {"labels": required_labels(required), "nodes": nodes}
    fields = {
        "name": name or None,
        "tags": list(tags) or None,
        "notes": notes or None,
        "repetitions": repetitions,
        "primary": None if primary is None else question(primary),
        "limits": None if timeout_s is None else {"timeout_s": timeout_s},
        "trace": {"all": True, "first": "first", None: None}[trace],
        "stop": None if stop is None else stop_rule(stop),
        "requires": {name: value for name, value in requires.items() if value} or None,
    }
    commit = named_commit.options_of(given)
    request = _request(file, given, {key: value for key, value in fields.items() if value is not None})
    request = named_commit.completed(request, commit)
    with connect(server, waits=wait) as client:
        if use_tuned:
            request = _tuned(client, request)
        if dry_run:
            _print_plan(client, request, as_json)
            return
        if not as_json and (request.axes or request.zip or request.builds):  # else nothing is compared
            _say_decidable(client, request)
        experiment = client.submit(request, idempotency_key)
        if not wait:
            _print(experiment, as_json)
            return
        to_its_end(client, experiment, as_json, verbose, follow_logs)


def _request(file: Path | None, given: dict[str, Any], overrides: dict[str, Any]) -> ExperimentRequest:
    used = [key for key, value in given.items() if value is not None]
    if file is not None and used:
        raise click.UsageError(f"{file} already contains the settings; remove --{used[0].replace('_', '-')}")
    if file is not None:
        content = request_file.read(file).model_dump(mode="json", exclude_unset=True)
        if "requires" in overrides:  # with the requirements of the file
            requires = content.get("requires", {})
            named = overrides["requires"]
            labels = {**requires.get("labels", {}), **named.get("labels", {})}
            overrides = {**overrides, "requires": {**requires, **named, "labels": labels}}
        return request_file.parse({**content, **overrides})
    if not used:
        raise click.UsageError("give a FILE or at least one setting, such as --scheduler fork-join,task")
    base, axes = several_settings(given)
    return request_file.parse({"base": base, "axes": axes, **overrides})


def _tuned(client: Client, request: ExperimentRequest) -> ExperimentRequest:
    """The request with confirmed settings. Raises ConfigError if there are none."""
    content = request.model_dump(mode="json", exclude_unset=True)
    base = {name: value for name, value in content.get("base", {}).items() if value is not None}
    found = tuned.find(client, base)
    error_console().say(tuned.said(found))
    varying = {name for group in (request.axes, *request.zip) for name in group}
    return request_file.parse({**content, "base": tuned.completed(base, found, varying)})


def _print_plan(client: Client, request: ExperimentRequest, as_json: bool) -> None:
    plan = client.plan(request)
    show_answer(plan, (tables.dry_run(plan), *tables.decidable(plan)), as_json)


def _say_decidable(client: Client, request: ExperimentRequest) -> None:
    """Print what the repetitions can decide, and how many would suffice. Raises Problem for a wrong request."""
    try:
        plan = client.plan(request)
        lines = [f"estimated time on one worker: {tables.estimated(plan)}", *tables.decidable(plan)]
    except Problem as error:
        if error.problem.status < 500:
            raise
        lines = [f"it is unknown what the repetitions can decide: {error}"]
    error_console().say(*lines)


def _print(experiment: ExperimentDetail, as_json: bool) -> None:
    see = f"see: taskloom experiments show {experiment.id}"
    show_answer(experiment, [f"experiment {experiment.id}: {counted(experiment.runs, 'run')} queued; {see}"], as_json)
