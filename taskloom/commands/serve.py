"""`taskloom serve`: Start the server."""

from __future__ import annotations

import os
import sys

import click

from gpt2core.spec import extras


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="address to listen on")
@click.option("--port", default=8321, show_default=True, type=click.IntRange(0, 65535), help="port; 0: any free port")
@click.option("--database-url", envvar="TASKLOOM_DATABASE_URL", default="sqlite:///taskloom.db", show_default=True,
              help="SQLAlchemy URL of the database")  # fmt: skip
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 64),
              help="server processes; more than one needs PostgreSQL")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="print JSON also on a terminal")
def serve(host: str, port: int, database_url: str, workers: int, as_json: bool) -> None:
    """Start the server. It prints its URL when it listens. Where output is not a terminal, all of it is JSON lines."""
    extras.require("server")
    # A database URL may hold a password, which process arguments would show to everyone on the machine.
    os.environ["TASKLOOM_DATABASE_URL"] = database_url
    # exec, so that signals reach the server itself.
    options = ["--host", host, "--port", str(port), "--workers", str(workers), *["--json"] * as_json]
    os.execv(sys.executable, [sys.executable, "-P", "-m", "taskloom.server", *options])
