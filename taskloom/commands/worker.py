"""`taskloom worker`: Execute runs on this machine until stopped."""

from __future__ import annotations

import os
from typing import Any

import click

from gpt2core.process import streams
from gpt2core.spec import extras
from taskloom.commands.forwarded import arguments, forwarded
from taskloom.contract.options import WORKER


@click.command()
@forwarded(WORKER[:1])
@click.option("--token", metavar="T", help="key for the server; prefer TASKLOOM_TOKEN, which other users cannot see")
@forwarded(WORKER[1:])
def worker(token: str | None, **given: Any) -> None:
    """Execute runs on this machine until stopped. SIGTERM drains; a second SIGTERM stops immediately."""
    extras.require("worker")
    if token is not None:
        os.environ["TASKLOOM_TOKEN"] = token
    streams.become("taskloom.worker", arguments(WORKER, given))
