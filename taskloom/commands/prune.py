"""`taskloom prune`: Delete old runs with their attempts, results, output and artifacts."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import click

from gpt2core.spec.wording import counted
from taskloom.commands.output import connect, console, json_option, print_json, server_option
from taskloom.contract import durations
from taskloom.contract.retention import EndedState, PruneReport, PruneRequest


def _age_s(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    found = durations.seconds(text)
    if found is None:
        raise click.BadParameter(f"{text!r}: give an age such as {durations.EXAMPLES}")
    return found


@click.command()
@click.option("--older-than", required=True, callback=_age_s, metavar="AGE", help="age since their end, such as 90d")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(get_args(EndedState)), help="only in these states  [all]"
)
@click.option("--experiment", "experiment_id", type=click.IntRange(1), help="only runs of this experiment")
@click.option("--dry-run", is_flag=True, help="count only; delete nothing")
@server_option
@json_option
def prune(
    older_than: float,
    states: tuple[EndedState, ...],
    experiment_id: int | None,
    dry_run: bool,
    server: str,
    as_json: bool,
) -> None:
    """Delete old runs with their attempts, results, output and artifacts. Needs an admin key.

    Unfinished experiments are left untouched. Experiments without runs and unused artifact files are deleted too.
    """
    fields = {"older_than_s": older_than, "experiment_id": experiment_id, "dry_run": dry_run}
    request = PruneRequest.model_validate({**fields, **({"states": list(states)} if states else {})})
    total: Counter[str] = Counter()
    with connect(server) as client:
        more = True
        while more:
            report = client.prune(request)
            more = report.more
            total.update({name: count for name, count in report if name not in ("dry_run", "more")})
    done = PruneReport(dry_run=dry_run, more=False, **total)
    if as_json:
        print_json(done)
        return
    verb = "would delete" if dry_run else "deleted"
    console().say(
        f"{verb} {counted(done.runs, 'run')} with {counted(done.attempts, 'attempt')}, "
        f"{counted(done.results, 'result')}, {counted(done.output_lines, 'output line')} and "
        f"{counted(done.artifacts, 'artifact')}; {counted(done.experiments, 'experiment')} without runs; "
        f"{counted(done.files, 'file')} of {done.bytes:,} B"
    )
