"""`taskloom provision`: Submit Slurm jobs with workers when the queue needs them."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from gpt2core.spec import extras
from taskloom.commands.forwarded import arguments, forwarded
from taskloom.contract.options import PROVISION


@click.command()
@click.argument("pools", metavar="POOLS.toml")
@forwarded(PROVISION)
def provision(pools: str, **given: Any) -> None:
    """Submit Slurm jobs with workers when the queue needs them, within the pools of POOLS.toml."""
    extras.require("provisioner")
    # exec, so that signals reach the provisioner itself
    options = [pools, *arguments(PROVISION, given)]
    os.execv(sys.executable, [sys.executable, "-P", "-m", "taskloom.provisioner", *options])
