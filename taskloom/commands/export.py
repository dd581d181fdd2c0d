"""`taskloom export`: Write a table to FILE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gpt2core.node import files
from taskloom import frames, listing
from taskloom.commands.output import OutputFile, connect, json_option, server_option, show_answer

TABLES = ("experiments", "runs", "steps", "ops", "variants", "history", "tuning_trials")


@click.command()
@click.argument("table", type=click.Choice(TABLES))
@click.option(
    "--format", "form", type=click.Choice(["csv", "ndjson", "parquet", "arrow"]), help="[default: by FILE's name]"
)
@click.option("-o", "--output", type=OutputFile(), required=True, metavar="FILE", help="output file")
@click.option("--columns", metavar="NAME,...", help="only these, in this order")
@listing.run_options
@server_option
@json_option
def export(
    table: str, form: str | None, output: Path, columns: str | None, server: str, as_json: bool, **chosen: Any
) -> None:
    """Write a table to FILE: a row for each experiment, run, step, op, variant, trial of a tuning, point of a history.

    The options select runs; those of `taskloom experiments list` that are among them select experiments.
    """
    form = form or frames.format_of(output)
    with connect(server) as client, files.output("output", output):
        client.export(table, output, form, columns=columns, **listing.run_query(chosen))
    answer = {"table": table, "format": form, "path": str(output), "bytes": output.stat().st_size}
    show_answer(answer, [f"wrote {output}"], as_json)
