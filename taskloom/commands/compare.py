"""`taskloom compare`: Compare two runs or two selections of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from taskloom import tables
from taskloom.commands.output import (
    connect,
    console,
    fail_on_option,
    json_option,
    print_json,
    say_warnings,
    server_option,
    verbose_option,
)
from taskloom.errors import EXIT_WORK_FAILED

if TYPE_CHECKING:
    from taskloom.analysis.compared import Comparison


@click.command()
@click.argument("a")
@click.argument("b")
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
    noise_floor: float | None,
    leave_out_flagged: bool,
    fail_on: tuple[str, ...],
    verbose: bool,
    server: str,
    as_json: bool,
) -> None:
    """Compare two runs or two selections of runs: verdict on B relative to A, ratio, 95 % interval.

    A and B are run ids such as 12,13, or a selection such as experiment_id=7,scheduler=task,threads=2. The verdict is
    faster, slower, same, undecided or refused. Two variants of one experiment are judged in its family of comparisons,
    the experiment's question alone. The exit code is 1 if --fail-on names the verdict, otherwise 0.
    """
    with connect(server) as client:
        answer = client.compare(a, b, noise_floor, leave_out_flagged)
    if as_json:
        print_json(answer)
    else:
        _print(answer, verbose)
    if answer.verdict in fail_on:
        raise click.exceptions.Exit(EXIT_WORK_FAILED)


def _print(answer: Comparison, verbose: bool) -> None:
    out = console()
    out.print(tables.comparison(answer))
    family = [answer.family.sentence] if answer.family is not None and answer.family.sentence else []
    lines = [answer.sentence, *family, answer.reason, *tables.instructions(answer.instructions)]
    lines += [f"other differences between A and B: {', '.join(answer.differs)}"] if answer.differs else []
    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    say_warnings(out, answer.marks, answer.brief, verbose)
