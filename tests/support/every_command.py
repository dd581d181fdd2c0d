"""The commands of `taskloom`, and a program that executes them in its surroundings: each in a fork of one interpreter,
which is started and loads the modules once.

    python -P every_command.py DESCRIPTOR [--lost]

The descriptor gets a JSON object: each command's exit code, and what it printed. --lost: only standard
error is read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import click

from gpt2core.process import streams
from taskloom import client  # noqa: F401 - most commands load it: once, before they are forked
from taskloom.cli import main

NONE = "987654"  # the id of nothing
TINY = ("--model", "tiny", "--batch", "2", "--seq", "16", "--steps", "3")
# Arguments with which each command reads what run and experiment 1 left, or is refused before it begins.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "bisect": (NONE, NONE), "compare": ("1", "1"), "demo": ("--folder", "."), "doctor": (), "experiments alerts": (),
    "experiments calibrate": ("--show",), "experiments cancel": (NONE,), "experiments changes": ("1",),
    "experiments confirm": (NONE,), "experiments edit": (NONE, "--name", "größe"), "experiments efficiency": ("1",),
    "experiments extend": (NONE, "--repetitions", "3"), "experiments forecast": ("1",), "experiments history": (),
    "experiments list": (), "experiments memory": ("1",), "experiments report": ("1",), "experiments retry": (NONE,),
    "experiments roofline": ("1",), "experiments scaling": ("1",), "experiments series": (),
    "experiments show": ("1",), "experiments sweep": ("1",), "experiments workload": ("1",),
    "export": ("runs", "-o", "runs.csv"),
    "infer": (*TINY, "--plan"), "keys create": ("--scope", "everything"), "keys list": (), "keys revoke": (NONE,),
    "metg": ("--threads", "0"), "provision": ("pools.toml", "--plan"), "prune": ("--older-than", "90d", "--dry-run"),
    "report": ("1", "--format", "markdown"), "runs artifacts": ("1",), "runs cancel": (NONE,), "runs changes": ("1",),
    "runs list": (), "runs log": ("1",), "runs retry": (NONE,), "runs samples": ("1",), "runs show": ("1",),
    "runs trace": ("1", "-o", "trace.json"), "serve": ("--port", "0", "--database-url", "nonsense:"),
    "submit": (*TINY, "--scheduler", "task,fork-join", "--dry-run"), "thresholds delete": ("--series", NONE),
    "thresholds list": (), "thresholds load": (NONE,), "thresholds set": ("--series", NONE, "--reference", "1"),
    "train": (*TINY, "--plan"),
    "tune": (*TINY, "--space", "scheduler=task,fork-join", "--dry-run"), "up": ("--port", "99999"),
    "webhooks create": ("nonsense:",), "webhooks delete": (NONE,), "webhooks deliveries": (NONE,),
    "webhooks list": (), "worker": ("--cores", "4000"), "workers list": (),
    "workload": ("--model", "tiny", "--dry-run"),
}  # fmt: skip
# By these arguments.
REFUSED = ("demo", "keys create", "metg", "runs trace", "serve", "up", "webhooks create", "worker")


def names(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The command line's commands, as a user writes them."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from names(found, (*path, name))
    else:
        yield " ".join(path)


def execute(command: str, loses_output: bool) -> tuple[int, str]:
    """The exit code of a command and what it printed."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for number in (2,) if loses_output else (1, 2):
                os.dup2(writable, number)
            main([*command.split(), *ARGUMENTS[command]])
        except SystemExit as ending:
            os._exit(ending.code if isinstance(ending.code, int) else 1)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(1)
    os.close(writable)
    with open(readable, "rb") as printed:  # noqa: PTH123 - a descriptor
        text = printed.read().decode(errors="backslashreplace")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


if __name__ == "__main__":
    streams.fill()  # else pipes would take the place of closed streams
    results = {command: execute(command, "--lost" in sys.argv) for command in list(names())}
    with open(int(sys.argv[1]), "w", encoding="utf-8") as found:  # noqa: PTH123
        json.dump(results, found)
