"""The analyses of `taskloom experiments`: causes, calibration, history, report."""

from __future__ import annotations

from typing import Any, get_args

import click

from gpt2core.spec.wording import counted
from taskloom import analysis_tables, listing, named_commit, request_file
from taskloom.commands.output import connect, json_option, limit_option, print_items, server_option, show_answer
from taskloom.commands.report import experiment_argument, report
from taskloom.contract.analysis import AlertState
from taskloom.options import require_option, required_labels, several_settings, train_options


@click.command()
@experiment_argument
@click.option("--axis", help="the setting to compare  [default: the scheduler, or the first that varies]")
@server_option
@json_option
def sweep(experiment_id: int, axis: str | None, server: str, as_json: bool) -> None:
    """Compare the values of one axis, everything else equal; p-values are adjusted for multiple comparisons."""
    with connect(server) as client:
        answer = client.sweep(experiment_id, axis)
    show_answer(answer, analysis_tables.sweep(answer), as_json)


@click.command()
@experiment_argument
@server_option
@json_option
def efficiency(experiment_id: int, server: str, as_json: bool) -> None:
    """Show where the threads' time went: parallel efficiency and its factors, waiting, bounds."""
    with connect(server) as client:
        answer = client.efficiency(experiment_id)
    show_answer(answer, analysis_tables.efficiency(answer), as_json)


@click.command()
@experiment_argument
@server_option
@json_option
def roofline(experiment_id: int, server: str, as_json: bool) -> None:
    """Show each op's share of the node's peak, and whether forward and backward are memory-bound."""
    with connect(server) as client:
        answer = client.roofline(experiment_id)
    show_answer(answer, analysis_tables.roofline(answer), as_json)


@click.command()
@experiment_argument
@click.option("--cores", help="numbers of cores  [default: 1,2,4,8,16,32,64,128]")
@server_option
@json_option
def forecast(experiment_id: int, cores: str | None, server: str, as_json: bool) -> None:
    """Forecast steps on more cores, under either scheduler, and with more ranks, beside the measured ones."""
    with connect(server) as client:
        answer = client.forecast(experiment_id, cores)
    show_answer(answer, analysis_tables.forecast(answer), as_json)


@click.command()
@experiment_argument
@click.option("--growth", "only_growth", is_flag=True, help="only training beside inference; also as JSON")
@server_option
@json_option
def memory(experiment_id: int, only_growth: bool, server: str, as_json: bool) -> None:
    """Show the memory of every variant, and training beside inference against batch, length or side of images."""
    with connect(server) as client:
        rows, growth = client.memory(experiment_id), client.memory_growth(experiment_id)
    if only_growth:
        show_answer(growth, analysis_tables.memory_growth(growth), as_json)
    else:
        show_answer(rows, (*analysis_tables.memory(rows), *analysis_tables.memory_growth(growth)), as_json)


@click.command()
@experiment_argument
@server_option
@json_option
def workload(experiment_id: int, server: str, as_json: bool) -> None:
    """Show each network's time by op and phase, memory and its growth, rates and counters, and what they amount to."""
    with connect(server) as client:
        answer = client.workload(experiment_id)
    show_answer(answer, analysis_tables.workload(answer), as_json)


@click.command()
@click.option("--run", "run_id", type=int, help="only the series of this run")
@server_option
@json_option
def history(run_id: int | None, server: str, as_json: bool) -> None:
    """Show step times of each configuration on each machine over time, with changes and alerts."""
    with connect(server) as client:
        answer = client.history(run_id)
    show_answer(answer, analysis_tables.history(answer), as_json)


@click.command()
@click.option("--node", help="only on this machine")
@click.option("--alert", multiple=True, type=click.Choice(get_args(AlertState)),
              help="only with an alert in this state; may be repeated")  # fmt: skip
@listing.filter_option("series", "scheduler = task and threads = 2")
@listing.sort_option("-last_at")
@limit_option
@server_option
@json_option
def series(limit: int, server: str, as_json: bool, **chosen: Any) -> None:
    """List the configurations on each machine, newest run first: their runs, latest step time and alerts."""
    with connect(server) as client:
        print_items(client.series(**listing.run_query(chosen)), limit, analysis_tables.series, as_json)


@click.command()
@click.argument("run_id", metavar="RUN", type=int)
@server_option
@json_option
def confirm(run_id: int, server: str, as_json: bool) -> None:
    """Queue fresh runs of a change to slower steps at RUN; they confirm or dismiss the alert."""
    with connect(server) as client:
        answer = client.confirm(run_id)
    queued = counted(answer.runs, "run")
    text = f"experiment {answer.id}: {queued} queued; see: taskloom experiments history --run {run_id}"
    show_answer(answer, [text], as_json)


@click.command()
@train_options(several=True)
@click.option(
    "--repetitions", default=12, show_default=True, type=click.IntRange(6), help="equal runs; neighbours are pairs"
)
@named_commit.commit_options
@require_option
@click.option("--show", is_flag=True, help="show the nodes' calibrations; queue nothing")
@server_option
@json_option
def calibrate(
    repetitions: int, required: tuple[str, ...], show: bool, server: str, as_json: bool, **given: Any
) -> None:
    """Queue an A/A experiment: equal runs that show the smallest difference a node can detect."""
    with connect(server) as client:
        if show:
            known = client.calibrations()
            show_answer(known, analysis_tables.calibrations(known), as_json)
            return
        commit = named_commit.options_of(given)
        base, axes = several_settings(given)
        request = {"name": "A/A", "base": base, "axes": axes, "repetitions": repetitions, "calibrates": True}
        if required:
            request["requires"] = {"labels": required_labels(required)}
        answer = client.submit(named_commit.completed(request_file.parse(request), commit))
    queued = counted(answer.runs, "equal run")
    text = f"experiment {answer.id}: {queued} queued; then see: taskloom experiments calibrate --show"
    show_answer(answer, [text], as_json)


COMMANDS = (report, calibrate, sweep, efficiency, roofline, forecast, memory, workload, history, series,
            confirm)  # fmt: skip
