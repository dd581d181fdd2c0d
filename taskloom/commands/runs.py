"""`taskloom runs`: List, show, cancel and retry runs, and read their results."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click

from gpt2core.node import files
from gpt2core.process.temporary import TemporaryFolder
from taskloom import listing, tables, trace_files, watch
from taskloom.analysis import node_time
from taskloom.commands.output import (
    OutputFile,
    connect,
    console,
    json_option,
    limit_option,
    print_items,
    print_json,
    say,
    server_option,
    show_answer,
)
from taskloom.contract.runs import LogLine, RunDetail, RunRow
from taskloom.errors import NoTrace

MOST_NAMED = 8  # traced runs in a message


@click.group()
def runs() -> None:
    """List, show, cancel and retry runs, and read their results."""


@runs.command("list")
@listing.run_options
@click.option("--columns", metavar="NAME,...", help="fields of a run, its settings or its variant; also with --json")
@limit_option
@server_option
@json_option
def list_runs(columns: str | None, limit: int, server: str, as_json: bool, **chosen: Any) -> None:
    """List runs with states and figures: in planned order for an experiment, otherwise newest first."""
    query = listing.run_query(chosen)
    if "experiment_id" not in query:
        query.setdefault("sort", "-id")
    with connect(server) as client:
        if columns is None:
            print_items(client.runs(**query), limit, tables.runs, as_json)
            return
        names = [name.strip() for name in columns.split(",")]
        rows = (_chosen(run, names) for run in client.runs(**query))
        print_items(rows, limit, functools.partial(tables.plain, names), as_json)


def _chosen(run: RunRow, names: Sequence[str]) -> dict[str, Any]:
    try:
        return tables.chosen(run, names)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--columns") from error


@runs.command()
@click.argument("run_id", metavar="ID", type=int)
@server_option
@json_option
def show(run_id: int, server: str, as_json: bool) -> None:
    """Show a run with its settings, attempts and, if it failed, the reason."""
    with connect(server) as client:
        _print(client.run(run_id), as_json)


@runs.command()
@click.argument("run_id", metavar="ID", type=int)
@server_option
@json_option
def cancel(run_id: int, server: str, as_json: bool) -> None:
    """Cancel a run: a queued one immediately, a running one on its node."""
    with connect(server) as client:
        _print(client.cancel_run(run_id), as_json)


@runs.command()
@click.argument("run_id", metavar="ID", type=int)
@server_option
@json_option
def retry(run_id: int, server: str, as_json: bool) -> None:
    """Queue a failed, cancelled or quarantined run again."""
    with connect(server) as client:
        _print(client.retry_run(run_id), as_json)


@runs.command()
@click.argument("selection", metavar="ID|SELECTION")
@server_option
@json_option
def samples(selection: str, server: str, as_json: bool) -> None:
    """Show every timed step of one run or of many.

    SELECTION is run ids such as 12,13, or experiment_id=7,scheduler=task for an experiment's runs with these settings.
    Runs that have not succeeded are left out. With --json, a selection prints one run a line.
    """
    with connect(server) as client:
        if selection.isdecimal():
            answer = client.samples(int(selection))
            show_answer(answer, [tables.samples(answer)], as_json)
            return
        for run in client.samples_of(selection):
            if as_json:
                click.echo(run.model_dump_json())
            else:
                console().print(f"run {run.run_id}, repetition {run.repetition}: {tables.variant(run.variant)}")
                console().print(tables.samples(run))


@runs.command()
@click.argument("run_id", metavar="ID", type=int)
@limit_option
@server_option
@json_option
def changes(run_id: int, limit: int, server: str, as_json: bool) -> None:
    """Show a run's history: who changed its state, when and why, oldest first."""
    with connect(server) as client:
        print_items(client.run_changes(run_id), limit, tables.changes, as_json)


