"""`python -m taskloom.reference > docs/reference/cli.md`: the command line's reference, from its commands."""

from __future__ import annotations

from collections.abc import Iterator

import click

from taskloom.cli import COMMANDS, main

PREAMBLE = """\
# The command line

Made by `python -m taskloom.reference`; do not edit.

Exit codes: 0 ok, 1 the work failed, 2 bad usage or bad input, 3 the server is unreachable or refuses. With `--json` a
command prints JSON on standard output; an error is one JSON line on standard error.

`taskloom train` takes one value for each setting. `taskloom submit` takes comma lists: one value goes to the
experiment's base, several become an axis.

A worker also reads `TASKLOOM_SERVER`, `TASKLOOM_TOKEN`, `TASKLOOM_WORKER_ID`, `TASKLOOM_CORES`, `TASKLOOM_LABELS`
(`a=b,c=d`), `TASKLOOM_DRAIN`, `TASKLOOM_SPOOL`, `TASKLOOM_DATA_ROOT`, `TASKLOOM_CHECKPOINT_ROOT` and `TASKLOOM_WAIT_S`
(length of a long poll in seconds). `data` and `checkpoint` of a submitted run are names of files below these roots;
`stdlib` and `synthetic` need none. The spool is by default `~/.local/state/taskloom/spool/WORKER_ID`
(`XDG_STATE_HOME`). A worker whose cache folder cannot be written uses `SPOOL/cache` and says so.

The trainer reads `TASKLOOM_CACHE_DIR` (compiled code, measured peaks, the table of products; default
`~/.cache/taskloom`), `TASKLOOM_CLOCK` (`clock_gettime`: time tasks without the processor's counter) and
`TASKLOOM_STALL_S` (seconds without any task ending after which a run is given up; default 120).
"""


def _leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in COMMANDS if command is main else command.commands:
            child = command.get_command(context, name)
            assert child is not None
            yield from _leaves(child, (*path, name))
    else:
        yield path, command


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _section(path: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(command, info_name=" ".join(path))
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## {' '.join(path)}", "", f"`{' '.join(path)} {usage}`", "", (command.help or "").strip(), ""]
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in filter(None, records)]
    return "\n".join([*lines, "| option | |", "|---|---|", *rows, ""])


def render() -> str:
    """The whole page."""
    return "\n".join([PREAMBLE, *(_section(path, command) for path, command in _leaves(main, ("taskloom",)))])


if __name__ == "__main__":
    click.echo(render(), nl=False)
