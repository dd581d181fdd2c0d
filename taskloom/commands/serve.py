"""`taskloom serve`: Start the server."""

from __future__ import annotations

import os
from typing import Any

import click

from gpt2core.process import streams
from gpt2core.spec import extras
from taskloom.commands.forwarded import arguments, forwarded
from taskloom.contract.options import DATABASE, SERVE


@click.command()
@forwarded(SERVE)
def serve(database_url: str | None, **given: Any) -> None:
    """Start the server. It prints its URL when it listens. Where output is not a terminal, all of it is JSON lines."""
    extras.require("server")
    # A database URL may hold a password, which process arguments would show to everyone on the machine.
    if database_url is not None:
        os.environ["TASKLOOM_DATABASE_URL"] = database_url
    options = arguments((each for each in SERVE if each is not DATABASE), given)
    streams.become("taskloom.server", options)
