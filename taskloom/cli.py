"""`taskloom`: the command line. Each module of taskloom/commands has a command; this module lists them and sets the
exit codes."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any, NoReturn

import click

from gpt2core.process import streams
from gpt2core.spec.errors import CoreError
from gpt2core.spec.extras import NotLoaded
from gpt2core.spec.version import version
from taskloom.commands.output import failure
from taskloom.errors import TaskloomError

# Each is taskloom.commands.NAME.NAME and is loaded on use: the list of commands needs none of them, `train` needs no
# HTTP, and `serve` needs nothing else.
COMMANDS = {
    "bisect": "Find the commit from which on training takes another time",
    "compare": "Compare two runs or two selections of runs",
    "demo": "Compare serial, fork-join and task on 1 core and on all",
    "doctor": "Check whether this machine is fit to measure on",
    "experiments": "List, show, edit and cancel experiments; their analyses and reports",
    "export": "Write a table to FILE",
    "infer": "Run the forward pass alone on this machine: `taskloom train --mode infer`",
    "keys": "Create, list and revoke keys",
    "metg": "Measure the minimum effective task granularity of schedulers",
    "provision": "Submit Slurm jobs with workers when the queue needs them",
    "prune": "Delete old runs with their attempts, results, output and artifacts",
    "report": "Write an experiment's report as a page, Markdown or JUnit XML",
    "runs": "List, show, cancel and retry runs, and read their results",
    "serve": "Start the server",
    "submit": "Queue an experiment from FILE",
    "thresholds": "Set, list and delete thresholds of step times in the history",
    "train": "Train on this machine in one child process",
    "tune": "Search the best setting of a space, and say how sure the answer is",
    "up": "Start a server and a worker on this machine",
    "webhooks": "Create, list and delete webhooks, and list their deliveries",
    "worker": "Execute runs on this machine until stopped",
    "workers": "List workers with their state",
    "workload": "Queue a workload analysis: networks in both modes, under several schedulers",
}
ARGUMENTS = "taskloom.arguments"  # key of the whole command line in the context's meta


class Taskloom(click.Group):
    """Command group that maps Taskloom's errors to exit codes: 0 ok, 1 the work failed, 2 bad input, 3 the server."""

    def main(self, *arguments: Any, **given: Any) -> NoReturn:
        main = super().main
        sys.exit(streams.guarded(lambda: main(*arguments, **given)))

    def list_commands(self, context: click.Context) -> list[str]:
        del context
        return list(COMMANDS)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        del context
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

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

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> Any:
        wants_json = "--json" in context.meta[ARGUMENTS]
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(streams.EXIT_INTERRUPTED) from None
        except TaskloomError as error:
            raise failure(str(error), error.to_dict(), error.exit_code, wants_json) from error
        except (CoreError, ImportError) as error:
            known = NotLoaded(error) if isinstance(error, ImportError) else error
            document = {"error": str(known), "slug": known.slug, **known.fields()}
            raise failure(str(known), document, known.exit_code, wants_json) from error
        except click.ClickException as error:
            if not wants_json:
                raise
            document = {"error": error.format_message(), "slug": "bad-usage"}
            raise failure(error.format_message(), document, error.exit_code, wants_json) from error


@click.group(cls=Taskloom, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(version())
def main() -> None:
    """Controlled experiments on how to parallelise the training of neural networks on CPUs.

    Exit codes: 0 ok, 1 the work failed, 2 bad usage or bad input, 3 the server is unreachable or refuses,
    130 ended by Ctrl-C before the command could end in order.
    """


if __name__ == "__main__":
    main()
