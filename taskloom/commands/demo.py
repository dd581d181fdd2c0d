"""`taskloom demo`: Compare serial, fork-join and task on 1 core and on all."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from gpt2core.spec import extras
from taskloom.commands.output import json_option, verbose_option
from taskloom.demo import MODELS, carry_out
from taskloom.processes import Processes, with_processes


@click.command()
@click.option("--model", type=click.Choice(list(MODELS)), default="small", show_default=True)
@click.option("--repetitions", type=click.IntRange(1), help="[default: as many as can decide each comparison]")
@click.option("--folder", type=click.Path(path_type=Path), help="folder to create  [default: runs/demo-DATE-TIME]")
@verbose_option
@json_option
def demo(model: str, repetitions: int | None, folder: Path | None, verbose: bool, as_json: bool) -> None:
    """Compare serial, fork-join and task on 1 core and on all: are tasks on all cores faster than on one? Then compare
    fork-join with task on an LSTM of 8 layers. Database and logs stay in a folder."""
    extras.require("server", "worker")
    folder = (folder or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")).absolute()
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise click.BadParameter(f"{folder}: {error.strerror}", param_hint="--folder") from error

    def work(processes: Processes) -> int:
        return carry_out(model, repetitions, folder, processes, as_json, verbose)

    sys.exit(with_processes(work, folder))
