"""`taskloom workload`: Queue a workload analysis: networks in both modes, under several schedulers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpt2core.spec.errors import ConfigError
from taskloom import analysis_tables, named_commit, request_file, tables, watch
from taskloom.commands.output import (
    OutputFile,
    connect,
    error_console,
    json_option,
    server_option,
    show_answer,
    shown_at,
)
from taskloom.commands.report import FORMS, SUFFIXES, write
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.templates import WORKLOAD
from taskloom.errors import EXIT_WORK_FAILED
from taskloom.options import several_settings, train_options

# Settings with several values, and the fields of the template that they are.
LISTS = {"scheduler": "schedulers", "threads": "threads", "mode": "modes"}


@click.command()
@train_options(several=True)
@click.option(
    "--batches", metavar="N,...", help="factors of the batch of further runs, for the growth of memory  [default: 2]"
)
@click.option("--images", metavar="DATA", help="real data of networks that read images, such as cifar10:NAME")
@click.option("--pairs", metavar="DATA", help="real data of networks that read pairs, such as pairs:NAME")
@click.option("--cloze", metavar="DATA", help="real data of networks that read cloze records, such as cloze:NAME")
@click.option("--name", default="", help="name of the experiment")
@click.option(
    "--repetitions", type=click.IntRange(1),
    help="runs of each variant, each in a fresh process  [default: as many as can decide one comparison]",
)  # fmt: skip
@named_commit.commit_options
@click.option("--dry-run", is_flag=True, help="show the planned runs; queue nothing")
@click.option("--wait", is_flag=True, help="wait for the analysis and print it; exit 1 if a run failed")
@click.option(
    "-o", "--output", type=OutputFile(), help="with --wait: write the report to this file"
)
@server_option
@json_option
def workload(
    batches: str | None,
    images: str | None,
    pairs: str | None,
    cloze: str | None,
    name: str,
    repetitions: int | None,
    dry_run: bool,
    wait: bool,
    output: Path | None,
    server: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Queue a workload analysis: networks in both modes, under several schedulers.

    It has time by op and phase, memory and its growth, rates and counters of each network; training beside inference,
    real beside generated data, schedulers beside each other.

    --model, --scheduler, --threads and --mode may have several values; --data is the real data of networks that read
    tokens. The other settings hold for all runs.
    """
    if output is not None and not wait:
        raise click.UsageError("--output needs --wait")
    commit = named_commit.options_of(given)
    real = {"images": images, "pairs": pairs, "cloze": cloze}
    request = _request(given, batches, real, {"name": name, "repetitions": repetitions})
    request = named_commit.completed(request, commit)
    with connect(server, waits=wait) as client:
        if dry_run:
            plan = client.plan(request)
            show_answer(plan, [tables.dry_run(plan)], as_json)
            return
        experiment = client.submit(request)
        if not wait:
            see = f"see: taskloom experiments workload {experiment.id}"
            show_answer(experiment, [f"experiment {experiment.id}: {experiment.name}; {see}"], as_json)
            return
        experiment = watch.until_finished(client, experiment.id, error_console(), not as_json)
        found = client.workload(experiment.id)
        if output is not None:
            write(FORMS[SUFFIXES.get(output.suffix, "html")](client.report(experiment.id), (), ()), output)
    show_answer(found, (*analysis_tables.workload(found), shown_at(experiment, client.server)), as_json)
    if experiment.by_state.get("succeeded", 0) < experiment.runs:
        raise click.exceptions.Exit(EXIT_WORK_FAILED)


def _request(
    given: dict[str, Any], batches: str | None, real: dict[str, str | None], named: dict[str, Any]
) -> ExperimentRequest:
    """Raises ConfigError for several values of another setting."""
    base, axes = several_settings(given)
    terms: dict[str, Any] = {name: data for name, data in real.items() if data is not None}
    every = {**{name: [value] for name, value in base.items()}, **axes}
    if "model" in every:
        terms["networks"] = [{"model": model} for model in every["model"]]
    terms |= {field: every[name] for name, field in LISTS.items() if name in every}
    if "data" in base:
        terms["tokens"] = base["data"]
    if batches is not None:
        try:
            terms["batches"] = [int(part) for part in batches.split(",") if part.strip()]
        except ValueError:
            raise ConfigError("batches", batches, "whole numbers from 2 on, such as 2,4; none: an empty text") from None
    several = [name for name in axes if name not in ("model", *LISTS)]
    if several:
        accepted = f"one value; a workload has several of model, {', '.join(LISTS)} only"
        raise ConfigError(several[0], axes[several[0]], accepted)
    fixed = {name: value for name, value in base.items() if name not in ("model", "data", *LISTS)}
    kept = {key: value for key, value in named.items() if value}
    return request_file.parse({"template": WORKLOAD, "workload": terms, "base": fixed, **kept})