@runs.command()
@click.argument("run_id", metavar="ID", type=int)
@click.option("--follow", is_flag=True, help="continue until the run has ended")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="begin with the last N lines [all]")
@server_option
@json_option
def log(run_id: int, follow: bool, tail: int | None, server: str, as_json: bool) -> None:
    """Print the output of a run's trainers; with --json one object a line."""

    def tell(line: LogLine) -> None:
        click.echo(line.model_dump_json()) if as_json else say(line.text)

    with connect(server, waits=follow) as client:
        logs = watch.Logs(client, tell, tail)
        while True:
            run = client.run(run_id)
            logs.look([run])
            if not follow or run.state in watch.ENDED:
                return
            time.sleep(watch.POLL_S)


@runs.command()
@click.argument("run_id", metavar="ID", type=int)
@click.argument("name", required=False)
@click.option("-o", "--output", type=OutputFile(), help="output file [./NAME]")
@server_option
@json_option
def artifacts(run_id: int, name: str | None, output: Path | None, server: str, as_json: bool) -> None:
    """List the files of a run, or write the file NAME."""
    with connect(server) as client:
        if name is not None:
            target = output or Path(Path(name).name)
            with files.output("output", target):
                client.download_artifact(run_id, name, target)
            if as_json:
                print_json({"run_id": run_id, "name": name, "path": str(target)})
            return
        found = client.artifacts(run_id)
    show_answer(found, [tables.artifacts(found)], as_json)


@runs.command("trace")
@click.argument("run_ids", metavar="ID [ID]", type=int, nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(get_args(trace_files.Format)), help="[default: by FILE's name]")
@click.option("-o", "--output", type=OutputFile(), required=True, metavar="FILE",
              help=".json or .json.gz for Chrome and Perfetto, .prv for Paraver (with .pcf and .row)")  # fmt: skip
@server_option
@json_option
def write_trace(
    run_ids: tuple[int, ...], form: trace_files.Format | None, output: Path, server: str, as_json: bool
) -> None:
    """Write the timeline of a traced run; a Chrome file may show two runs with aligned steps."""
    form = form or trace_files.format_of(output)
    traces = []
    with connect(server) as client, TemporaryFolder() as folder:
        for run_id in run_ids:
            raw = folder / f"{run_id}.json.gz"
            if trace_files.ARTIFACT not in {item.name for item in client.artifacts(run_id).items}:
                beside = [str(run.id) for run in client.runs(client.run(run_id).experiment_id) if run.traced]
                found = f"; traced runs of its experiment: {', '.join(beside[:MOST_NAMED])}" if beside else ""
                raise NoTrace(f"run {run_id} was not traced: submit it with --trace, or --trace-first{found}")
            client.download_artifact(run_id, trace_files.ARTIFACT, raw)
            trace = trace_files.read(raw)
            traces.append((f"run {run_id}: {trace.title}", trace))
    written = trace_files.write(output, form, traces)
    answer = {"run_ids": list(run_ids), "format": form, "files": [str(file) for file in written]}
    show_answer(answer, (f"wrote {file}" for file in written), as_json)


def _print(run: RunDetail, as_json: bool) -> None:
    if as_json:
        print_json(run)
        return
    out = console()
    out.print(tables.runs([run]))
    if run.queue is not None:
        out.say(f"position {run.queue.position}: {run.queue.waiting_for}")
    spent = node_time.sentence(run.node_time, run.node_time_missing)
    if spent and run.median_step_s is not None:
        out.say(spent)
    costs = [f"{value:.4g} {of}" for value, of in ((run.cost, "for its node time"), (run.cost_to_goal, "to its goal"))
             if value is not None]  # fmt: skip
    if costs:
        out.say(f"Cost: {', '.join(costs)}.")
    for attempt in run.history:
        out.say(f"attempt {attempt.attempt_no} by {attempt.worker_id}: {attempt.state} ({attempt.purpose})")
    if run.error:
        out.say(f"{run.error.get('slug')}: {run.error.get('detail')}")
        out.say(*(f"  {line}" for line in run.error.get("output") or []))
