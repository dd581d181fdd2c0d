"""Tables that `taskloom train` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.table import Table

from gpt2core.spec import networks
from gpt2core.spec.goals import LOSS
from gpt2core.spec.phases import in_order
from gpt2core.spec.result import (
    EXCHANGE_SIZES,
    EXCHANGE_TIMES,
    communication_per_step,
    energy_per_step_j,
    median,
    median_interval,
    tokens_per_step,
)
from gpt2core.spec.wording import counted, seconds, slices
from taskloom.analysis.node_time import sentence
from taskloom.analysis.roofline import Peaks, peaks_of, roofline
from taskloom.tables import NONE, number, percent

MIB = 1 << 20


def _pairs(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    return table


def plan(planned: Mapping[str, Any]) -> list[Table]:
    """Sizes of a run's graph, and of its memory in each mode; of several ranks those of one."""
    table = _pairs("plan")
    for name, value in planned.items():
        if not name.startswith("memory_bytes"):
            table.add_row(name.replace("_", " "), ",".join(map(str, value)) if isinstance(value, list) else str(value))
    by_mode = planned["memory_bytes_by_mode"]
    title = "MiB of each rank" if "ranks" in planned else "memory in MiB"
    memory = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("arena", *by_mode):
        memory.add_column(name, justify="left" if name == "arena" else "right")
    for arena in planned["memory_bytes"]:
        memory.add_row(arena, *(f"{sizes[arena] / MIB:,.1f}" for sizes in by_mode.values()))
    memory.add_row("together", *(f"{sum(sizes.values()) / MIB:,.1f}" for sizes in by_mode.values()))
    return [table, memory]


def result(found: Mapping[str, Any]) -> Iterator[Table | str]:
    """Summary, phases and ops of a run."""
    config, warmup = found["config"], int(found["config"]["warmup"])
    yield _summary(found, warmup)
    yield _phases(found, warmup)
    yield from _ops(found)
    if found.get("communication"):
        yield _communication(found, warmup)
    if found.get("tokens"):
        yield "generated tokens: " + ",".join(map(str, found["tokens"]))
    if found.get("node_time"):
        yield sentence(found["node_time"])
    for warning in found.get("warnings", []):
        yield f"warning: {warning}"
    if config.get("save"):
        yield f"weights written to {config['save']}"


def _summary(found: Mapping[str, Any], warmup: int) -> Table:
    config, timed_s = found["config"], found["step_s"][warmup:]
    cut, threads = slices(config), counted(config["threads"], "thread")
    table = _pairs(f"{config['model']['name']}, {config['scheduler']}, {threads}, slices {cut}")
    bounds = median_interval(timed_s)
    around = "" if bounds is None else f"  [{seconds(bounds[0])}, {seconds(bounds[1])}]"
    table.add_row("median step [95 %]", f"{seconds(median(timed_s))}{around}")
    for name in ("p90", "p99") if found.get("latency") else ():
        table.add_row(*_latency(found["latency"], name))
    if found.get("tokens"):
        _add_generation(table, found)
    unit = networks.unit_of(config["model"])
    table.add_row(f"{unit}/s", number(tokens_per_step(config) * len(timed_s) / sum(timed_s), 0))
    gflop_per_s = found["summary"].get("gflop_per_s")
    if gflop_per_s is not None:
        table.add_row("GFLOP/s", number(gflop_per_s, 1))
    step_j, _ = energy_per_step_j(found)
    if step_j is not None:
        of_one = "an image" if unit == "images" else "a token"
        table.add_row(f"energy of a step, {of_one}", f"{step_j:.4g} J, {step_j / tokens_per_step(config):.4g} J")
    if found["losses"]:
        table.add_row("loss, first to last step", f"{found['losses'][0]:.5f} to {found['losses'][-1]:.5f}")
    if found.get("accuracy"):
        table.add_row("accuracy, first to last step", f"{found['accuracy'][0]:.1%} to {found['accuracy'][-1]:.1%}")
    if found.get("evaluations"):
        first, last = found["evaluations"][0], found["evaluations"][-1]
        title = f"{config.get('split') or 'val'} loss and accuracy, after step {first['step']} and {last['step']}"
        table.add_row(title, " and ".join(f"{each['loss']:.5f} {each['accuracy']:.1%}" for each in (first, last)))
    if found.get("goal"):
        table.add_row(*_goal(found["goal"], len(found["step_s"])))
    if config.get("grad_accum", 1) > 1:
        table.add_row("micro-batches a step", str(config["grad_accum"]))
    norms = found.get("gradient_norms")
    if norms:
        table.add_row("gradient norm, first to last step", f"{norms[0]:.4g} to {norms[-1]:.4g}")
    for name, size in found["memory_bytes"].items():
        also = ", with the compiler" if name == "peak_rss" and found.get("compiled") else ""
        shown = f"{size / MIB:,.1f} MiB" if size or name != "peak_rss" else "not shown"
        table.add_row(f"memory: {name.replace('_', ' ')}{also}", shown)
    if found.get("checkpoint"):
        table.add_row("initial weights", "{format}, {dtype}".format_map(found["checkpoint"]))
    return table


