"""`taskloom provision`: Submit Slurm jobs with workers when the queue needs them."""

from __future__ import annotations

import os
import sys

import click

from gpt2core.spec import extras


@click.command()
@click.argument("pools", metavar="POOLS.toml")
@click.option("--server", metavar="URL", help="the server, instead of the one in the file")
@click.option("--state", metavar="FILE", help="file that lists its jobs [~/.local/state/taskloom/provision-NAME.json]")
@click.option("--metrics-port", type=click.IntRange(0, 65535),
              help="serve Prometheus metrics on this loopback port; 0: a free port, which the log names")  # fmt: skip
@click.option("--plan", is_flag=True, help="print the jobs that would be submitted now, and exit")
@click.option("--once", is_flag=True, help="run one round, then exit")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def provision(pools: str, plan: bool, once: bool, as_json: bool, **given: str | int | None) -> None:
    """Submit Slurm jobs with workers when the queue needs them, within the pools of POOLS.toml."""
    extras.require("provisioner")
    arguments = [sys.executable, "-P", "-m", "taskloom.provisioner", pools]
    for name, value in given.items():
        if value is not None:
            arguments += ["--" + name.replace("_", "-"), str(value)]
    arguments += ["--plan"] * plan + ["--once"] * once + ["--json"] * as_json
    os.execv(sys.executable, arguments)  # so that signals reach the provisioner itself
