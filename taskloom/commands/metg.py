"""`taskloom metg`: Measure the minimum effective task granularity of schedulers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table

from gpt2core.node.files import output
from gpt2core.process import launch
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.files import write_text
from gpt2core.spec.schedulers import AUTO, RUNTIMES, parallel
from gpt2core.spec.wording import counted, seconds
from gpt2core.taskbench.granularity import COMPARED, KERNELS, MetgConfig
from gpt2core.taskbench.patterns import PATTERNS
from taskloom import local_run
from taskloom.commands.output import (
    OutputFile,
    console,
    error_console,
    json_option,
    print_json,
    result_of,
    say_warnings,
)
from taskloom.metg_plot import svg
from taskloom.options import comma_list
from taskloom.progress import Bar
from taskloom.tables import NONE, number

DEFAULT = MetgConfig()
SCALE = {"flop/s": "GFLOP/s", "B/s": "GB/s"}


def show(bar: Bar, event: Mapping[str, Any]) -> None:
    """Show an event of the child on the bar."""
    match event.get("event"):
        case "compiling":
            bar.update("graphs and kernels (compiled once after installing)")
        case "sweep":
            bar.update(completed=event.get("done"), total=event.get("total"))
        case "point":
            bar.update(f"{event.get('pattern')} {event.get('scheduler')}: {seconds(event.get('task_s'))} a task")


def _listed(text: str, everything: tuple[str, ...]) -> list[str]:
    return list(everything) if text == "all" else [part.strip() for part in text.split(",")]


@click.command()
@click.option("--pattern", multiple=True, default=("stencil_1d",), callback=comma_list, show_default=True,
              help=f"all, or a comma list of {', '.join(PATTERNS)}; may be repeated")  # fmt: skip
@click.option("--scheduler", multiple=True, default=(",".join(COMPARED),), callback=comma_list, show_default=True,
              help=f"all, or a comma list of {', '.join(parallel())}")  # fmt: skip
@click.option("--runtime", default=DEFAULT.runtime, show_default=True,
              help=f"for omp-for and omp-task: {', '.join((AUTO, *RUNTIMES))}, or a library's path")  # fmt: skip
@click.option("--kernel", type=click.Choice(KERNELS), default=DEFAULT.kernel, show_default=True,
              help="work of a task: multiply-adds in registers, or streaming through memory")  # fmt: skip
@click.option("--width", type=int, default=DEFAULT.width, show_default=True, help="points of a timestep")
@click.option("--threads", type=int, default=None, help="threads  [default: all cores this process may use]")
@click.option("--cores", default=None, help="core numbers, such as 0-1 or 0,2  [default: the first usable cores]")
@click.option("--allow-oversubscription", is_flag=True, help="allow more threads than cores")
@click.option(
    "--repetitions",
    type=int,
    default=DEFAULT.repetitions,
    show_default=True,
    help="sweeps of each pattern and scheduler",
)
@click.option("--max-grain", type=int, default=DEFAULT.max_grain, show_default=True,
              help="kernel iterations of the largest tasks; a sweep halves them down to one")  # fmt: skip
@click.option("--point-s", type=float, default=DEFAULT.point_s, show_default=True, help="seconds timed at each grain")
@click.option("--plot", type=OutputFile(), metavar="FILE.svg", help="plot efficiency over time per task")
@json_option
def metg(plot: Path | None, as_json: bool, **given: Any) -> None:
    """Measure the minimum effective task granularity of schedulers, as Task Bench defines it.

    METG(50 %) is the smallest time per task (elapsed x threads / tasks) at which the kernel still runs at half of its
    peak rate. Every task of every timed run checks that its inputs are those of the previous timestep.
    """
    if plot is not None and plot.suffix != ".svg":
        raise ConfigError("plot", str(plot), "a file ending in .svg")
    given["pattern"] = _listed(given["pattern"], PATTERNS)
    given["scheduler"] = _listed(given["scheduler"], parallel())
    if given["threads"] is None:
        allowed = MetgConfig.from_dict({"cores": given["cores"]}).cores or launch.allowed_cores()
        given["threads"] = len(allowed)
    config = MetgConfig.from_dict(given)
    local_run.check_cores(config)
    with Bar(error_console(), not as_json, "starting") as bar:
        ending = local_run.run(config, launch.metg_command, partial(show, bar), bar.line)
    result = result_of(ending, "the measurement failed", as_json)
    if plot is not None:
        with output("plot", plot):
            write_text(plot, svg(result))
    if as_json:
        print_json(result)
    else:
        console().print(summary_table(result), *grain_tables(result), sep="\n")
        say_warnings(console(), result["warnings"], (), verbose=True)


def summary_table(found: Mapping[str, Any]) -> Table:
    """METG(50 %) of each pattern and scheduler."""
    config = found["config"]
    title = (
        f"METG(50 %), {config['kernel']} kernel, width {config['width']}, {counted(config['threads'], 'thread')}; "
        f"peak {number(found['peak_per_s'] / 1e9, 1)} {SCALE[found['unit']]}"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("pattern", "scheduler"):
        table.add_column(name)
    for name in ("METG(50 %), median", "smallest", "largest", "reached in"):
        table.add_column(name, justify="right")
    for row in found["metg"]:
        values = (seconds(row[name]) for name in ("metg_s", "metg_min_s", "metg_max_s"))
        table.add_row(row["pattern"], row["scheduler"], *values, f"{row['reached']} of {row['repetitions']}")
    return table


def grain_tables(found: Mapping[str, Any]) -> list[Table]:
    """Time per task and efficiency at each grain, a table for each pattern."""
    tables = []
    for pattern in found["config"]["pattern"]:
        rows = {row["scheduler"]: row["grains"] for row in found["metg"] if row["pattern"] == pattern}
        table = Table(title=pattern, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("iterations of a task", justify="right")
        for scheduler in rows:
            table.add_column(f"{scheduler}: time per task", justify="right")
            table.add_column("efficiency", justify="right")
        by_grain = {scheduler: {point["grain"]: point for point in points} for scheduler, points in rows.items()}
        for grain in sorted({grain for points in by_grain.values() for grain in points}, reverse=True):
            cells = []
            for points in by_grain.values():
                point = points.get(grain, {"task_s": None, "efficiency": math.nan})
                share = point["efficiency"]
                cells += [seconds(point["task_s"]), NONE if math.isnan(share) else f"{100 * share:.0f} %"]
            table.add_row(f"{grain:,}", *cells)
        tables.append(table)
    return tables
