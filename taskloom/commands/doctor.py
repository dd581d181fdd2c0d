"""`taskloom doctor`: is this machine fit to measure on?"""

from __future__ import annotations

import dataclasses

import click
from rich import box
from rich.table import Table

from taskloom import diagnosis
from taskloom.commands.output import console, json_option, print_json


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Is this machine fit to measure on, and what can it do? Warnings do not change the exit code."""
    checks = diagnosis.examine()
    if as_json:
        print_json({"fit": all(c.status == "ok" for c in checks), "checks": [dataclasses.asdict(c) for c in checks]})
        return
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("", "check", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = "[green]ok[/]" if check.status == "ok" else "[yellow]warn[/]"
        table.add_row(mark, check.name, check.found, check.advice)
    console().print(table)
