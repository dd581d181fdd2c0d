"""`taskloom up`: Start a server and a worker on this machine."""

from __future__ import annotations

import os
import sys

import click

from gpt2core.spec import extras
from taskloom.commands.forwarded import forwarded
from taskloom.commands.output import json_option, print_json
from taskloom.contract.options import DATABASE, PEAKS, PORT, WORKER
from taskloom.errors import EXIT_OK
from taskloom.processes import Processes, with_processes


@click.command()
@forwarded((PORT, DATABASE, *(each for each in WORKER if each.name == "cores")))
@click.option("--peaks", type=click.Choice(PEAKS), default="idle", show_default=True,
              help="when to measure the node's peaks (see taskloom worker)")  # fmt: skip
@json_option
def up(port: int, database_url: str | None, cores: str | None, peaks: str, as_json: bool) -> None:
    """Start a server and a worker on this machine, and print the server's address. Ctrl-C or SIGTERM ends both.

    Once the server has keys, the worker needs one of scope worker in TASKLOOM_TOKEN or TASKLOOM_TOKEN_FILE, and both
    end without it.
    """
    extras.require("server", "worker")
    # A database URL may hold a password, which process arguments would show to everyone on the machine.
    if database_url is not None:
        os.environ["TASKLOOM_DATABASE_URL"] = database_url
    worker = ["--peaks", peaks, "--drain", "release", "--quiet", *(["--cores", cores] if cores else [])]

    def work(processes: Processes) -> int:
        url = processes.start_both(["--port", str(port), *["--json"] * as_json], worker)
        if as_json:
            print_json({"event": "listening", "url": url})
        else:
            click.echo(f"Taskloom is at {url}/ with a worker on this machine; Ctrl-C ends both")
        processes.wait()
        return EXIT_OK

    sys.exit(with_processes(work, None, stopped=EXIT_OK))
