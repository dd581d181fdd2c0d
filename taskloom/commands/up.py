"""`taskloom up`: Start a server and a worker on this machine."""

from __future__ import annotations

import os
import sys

import click

from gpt2core.spec import extras
from taskloom.commands.output import json_option, print_json
from taskloom.errors import EXIT_OK
from taskloom.processes import Processes, with_processes


@click.command()
@click.option("--port", default=8321, show_default=True, type=click.IntRange(0, 65535), help="port; 0: any free port")
@click.option("--database-url", envvar="TASKLOOM_DATABASE_URL", default="sqlite:///taskloom.db", show_default=True,
              help="SQLAlchemy URL of the database")  # fmt: skip
@click.option("--cores", metavar="LIST", help="cores to pin trainers to, such as 0-3,8 [TASKLOOM_CORES, all]")
@click.option("--peaks", type=click.Choice(["once", "forced", "idle", "never"]), default="idle", show_default=True,
              help="when to measure the node's peaks (see taskloom worker)")  # fmt: skip
@json_option
def up(port: int, database_url: str, cores: str | None, peaks: str, as_json: bool) -> None:
    """Start a server and a worker on this machine, and print the server's address. Ctrl-C or SIGTERM ends both.

    Once the server has keys, the worker needs one of scope worker in TASKLOOM_TOKEN or TASKLOOM_TOKEN_FILE, and both
    end without it.
    """
    extras.require("server", "worker")
    # A database URL may hold a password, which process arguments would show to everyone on the machine.
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
