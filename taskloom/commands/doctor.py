"""`taskloom doctor`: is this machine fit to measure on?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import click
from rich import box
from rich.table import Table

from gpt2core.node import peaks
from taskloom import diagnosis, local_run
from taskloom.commands.output import console, error_console, failure, json_option, print_json
from taskloom.tables import number


@click.command()
@click.option("--peaks", "measure", is_flag=True,
              help="measure what the node reaches at most, by number of threads; later runs carry it")  # fmt: skip
@json_option
def doctor(measure: bool, as_json: bool) -> None:
    """Is this machine fit to measure on, and what can it do? Warnings do not change the exit code."""
    checks = diagnosis.examine()
    found = measured_peaks(as_json) if measure else peaks.read()
    if as_json:
        fit = all(check.status == "ok" for check in checks)
        print_json({"fit": fit, "checks": [dataclasses.asdict(check) for check in checks], "peaks": found})
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("", "check", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = "[green]ok[/]" if check.status == "ok" else "[yellow]warn[/]"
        table.add_row(mark, check.name, check.found, check.advice)
    console().print(table, *([] if found is None else [peaks_table(found)]))


def measured_peaks(as_json: bool) -> dict[str, Any]:
    """Measure here and now, in a child process."""
    screen = error_console()
    text = "measuring the node's peaks; nothing else should run"
    with screen.status(text) as status:

        def show(event: Mapping[str, Any]) -> None:
            if event["event"] == "peak":
                status.update(f"{text}; {event['threads']} threads, {event['done'] + 1} of {event['total']}")

        def pass_on(line: str) -> None:  # what the child has to say if it fails
            screen.print(line, markup=False, highlight=False)

        ending = local_run.run(peaks.Everything(), peaks.command, show, pass_on)
    if ending.result is None:
        error = dict(ending.error or {})
        message = str(error.pop("detail", "the measurement failed"))
        raise failure(message, {"error": message, **error}, ending.exit_code, as_json)
    return ending.result


def peaks_table(found: Mapping[str, Any]) -> Table:
    """What the node reaches by number of threads."""
    blas = found["blas"]
    title = f"peaks, measured {found['measured_at']} with {blas['name']} {blas['version']}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    rates = {
        "gflop_per_s": "fp32 products, GFLOP/s",
        "registers_gflop_per_s": "in registers",
        "bf16_gflop_per_s": "bf16 products, GFLOP/s",
        "bf16_registers_gflop_per_s": "in registers",
    }
    for column in ("threads", *rates.values(), "triad, GB/s"):
        table.add_column(column, justify="right")
    for threads, reached in found["threads"].items():
        told = (number(reached[name], 0) for name in rates)
        table.add_row(threads, *told, f"{reached['triad_gb_per_s']:.1f}")
    return table
