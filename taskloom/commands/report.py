"""`taskloom report`: Write an experiment's report as a page, or in the forms that CI systems show."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from gpt2core.node import files
from gpt2core.spec.files import write_text
from taskloom.analysis.report import FAILING, Report, junit, markdown, page
from taskloom.analysis.thresholds import EXCEEDED, Judged, Threshold, judge, parse
from taskloom.commands.output import (
    OutputFile,
    connect,
    fail_on_option,
    json_option,
    print_json,
    server_option,
    show_answer,
    verbose_option,
)
from taskloom.contract import edited
from taskloom.errors import EXIT_WORK_FAILED

SUMMARY = "GITHUB_STEP_SUMMARY"  # GitHub's runner names the file of a step's summary in it
SUFFIXES = {".json": "json", ".md": "markdown", ".xml": "junit"}
# The text of a report, by the verdicts that fail and what was judged by thresholds.
FORMS: dict[str, Callable[[Report, tuple[str, ...], Sequence[Judged]], str]] = {
    "html": lambda report, _, __: page(report),
    "json": lambda report, _, judged: json.dumps(_plain(report, judged)) + "\n",
    "markdown": lambda report, _, __: markdown(report),
    "junit": lambda report, fail_on, judged: junit(report, fail_on or FAILING, judged),
    "github-summary": lambda report, _, __: markdown(report),
}
experiment_argument = click.argument("experiment_id", metavar="ID", type=int)


def _plain(report: Report, judged: Sequence[Judged]) -> dict[str, Any]:
    """The report, with what was judged by thresholds if there are some."""
    thresholds = {"thresholds": [dataclasses.asdict(each) for each in judged]} if judged else {}
    return dataclasses.asdict(report) | thresholds


def write(text: str, target: Path, appends: bool = False) -> None:
    """Write a report to a file. Raises ConfigError."""
    if not appends:
        with files.output("output", target):
            write_text(target, text)
        return
    with files.output(SUMMARY, target), target.open("a", encoding="utf-8") as file:
        file.write(text)


def read_thresholds(file: Path, hint: str) -> list[Threshold]:
    """The thresholds of a file. Raises BadParameter, which names the parameter `hint`."""
    try:
        return parse(edited.parse_toml(edited.read_text(file)))
    except (OSError, ValueError, RecursionError) as error:
        raise click.BadParameter(f"{file}: {error}", param_hint=hint) from error


@click.command()
@experiment_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMS)),
    help="github-summary appends Markdown to the file that GITHUB_STEP_SUMMARY names; json, markdown and junit without "
    "OUTPUT are printed  [default: by the name of OUTPUT (.json, .md, .xml), else html]",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="output file  [default: report-ID.html for a page]",
)
@click.option(
    "--thresholds",
    "limits",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="TOML file with a reference, upper and lower limits of step times; the exit code is 1 if one is exceeded",
)
@click.option("--leave-out-disturbed", is_flag=True, help="exclude runs with foreign load")
@fail_on_option
@verbose_option
@server_option
@json_option
def report(
    experiment_id: int,
    form: str | None,
    output: Path | None,
    limits: Path | None,
    leave_out_disturbed: bool,
    fail_on: tuple[str, ...],
    verbose: bool,
    server: str,
    as_json: bool,
) -> None:
    """Write an experiment's report as a page, Markdown or JUnit XML.

    With --json, it is printed as JSON, and only OUTPUT is written, if given. In JUnit XML each comparison is a test:
    those with a verdict of --fail-on (slower and refused without it) have failed, undecided ones are skipped. The exit
    code is 1 if --fail-on names the verdict on the experiment's question, or without one that of its first sentence,
    on the most threads; otherwise 0.
    """
    form = form or SUFFIXES.get("" if output is None else output.suffix, "html")
    target, appends = output, form == "github-summary" and output is None
    if appends:
        if not os.environ.get(SUMMARY):
            needs = f"github-summary needs -o FILE where {SUMMARY} names no file; GitHub's runner sets it in each step"
            raise click.BadParameter(needs, param_hint="--format")
        target = Path(os.environ[SUMMARY])
        write("", target, appends)  # it can be written, or is refused before the server is asked
    elif form == "html" and not as_json and output is None:
        target = Path(f"report-{experiment_id}.html")
        files.check_output("output", target)
    given = [] if limits is None else read_thresholds(limits, "--thresholds")
    with connect(server) as client:
        found = client.report(experiment_id, leave_out_disturbed)
    shared = {**(found.experiment.request.get("base") or {}), **found.design.problem}
    judged = judge(given, found.scaling.rows, shared)
    found = dataclasses.replace(found, answer=[*found.answer, *(each.sentence for each in judged)])
    text = FORMS[form](found, fail_on, judged)
    if target is not None:
        write(text, target, appends)
    if as_json:
        print_json(_plain(found, judged))
    elif target is None:
        click.echo(text, nl=False)
    else:
        marks = found.marks if verbose else ()
        shown = [*(f"- {point}" for point in found.answer), *marks, f"written to {target}"]
        show_answer(found, shown, as_json=False)
    exceeded = any(each.state in EXCEEDED for each in judged)
    if exceeded or found.sweep.verdict.verdict in fail_on:
        raise click.exceptions.Exit(EXIT_WORK_FAILED)
