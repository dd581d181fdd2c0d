"""`taskloom worker`: Execute runs on this machine until stopped."""

from __future__ import annotations

import os
import sys

import click

from gpt2core.spec import extras


@click.command()
@click.option("--server", metavar="URL", help="the server [TASKLOOM_SERVER, http://127.0.0.1:8321]")
@click.option("--token", metavar="T", help="key for the server; prefer TASKLOOM_TOKEN, which other users cannot see")
@click.option("--worker-id", metavar="ID", help="permanent name of this worker [TASKLOOM_WORKER_ID, node:cores]")
@click.option("--cores", metavar="LIST", help="cores to pin trainers to, such as 0-3,8 [TASKLOOM_CORES, all]")
@click.option("--label", multiple=True, metavar="K=V", help="a label that runs may require [TASKLOOM_LABELS]")
@click.option("--drain", type=click.Choice(["finish", "release"]),
              help="what SIGTERM does to the run [TASKLOOM_DRAIN, finish]")  # fmt: skip
@click.option("--spool", metavar="DIR", help="folder of undelivered results "
              "[TASKLOOM_SPOOL, ~/.local/state/taskloom/spool/WORKER_ID]")  # fmt: skip
@click.option("--data-root", metavar="DIR", help="folder of token files for runs [TASKLOOM_DATA_ROOT]")
@click.option("--checkpoint-root", metavar="DIR", help="folder of weights for runs [TASKLOOM_CHECKPOINT_ROOT]")
@click.option("--walltime", metavar="TIME", help="remaining lifetime, such as 2h [TASKLOOM_WALLTIME, the Slurm job]")
@click.option(
    "--idle-exit", metavar="TIME", help="exit after this time without a run, such as 120s [TASKLOOM_IDLE_EXIT]"
)
@click.option("--grace", metavar="TIME", help="time between SIGTERM and SIGKILL for a trainer [TASKLOOM_GRACE, 10s]")
@click.option("--peaks", type=click.Choice(["once", "forced", "idle", "never"]),
              help="measure the node's peaks if they are unknown; once: before the first claim, if other processes "
              "leave the cores free; forced: in any case; idle: as soon as no run has come for 20 s, until a run comes "
              "[TASKLOOM_PEAKS, once]")  # fmt: skip
@click.option("--once", is_flag=True, help="execute one run; exit 0 if it succeeded, 1 if not")
@click.option("--resend", is_flag=True, help="send rejected results again, then exit; exit 1 if rejected again")
@click.option("--quiet", is_flag=True, help="on a terminal, print no line for a run that succeeded")
@click.option("--json", is_flag=True, help="one JSON event a line on standard output")
def worker(
    token: str | None,
    label: tuple[str, ...],
    once: bool,
    resend: bool,
    quiet: bool,
    json: bool,
    **given: str | None,
) -> None:
    """Execute runs on this machine until stopped. SIGTERM drains; a second SIGTERM stops immediately."""
    extras.require("worker")
    arguments = [sys.executable, "-P", "-m", "taskloom.worker"]
    for name, value in given.items():
        if value is not None:
            arguments += ["--" + name.replace("_", "-"), value]
    for pair in label:
        arguments += ["--label", pair]
    arguments += ["--once"] * once + ["--resend"] * resend + ["--quiet"] * quiet + ["--json"] * json
    if token is not None:
        os.environ["TASKLOOM_TOKEN"] = token
    os.execv(sys.executable, arguments)  # so that signals reach the worker itself
