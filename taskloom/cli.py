"""`taskloom`: the command line. Commands are in taskloom/commands; this module combines them and sets the exit
codes."""

from __future__ import annotations

import gc
import importlib
from typing import Any

import click

from gpt2core.spec.errors import CoreError
from taskloom.commands.output import failure
from taskloom.errors import TaskloomError

# Each is taskloom.commands.NAME.NAME, loaded on use: `train` needs no HTTP, and `serve` needs nothing else. The help of
# all of them needs none.
COMMANDS = {
    "serve": "Start the server",
    "worker": "Execute runs on this machine until stopped",
    "provision": "Submit Slurm jobs with workers when the queue needs them",
    "submit": "Queue an experiment from FILE",
    "runs": "List, show, cancel and retry runs, and read their results",
    "experiments": "List, show, edit and cancel experiments; their analyses and reports",
    "compare": "Compare two runs or two selections of runs",
    "export": "Write a table to FILE",
    "train": "Train on this machine in one child process",
    "metg": "Measure the minimum effective task granularity of schedulers",
    "doctor": "Check whether this machine is fit to measure on",
    "demo": "Compare serial, fork-join and task on 1 core and on all",
    "keys": "Create, list and revoke keys",
    "webhooks": "Create, list and delete webhooks, and list their deliveries",
    "prune": "Delete old runs with their attempts, results, output and artifacts",
}


class Taskloom(click.Group):
    """Command group that maps Taskloom's errors to exit codes: 0 ok, 1 the work failed, 2 bad input, 3 the server."""

    def list_commands(self, context: click.Context) -> list[str]:
        del context
        return sorted(COMMANDS)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        del context
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        del context
        if name not in COMMANDS:
            return None
        gc.disable()  # what is loaded stays: looking for garbage in it takes a fifth of the time
        try:
            found: click.Command = getattr(importlib.import_module(f"taskloom.commands.{name}"), name)
        finally:
            gc.enable()
        return found

    def invoke(self, context: click.Context) -> Any:
        wants_json = "--json" in (*context.args, *getattr(context, "_protected_args", ()))
        try:
            return super().invoke(context)
        except TaskloomError as error:
            raise failure(str(error), error.to_dict(), error.exit_code, wants_json) from error
        except CoreError as error:
            told = {"error": str(error), "slug": error.slug, **error.fields()}
            raise failure(str(error), told, error.exit_code, wants_json) from error


@click.group(cls=Taskloom, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="taskloom")
def main() -> None:
    """Controlled experiments on how to parallelise GPT-2 training on CPUs.

    Exit codes: 0 ok, 1 the work failed, 2 bad usage or bad input, 3 the server is unreachable or refuses.
    """


if __name__ == "__main__":
    main()
