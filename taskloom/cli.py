"""`taskloom`: the command line. Each module of taskloom/commands declares a command in its first line; this module
combines them and sets the exit codes."""

from __future__ import annotations

import gc
import importlib
import re
from pathlib import Path
from typing import Any

import click

from gpt2core.spec.errors import CoreError
from gpt2core.spec.version import version
from taskloom.commands.output import failure
from taskloom.errors import TaskloomError

FIRST_LINE = re.compile(r'"""`taskloom (\w+)`: (.+)\."""')


def _declared() -> dict[str, str]:
    """Name and summary of each command, from the first line of its module.

    That line is read and the module is loaded on use: the list of commands needs none of them, `train` needs no HTTP,
    and `serve` needs nothing else.
    """
    found = {}
    for file in sorted(Path(__file__).with_name("commands").glob("*.py")):
        with file.open(encoding="utf-8") as module:
            declared = FIRST_LINE.match(module.readline())
        if declared and declared[1] == file.stem:
            found[file.stem] = declared[2]
    return found


COMMANDS = _declared()  # each is taskloom.commands.NAME.NAME


class Taskloom(click.Group):
    """Command group that maps Taskloom's errors to exit codes: 0 ok, 1 the work failed, 2 bad input, 3 the server."""

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

    def invoke(self, context: click.Context) -> Any:
        wants_json = "--json" in (*context.args, *getattr(context, "_protected_args", ()))
        try:
            return super().invoke(context)
        except TaskloomError as error:
            raise failure(str(error), error.to_dict(), error.exit_code, wants_json) from error
        except CoreError as error:
            told = {"error": str(error), "slug": error.slug, **error.fields()}
            raise failure(str(error), told, error.exit_code, wants_json) from error
        except click.ClickException as error:
            if not wants_json:
                raise
            told = {"error": error.format_message(), "slug": "bad-usage"}
            raise failure(error.format_message(), told, error.exit_code, wants_json) from error


@click.group(cls=Taskloom, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(version())
def main() -> None:
    """Controlled experiments on how to parallelise the training of neural networks on CPUs.

    Exit codes: 0 ok, 1 the work failed, 2 bad usage or bad input, 3 the server is unreachable or refuses.
    """


if __name__ == "__main__":
    main()