def _goal(goal: Mapping[str, Any], steps: int) -> tuple[str, str]:
    """Row of the run's goal: what the way to it took, or that no step reached it."""
    name = f"goal: {goal['metric']} {'at most' if goal['metric'] == LOSS else 'at least'} {goal['value']:g}"
    if not goal["reached"]:
        return name, f"not reached in {counted(steps, 'step')}"
    energy = "" if goal["energy_j"] is None else f", {goal['energy_j']:.4g} J"
    return name, f"after {counted(goal['steps'], 'step')}, {seconds(goal['time_s'])}{energy}"


def _add_generation(table: Table, found: Mapping[str, Any]) -> None:
    first_s, summary = seconds(found["time_to_first_token_s"]), found["summary"]
    table.add_row(f"time to first token, {counted(len(found['config']['prompt']), 'token')} of prompt", first_s)
    triad = summary["triad_gb_per_s"]
    missing = summary.get("triad_missing") or "not measured"
    beside = missing if triad is None else f"{summary['weights_gb_per_s'] / triad:.0%} of the triad's {triad:.1f} GB/s"
    table.add_row("weights read", f"{summary['weights_gb_per_s']:.1f} GB/s; {beside}")


def _latency(latency: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Row of a quantile of the step's time, with its bounds or the number of steps that they need."""
    bounds = latency[f"{name}_ci95_s"]
    needed = f"(bounds need {latency['steps_needed'][name]} steps)"
    around = needed if bounds is None else f"[{seconds(bounds[0])}, {seconds(bounds[1])}]"
    return f"{name} of the step [95 %]", f"{seconds(latency[f'{name}_s'])}  {around}"


def _phases(found: Mapping[str, Any], warmup: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("phase")
    table.add_column("span, median", justify="right")  # from its first tile to its last; under task, spans overlap
    table.add_column("busy, all threads", justify="right")
    for phase in in_order(found["phase_s"]):
        table.add_row(phase, *(seconds(median(found[kind][phase][warmup:])) for kind in ("phase_s", "phase_busy_s")))
    return table


def _ops(found: Mapping[str, Any]) -> Iterator[Table | str]:
    """Table of ops. Rates are those of all threads together, like the node's peaks."""
    threads = int(found["config"]["threads"])
    precision = str(found["config"]["precision"])
    peaks = peaks_of(found["environment"], threads, precision)
    roofs = {} if peaks is None else {(roof.op, roof.phase): roof for roof in roofline(found["ops"], peaks)}
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("op", "phase"):
        table.add_column(name)
    beside_roof = ("of its roof", "of registers", "bound by") if roofs else ()
    for name in ("calls", "time, all threads", "GFLOP/s", "GB/s", *beside_roof):
        table.add_column(name, justify="right")
    for op in sorted(found["ops"], key=lambda each: -each["time_s"]):
        elapsed_s = op["time_s"] / threads
        rates = [number(op[work] / elapsed_s / 1e9, 1) if elapsed_s else NONE for work in ("flop", "bytes")]
        roof = roofs.get((op["op"], op["phase"]))
        share = [*(percent(each) for each in (roof.share, roof.registers_share)), roof.bound] if roof else []
        table.add_row(op["op"], op["phase"], f"{op['calls']:,}", seconds(op["time_s"]), *rates, *share)
    yield table
    if peaks is None:
        name = f"{precision} with {counted(threads, 'thread')}"
        yield f"roof: not measured for {name}; `taskloom doctor --peaks` measures it"
    else:
        yield (
            f"roof, measured with {counted(threads, 'thread')}: {peaks.gflop_per_s:.0f} GFLOP/s in {precision} "
            f"products, {peaks.triad_gb_per_s:.1f} GB/s; an op whose data is in a cache may exceed it. "
            f"{_registers(peaks)}"
        )


def _communication(found: Mapping[str, Any], warmup: int) -> Table:
    """What each rank's exchanges took in the mean of a timed step; of all kinds together they are in flight for less
    than the sum."""
    title = "communication, mean of a timed step"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("rank", justify="right")
    table.add_column("exchange")
    for name in ("in calls", "in flight", "exposed", "MiB sent", "MiB received"):
        table.add_column(name, justify="right")
    steps = len(found["step_s"]) - warmup
    for rank, together in zip(found["communication"], communication_per_step(found), strict=True):
        for each in rank["exchanges"]:
            mean = {name: each[name] / steps for name in (*EXCHANGE_TIMES, *EXCHANGE_SIZES)}
            table.add_row(str(rank["rank"]), each["exchange"], *_exchange(mean))
        table.add_row(str(rank["rank"]), "together", *_exchange(together))
    return table


def _exchange(mean: Mapping[str, float]) -> list[str]:
    times = [seconds(mean[name]) for name in EXCHANGE_TIMES]
    return [*times, *(f"{mean[name] / MIB:,.3f}" for name in EXCHANGE_SIZES)]


def _registers(peaks: Peaks) -> str:
    if peaks.registers_gflop_per_s is None:
        return "The peak of registers was not measured."
    return f"Registers: {peaks.registers_gflop_per_s:.0f} GFLOP/s of multiply-adds."
