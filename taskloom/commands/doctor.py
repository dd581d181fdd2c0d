"""`taskloom doctor`: Check whether this machine is fit to measure on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from gpt2core.node import load, peaks
from gpt2core.spec import extras
from gpt2core.spec.wording import counted
from taskloom import diagnosis, local_run
from taskloom.commands.output import console, error_console, failure, json_option, print_json, result_of
from taskloom.errors import EXIT_BAD_INPUT, EXIT_WORK_FAILED
from taskloom.progress import Bar
from taskloom.tables import number

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@click.option("--peaks", "measure", is_flag=True,
              help="measure the node's peaks by number of threads; later results contain them")  # fmt: skip
@click.option("--force", is_flag=True, help="with --peaks: measure even if other processes keep cores busy")
@click.option("--pools", metavar="POOLS.toml", help="check also what `taskloom provision POOLS.toml` needs here")
@json_option
def doctor(measure: bool, force: bool, pools: str | None, as_json: bool) -> None:
    """Check whether this machine is fit to measure on, and print what server, worker and trainer check when they start.

    The exit code is 2 if a check fails, that is, if one of them cannot start here. Warnings do not change it.
    """
    if force and not measure:
        raise click.UsageError("--force needs --peaks")
    if measure:
        extras.require("worker")
    if pools is not None:
        extras.require("provisioner")
    surroundings, unfit = diagnosis.surroundings(pools)
    if unfit is None:
        checks = [*diagnosis.examine(), *surroundings]
        show(checks, measured_peaks(force, as_json) if measure else peaks.read(), as_json)
    else:
        show(surroundings, None, as_json)
    for check in surroundings:
        if check.status == "fail":
            message = unfit or check.advice
            raise failure(message, {"error": message, "slug": "bad-surroundings"}, EXIT_BAD_INPUT, as_json)


def show(checks: Sequence[diagnosis.Check], found: Mapping[str, Any] | None, as_json: bool) -> None:
    """Print the checks, and the node's peaks if they are known."""
    if as_json:
        fit = all(check.status == "ok" for check in checks)
        print_json({"fit": fit, "checks": [dataclasses.asdict(check) for check in checks], "peaks": found})
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("result", "check", "finding", "advice"):
        table.add_column(column, overflow="fold")
    for check in checks:
        table.add_row(Text(check.status, COLOURS[check.status]), check.name, check.found, check.advice)
    console().print(table, *([] if found is None else [peaks_table(found)]))


def measured_peaks(force: bool, as_json: bool) -> dict[str, Any]:
    """Measure in a child process, unless other processes keep the machine busy; return the kept peaks."""
    busy = load.Others().busy_cores()
    if busy > load.MOST_BUSY_CORES and not force:
        message = (
            f"other processes keep {busy:.1f} cores busy; with more than {load.MOST_BUSY_CORES:g} the "
            "measured peaks are too low. Stop these processes, or measure with --force"
        )
        raise failure(message, {"error": message, "busy_cores": busy}, EXIT_WORK_FAILED, as_json)
    with Bar(error_console(), not as_json, "measuring the node's peaks; nothing else should run") as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["event"] == "peak":
                threads = counted(event["threads"], "thread")
                text = f"measuring the node's peaks with {threads}; nothing else should run"
                bar.update(text, event["done"], event["total"])

        ending = local_run.run(peaks.Everything(), peaks.command, show, bar.line)
    return result_of(ending, "the measurement failed", as_json)


def peaks_table(found: Mapping[str, Any]) -> Table:
    """Table of the node's peaks by number of threads."""
    blas = found["blas"]
    title = f"peaks, measured {found['measured_at']} with {blas['name']} {blas['version']}{_beside(found)}"
    earlier = found.get("earlier")
    if earlier:
        figures = counted(earlier["figures"], "better figure")
        title += f"; {figures} kept from the measurement at {earlier['measured_at']}{_beside(earlier)}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    rates = {
        "gflop_per_s": "fp32 products, GFLOP/s",
        "registers_gflop_per_s": "fp32 registers, GFLOP/s",
        "bf16_gflop_per_s": "bf16 products, GFLOP/s",
        "bf16_registers_gflop_per_s": "bf16 registers, GFLOP/s",
    }
    for column in ("threads", *rates.values(), "triad, GB/s"):
        table.add_column(column, justify="right")
    for threads, reached in found["threads"].items():
        cells = (number(reached[name], 0) for name in rates)
        table.add_row(threads, *cells, f"{reached['triad_gb_per_s']:.1f}")
    return table


def _beside(measurement: Mapping[str, Any]) -> str:
    """The load of a measurement; old ones lack it."""
    busy = measurement.get("busy_cores")
    return "" if busy is None else f" while others kept {busy:.1f} cores busy"
