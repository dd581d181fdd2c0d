"""`taskloom train`: Train on this machine in one child process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from gpt2core.networks.network import model_in
from gpt2core.node import host
from gpt2core.node.files import check_output
from gpt2core.process import launch
from gpt2core.process.temporary import TemporaryFolder
from gpt2core.spec.config import TrainConfig
from taskloom import local_run, trace_files, train_tables
from taskloom.commands.output import connect, console, error_console, json_option, print_json, result_of, server_option
from taskloom.options import prompt_file_option, prompt_of, single_settings, train_options
from taskloom.progress import Bar


def show(bar: Bar, unit: str, event: Mapping[str, Any]) -> None:
    """Show an event of the trainer on the bar. Warnings are printed with the result."""
    match event.get("event"):
        case "measuring":
            text = f"choosing a library for the product {event.get('product', '')} (once on a machine)"
            bar.update(text, event.get("done"), event.get("total"))
        case "compiling":
            bar.update(f"compiling {event.get('kernel', '')} (once after installing)",
                       event.get("done"), event.get("total"))  # fmt: skip
        case "planned":
            bar.update("first step")
        case "evaluation":
            bar.update(f"evaluation: loss {event['loss']:.4f}  accuracy {event['accuracy']:.1%}")
        case "step":
            loss = event.get("loss")
            text = f"{event.get('tokens_per_s', 0):,.0f} {unit}/s"
            text = f"accuracy {event['accuracy']:.1%}  {text}" if "accuracy" in event else text
            text = text if loss is None else f"loss {loss:.4f}  {text}"
            bar.update(text, event.get("step"), event.get("steps"))


def _tuned(settings: dict[str, Any], server: str) -> dict[str, Any]:
    """The settings, completed by confirmed ones of this machine. Raises ConfigError if there are none."""
    from taskloom import tuned

    core = min(launch.allowed_cores())
    with connect(server) as client:
        found = tuned.find(client, settings, host.machine(core))
    error_console().say(tuned.said(found))
    return tuned.completed(settings, found, set())


@click.command()
@train_options(several=False)
@prompt_file_option
@click.option("--plan", is_flag=True, help="print all sizes; train nothing")
@click.option("--graph", type=click.Path(path_type=Path), metavar="FILE.dot", help="write the task graph for Graphviz")
@click.option("--prove", is_flag=True, help="prove the task graph race-free even if a proven one is cached")
@click.option(
    "--tuned", "use_tuned", is_flag=True,
    help="settings that are not given are those that a tuning of this network and shape on this machine has confirmed; "
    "the server knows them",
)
@server_option
@json_option
def train(
    plan: bool, graph: Path | None, prove: bool, use_tuned: bool, server: str, as_json: bool,
    prompt_file: Path | None = None, **given: Any,
) -> None:  # fmt: skip
    """Train on this machine in one child process and print the measurements."""
    settings, network = single_settings(given | prompt_of(prompt_file, given)), given["network"]
    if use_tuned:
        settings = _tuned(settings, server)
    if "checkpoint" in settings and settings.get("model") == network:  # a checkpoint determines the model
        settings["model"] = model_in(settings["checkpoint"], network)
    config = TrainConfig.from_dict(settings)
    local_run.check_cores(config)
    form = trace_files.format_of(Path(config.trace)) if config.trace else None
    for name, path in (("save", config.save), ("trace", config.trace), ("graph", graph)):
        if path is not None:
            check_output(name, path)  # before hours of training
    bar = Bar(error_console(), not as_json, "starting the trainer")
    with TemporaryFolder() as folder, bar:
        raw = folder / "trace.json.gz"
        command = partial(launch.command, plan_only=plan, graph=graph, prove=prove, ranks=config.ranks)
        inner = config if form is None else dataclasses.replace(config, trace=str(raw))
        ending = local_run.run(inner, command, partial(show, bar, config.model.unit), bar.line)
        if ending.result is not None and config.trace and form and not plan:
            trace = trace_files.read(raw)
            trace_files.write(Path(config.trace), form, [(trace.title, trace)])
            ending.result["config"]["trace"] = config.trace
    result = result_of(ending, "the trainer failed", as_json)
    if as_json:
        print_json(result)
    elif plan:
        console().print(*train_tables.plan(result), sep="\n")
    else:
        console().print(*train_tables.result(result), sep="\n")
