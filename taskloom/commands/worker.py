"""`taskloom worker`: becomes the worker's process."""

from __future__ import annotations

import os
import sys

import click

from taskloom import extras


@click.command()
@click.option("--server", metavar="URL", help="[TASKLOOM_SERVER, http://127.0.0.1:8321]")
@click.option("--token", metavar="T", help="key for the server; better in TASKLOOM_TOKEN, which nobody else sees")
@click.option("--worker-id", metavar="ID", help="this worker's lasting name [TASKLOOM_WORKER_ID, node:cores]")
@click.option("--cores", metavar="LIST", help="cores a trainer may be pinned to, as 0-3,8 [TASKLOOM_CORES, all]")
@click.option("--label", multiple=True, metavar="K=V", help="what runs may require [TASKLOOM_LABELS]")
@click.option("--drain", type=click.Choice(["finish", "release"]), help="the current run on SIGTERM [TASKLOOM_DRAIN]")
@click.option("--spool", metavar="DIR", help="where results wait for the server [TASKLOOM_SPOOL]")
@click.option("--data-root", metavar="DIR", help="token files that runs may name [TASKLOOM_DATA_ROOT]")
@click.option("--checkpoint-root", metavar="DIR", help="weights that runs may name [TASKLOOM_CHECKPOINT_ROOT]")
@click.option("--walltime", metavar="TIME", help="it ends after so long, as 2h [TASKLOOM_WALLTIME, the Slurm job]")
@click.option("--idle-exit", metavar="TIME", help="leave after so long without a run, as 120s [TASKLOOM_IDLE_EXIT]")
@click.option("--grace", metavar="TIME", help="from asking a trainer to stop to killing it [TASKLOOM_GRACE, 10s]")
@click.option("--peaks", type=click.Choice(["once", "never"]),
              help="measure what the node reaches at most before the first claim, if that is not known yet "
              "[TASKLOOM_PEAKS, once]")  # fmt: skip
@click.option("--once", is_flag=True, help="execute one run; exit 0 if it succeeded, 1 if not")
@click.option("--resend", is_flag=True, help="send results again that a server refused, then exit; 1 if it does again")
@click.option("--json", is_flag=True, help="one JSON event a line on standard output")
def worker(
    token: str | None, label: tuple[str, ...], once: bool, resend: bool, json: bool, **given: str | None
) -> None:
    """Execute runs on this machine until stopped. SIGTERM drains, a second one stops at once."""
    extras.require("worker")
    arguments = [sys.executable, "-P", "-m", "taskloom.worker"]
    for name, value in given.items():
        if value is not None:
            arguments += ["--" + name.replace("_", "-"), value]
    for pair in label:
        arguments += ["--label", pair]
    arguments += ["--once"] * once + ["--resend"] * resend + ["--json"] * json
    if token is not None:
        os.environ["TASKLOOM_TOKEN"] = token
    os.execv(sys.executable, arguments)  # so that signals reach the worker itself
