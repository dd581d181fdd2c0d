"""`taskloom provision`: becomes the provisioner's process."""

from __future__ import annotations

import os
import sys

import click

from taskloom import extras


@click.command()
@click.argument("pools", metavar="POOLS.toml")
@click.option("--server", metavar="URL", help="instead of the file's")
@click.option("--state", metavar="FILE", help="where it notes its jobs [~/.local/state/taskloom/provision-NAME.json]")
@click.option("--metrics-port", type=click.IntRange(0, 65535),
              help="serve Prometheus metrics here, on loopback; 0: on a free port, which the log names")  # fmt: skip
@click.option("--plan", is_flag=True, help="print what would be submitted now; submit nothing")
@click.option("--once", is_flag=True, help="one round, then exit")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def provision(pools: str, plan: bool, once: bool, as_json: bool, **given: str | int | None) -> None:
    """Bring workers onto nodes through Slurm when the queue needs them, as the pools of POOLS.toml allow."""
    extras.require("provisioner")
    arguments = [sys.executable, "-P", "-m", "taskloom.provisioner", pools]
    for name, value in given.items():
        if value is not None:
            arguments += ["--" + name.replace("_", "-"), str(value)]
    arguments += ["--plan"] * plan + ["--once"] * once + ["--json"] * as_json
    os.execv(sys.executable, arguments)  # so that signals reach the provisioner itself
