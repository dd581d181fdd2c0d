"""`taskloom provision`: Submit Slurm jobs with workers when the queue needs them."""

from __future__ import annotations

from typing import Any

import click

from gpt2core.process import streams
from gpt2core.spec import extras
from taskloom.commands.forwarded import arguments, forwarded
from taskloom.contract.options import PROVISION


@click.command()
@click.argument("pools", metavar="POOLS.toml")
@forwarded(PROVISION)
def provision(pools: str, **given: Any) -> None:
    """Submit Slurm jobs with workers when the queue needs them, within the pools of POOLS.toml."""
    extras.require("provisioner")
    streams.become("taskloom.provisioner", [pools, *arguments(PROVISION, given)])
