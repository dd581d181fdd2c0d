"""`taskloom tune`: Search the best setting of a space, and say how sure the answer is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpt2core.node.files import output
from gpt2core.spec.files import write_text
from taskloom import named_commit, request_file, tables, watch
from taskloom.client import Client
from taskloom.commands.output import (
    OutputFile,
    connect,
    error_console,
    json_option,
    server_option,
    show_answer,
    shown_at,
)
from taskloom.contract.experiments import ExperimentDetail, ExperimentRequest
from taskloom.contract.plans import DryRun
from taskloom.errors import EXIT_WORK_FAILED
from taskloom.options import several_settings, space_values, train_options

if TYPE_CHECKING:
    from taskloom.analysis.tuning.answer import Tuning


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@train_options(several=True)
@click.option(
    "--space", "space", multiple=True, metavar="SETTING=V1,V2,...",
    help="values of a setting of the space, such as threads=1,2,4, or op_threads=default;qkv=2,fc=1 where values have "
    "commas; default: null; may be repeated. The same as the setting's own option with several values",
)  # fmt: skip
@click.option("--name", default="", help="name of the experiment")
@click.option("--runs", type=click.IntRange(1), help="runs of settings that search  [default: 96]")
@click.option("--budget-s", type=float, help="limit of the workers' time, in seconds  [default: none]")
@click.option("--block", "block", type=click.IntRange(1), help="settings beside a run of the default  [default: 6]")
@click.option("--confirm", type=click.IntRange(0), help="pairs of the winner and the default  [default: 8]")
@click.option("--fresh", type=click.IntRange(0), help="settings drawn at random after the choice  [default: 20]")
@click.option("--search-seed", type=click.IntRange(0), help="seed of the search and of the draws  [default: 0]")
@click.option("--sampler", type=click.Choice(["tpe", "random", "grid"]), help="search  [default: tpe]")
@named_commit.commit_options
@click.option("--dry-run", is_flag=True, help="show the size of the space and what the answer can say; queue nothing")
@click.option("--wait", is_flag=True, help="wait for the answer; a line for each block")
@click.option("--export", type=OutputFile(), help="with --wait: write the winner as a file for submit")
@server_option
@json_option
def tune(
    file: Path | None,
    space: tuple[str, ...],
    name: str,
    dry_run: bool,
    wait: bool,
    export: Path | None,
    server: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Search the best setting of a space, and say how sure the answer is. The space is that of FILE (.toml, .yaml,
    .json), or the options with several values; those with one value are the base."""
    if export is not None and not wait:
        raise click.UsageError("--export needs --wait")
    terms = {key: given.pop(key) for key in ("runs", "budget_s", "confirm", "fresh", "sampler")}
    terms |= {"batch": given.pop("block"), "seed": given.pop("search_seed")}
    commit = named_commit.options_of(given)
    request = _request(file, given, space, name, {key: value for key, value in terms.items() if value is not None})
    request = named_commit.completed(request, commit)
    with connect(server, waits=wait) as client:
        if dry_run:
            plan = client.plan(request)
            show_answer(plan, _planned(plan), as_json)
            return
        if not as_json:
            error_console().say(*_planned(client.plan(request)))
        experiment = client.submit(request)
        if not wait:
            see = f"see: taskloom experiments show {experiment.id}"
            show_answer(experiment, [f"experiment {experiment.id}: tuning; {see}"], as_json)
            return
        found = follow(client, experiment, not as_json)
    show_answer(found, [shown_at(experiment, client.server), found.sentence], as_json)
    if found.base is None:
        raise click.exceptions.Exit(EXIT_WORK_FAILED)
    if export is not None:
        write(export, found)


def _request(
    file: Path | None, given: dict[str, Any], space: tuple[str, ...], name: str, terms: dict[str, Any]
) -> ExperimentRequest:
    used = [key for key, value in given.items() if value is not None]
    named = {"name": name} if name else {}
    if file is not None:
        if used or space:
            raise click.UsageError(f"{file} already contains the settings; remove --{(used or ['space'])[0]}")
        content = request_file.read(file).model_dump(mode="json", exclude_unset=True)
        return request_file.parse({**content, **named, "tune": {**(content.get("tune") or {}), **terms}})
    base, axes = several_settings(given)
    values = {**axes, **space_values(space)}
    if not values:
        raise click.UsageError("give a FILE or at least one setting of the space, such as --space threads=1,2,4")
    return request_file.parse({"base": base, "space": values, **named, "tune": terms})


def _planned(plan: DryRun) -> list[str]:
    """What a tuning runs and can say, in lines."""
    tuning = plan.tuning
    assert tuning is not None  # since the request has a space
    took = "" if plan.estimated_s is None else f", about {tables.duration(plan.estimated_s)} on one worker"
    counts = f"{tuning.combinations:,} combinations: {tuning.invalid:,} are refused, {tuning.excluded:,} excluded, " \
             f"{tuning.equal:,} equal to others"  # fmt: skip
    return [f"space: {tuning.valid:,} valid settings ({counts})",
            f"at most {tuning.runs} runs in {tuning.blocks} blocks{took}", *tuning.can_say]  # fmt: skip


def follow(client: Client, experiment: ExperimentDetail, shown: bool) -> Tuning:
    """Wait for the end of a tuning; print a line for each block."""
    begun, runs = time.monotonic(), 0
    while True:
        now = client.experiment(experiment.id)
        if now.runs != runs or now.state != "active":
            found = client.tuning(experiment.id)
            if shown and runs:
                error_console().say(f"{found.spent_runs} runs: {found.sentence}")
            if now.state != "active":
                return found
            runs = now.runs
        time.sleep(watch.pause_s(time.monotonic() - begun))


def write(path: Path, found: Tuning) -> None:
    """Write the winner as a request file. Raises ConfigError."""
    import yaml

    text = f"# {found.sentence}\n" + yaml.safe_dump({"base": found.base}, sort_keys=False)
    with output("export", path):
        write_text(path, text)
