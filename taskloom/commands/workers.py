"""`taskloom workers`: List workers with their state."""

from __future__ import annotations

import click

from taskloom import tables
from taskloom.commands.output import connect, json_option, limit_option, print_items, server_option


@click.group()
def workers() -> None:
    """List workers with their state."""


@workers.command("list")
@limit_option
@server_option
@json_option
def list_workers(limit: int, server: str, as_json: bool) -> None:
    """List workers: idle, busy, measuring peaks, ending (its walltime), silent or left."""
    with connect(server) as client:
        print_items(client.workers(), limit, tables.workers, as_json)
