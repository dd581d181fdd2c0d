"""Options of `taskloom worker` and `taskloom provision`, declared once: the command line forwards them, and the worker
and the provisioner parse them. Standard library only."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT_SERVER = "http://127.0.0.1:8321"
PEAKS = ("once", "forced", "idle", "never")
DRAIN = ("finish", "release")


@dataclass(frozen=True)
class Option:
    """An option. metavar: of its value; none and no choices: it is a flag. several: it may be given several times.
    most: it is an integer from 0 to this number."""

    name: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    several: bool = False
    most: int | None = None

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def takes_value(self) -> bool:
        return self.metavar is not None or bool(self.choices)


WORKER = (
    Option("server", f"URL of the server [TASKLOOM_SERVER, {DEFAULT_SERVER}]", "URL"),
    Option("worker-id", "permanent name of this worker [TASKLOOM_WORKER_ID, node:cores]", "ID"),
    Option("cores", "cores to pin trainers to, such as 0-3,8 [TASKLOOM_CORES, all it may use]", "LIST"),
    Option("label", "a label that runs may require [TASKLOOM_LABELS]", "K=V", several=True),
    Option("drain", "what SIGTERM does to the current run [TASKLOOM_DRAIN, finish]", choices=DRAIN),
    Option(
        "spool", "folder of undelivered results [TASKLOOM_SPOOL, ~/.local/state/taskloom/spool/WORKER_ID]", "DIR"
    ),
    Option("data-root", "folder of token files for runs [TASKLOOM_DATA_ROOT]", "DIR"),
    Option("checkpoint-root", "folder of weights for runs [TASKLOOM_CHECKPOINT_ROOT]", "DIR"),
    Option("wait-s", "length of a long poll in seconds, at most 25 [TASKLOOM_WAIT_S, 25]", "SECONDS"),
    Option("walltime", "remaining lifetime, such as 2h [TASKLOOM_WALLTIME, that of the Slurm job]", "TIME"),
    Option("idle-exit", "exit after this time without a run, such as 120s [TASKLOOM_IDLE_EXIT]", "TIME"),
    Option(
        "grace",
        "time between SIGTERM and SIGKILL for a trainer [TASKLOOM_GRACE, 10s; in Slurm at most a third of KillWait]",
        "TIME",
    ),
    Option(
        "peaks",
        "measure the node's peaks if they are unknown; once: before the first claim, if other processes leave the "
        "cores free; forced: in any case; idle: as soon as no run has come for 20 s, until a run comes "
        "[TASKLOOM_PEAKS, once]",
        choices=PEAKS,
    ),
    Option("once", "execute one run; exit 0 if it succeeded, 1 if not"),
    Option("resend", "send rejected results again, then exit; exit 1 if rejected again"),
    Option("quiet", "on a terminal, print no line for a run that succeeded"),
    Option("json", "print events on standard output, one JSON object per line"),
)
PROVISION = (
    Option("server", "the server, instead of the one in the file", "URL"),
    Option("state", "file that lists its jobs [~/.local/state/taskloom/provision-NAME.json]", "FILE"),
    Option(
        "metrics-port", "serve Prometheus metrics on this loopback port; 0: a free port, which the log names", "PORT",
        most=65535,
    ),
    Option("plan", "print the jobs that would be submitted now, and exit"),
    Option("once", "run one round, then exit"),
    Option("json", "print JSON"),
)


def add_to(parser: argparse.ArgumentParser, options: Iterable[Option]) -> None:
    """Add options to a parser; values are text or integers, and None if they are not given."""
    for each in options:
        if not each.takes_value:
            parser.add_argument(each.flag, action="store_true", help=each.help)
        elif each.several:
            parser.add_argument(each.flag, action="append", metavar=each.metavar, help=each.help)
        else:
            kind = str if each.most is None else int
            parser.add_argument(
                each.flag, metavar=each.metavar, choices=each.choices or None, type=kind, help=each.help
            )
