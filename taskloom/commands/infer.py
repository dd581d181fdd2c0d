"""`taskloom infer`: Run the forward pass alone on this machine: `taskloom train --mode infer`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpt2core.spec.modes import UNREAD
from taskloom.commands.output import json_option
from taskloom.commands.train import train
from taskloom.options import prompt_file_option, train_options


@click.command()
@train_options(several=False, without=("mode", *UNREAD["infer"]))
@prompt_file_option
@click.option("--plan", is_flag=True, help="print all sizes of both modes; run nothing")
@click.option("--graph", type=click.Path(path_type=Path), metavar="FILE.dot", help="write the task graph for Graphviz")
@click.option("--prove", is_flag=True, help="prove the task graph race-free even if a proven one is cached")
@json_option
@click.pass_context
def infer(context: click.Context, /, **given: Any) -> None:
    """Run the forward pass alone on this machine: `taskloom train --mode infer`. Print the measurements."""
    context.invoke(train, mode="infer", **given)
