"""Options of processes that `taskloom` starts, and of `keys create`, declared once: the command line forwards them, and
server, worker and provisioner parse them. Standard library only."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8321
DEFAULT_SERVER = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
DEFAULT_DATABASE = "sqlite:///taskloom.db"
DEFAULT_LAUNCHER = "srun --mpi=pmi2 --kill-on-bad-exit=1"
PEAKS = ("once", "forced", "idle", "never")
DRAIN = ("finish", "release")
SCOPES = ("read", "submit", "worker", "admin")
MOST_DAYS = 3660


@dataclass(frozen=True)
class Option:
    """An option. metavar: of its value; none and no choices: it is a flag. several: it may be given several times.
    most: it is a whole number from `least` to this one; a number above `least`, if it is `real`. short: its letter.
    variable: of the environment, which counts without the option; unset: what holds without both, for people."""

    name: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    several: bool = False
    most: int | None = None
    least: int = 0
    real: bool = False
    default: str | int | None = None
    required: bool = False
    short: str = ""
    variable: str = ""
    unset: str = ""

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def flags(self) -> tuple[str, ...]:
        return (f"-{self.short}", self.flag) if self.short else (self.flag,)

    @property
    def text(self) -> str:
        """The help, with the variable and what holds without it."""
        notes = ", ".join(filter(None, (self.variable, self.unset)))
        return f"{self.help} [{notes}]" if notes else self.help

    @property
    def takes_value(self) -> bool:
        return self.metavar is not None or bool(self.choices)


DATABASE = Option(
    "database-url", "SQLAlchemy URL: sqlite:///FILE or postgresql://...", "URL",
    variable="TASKLOOM_DATABASE_URL", unset=DEFAULT_DATABASE,
)  # fmt: skip
PORT = Option("port", "port; 0: any free port", "PORT", most=65535, default=DEFAULT_PORT)
SERVE = (
    Option(
        "host", "address to listen on; other addresses than loopback need an admin key", "HOST", default=DEFAULT_HOST
    ),
    PORT,
    DATABASE,
    Option("workers", "server processes; more than one needs PostgreSQL", "N", least=1, most=64, default=1),
    Option("port-file", "file into which the port is written when the server listens", "FILE"),
    Option("json", "print JSON also on a terminal"),
)
CREATE_KEY = (
    Option("scope", "scope of the key", choices=SCOPES, required=True),
    Option("expires-in", "days until it expires; without it, never", "DAYS", real=True, most=MOST_DAYS),
    Option("name", "name of the key: letters, digits, spaces and . : @ / - _", "NAME", default=""),
    Option("group", "group with whose other keys and users it shares its limits", "NAME"),
    Option("output", "write it to a new file that only you can read", "FILE", short="o"),
)
WORKER = (
    Option("server", "URL of the server", "URL", variable="TASKLOOM_SERVER", unset=DEFAULT_SERVER),
    Option("worker-id", "permanent name of this worker", "ID", variable="TASKLOOM_WORKER_ID", unset="node:cores"),
    Option(
        "cores", "cores to pin trainers to, such as 0-3,8", "LIST",
        variable="TASKLOOM_CORES", unset="all it may use",
    ),
    Option("label", "a label that runs may require", "K=V", several=True, variable="TASKLOOM_LABELS"),
    Option("drain", "what SIGTERM does to the current run", choices=DRAIN, variable="TASKLOOM_DRAIN", unset="finish"),
    Option(
        "spool", "folder of undelivered results", "DIR",
        variable="TASKLOOM_SPOOL", unset="~/.local/state/taskloom/spool/WORKER_ID",
    ),
    Option("data-root", "folder of token files for runs", "DIR", variable="TASKLOOM_DATA_ROOT"),
    Option("checkpoint-root", "folder of weights for runs", "DIR", variable="TASKLOOM_CHECKPOINT_ROOT"),
    Option("wait-s", "length of a long poll in seconds, at most 25", "SECONDS", variable="TASKLOOM_WAIT_S", unset="25"),
    Option(
        "walltime", "remaining lifetime, such as 2h", "TIME",
        variable="TASKLOOM_WALLTIME", unset="that of the Slurm job",
    ),
    Option("idle-exit", "exit after this time without a run, such as 120s", "TIME", variable="TASKLOOM_IDLE_EXIT"),
    Option(
        "nodes", "nodes on which runs may have ranks", "N",
        variable="TASKLOOM_NODES", unset="those of the Slurm job",
    ),
    Option(
        "launcher",
        "command that starts ranks on several nodes; srun's options for them are added unless it contains {ranks}",
        "COMMAND", variable="TASKLOOM_LAUNCHER", unset=DEFAULT_LAUNCHER,
    ),
    Option(
        "grace", "time between SIGTERM and SIGKILL for a trainer", "TIME",
        variable="TASKLOOM_GRACE", unset="10s; in Slurm at most a third of KillWait",
    ),
    Option(
        "peaks",
        "measure the node's peaks if they are unknown; once: before the first claim, if other processes leave the "
        "cores free; forced: in any case; idle: as soon as no run has come for 20 s, until a run comes",
        choices=PEAKS, variable="TASKLOOM_PEAKS", unset="once",
    ),
    Option("once", "execute one run; exit 0 if it succeeded, 1 if not"),
    Option("resend", "send rejected results again, then exit; exit 1 if rejected again"),
    Option("quiet", "on a terminal, print no line for a run that succeeded"),
    Option("json", "print events on standard output, one JSON object per line"),
)  # fmt: skip
PROVISION = (
    Option("server", "the server, instead of the one in the file", "URL"),
    Option("state", "file that lists its jobs", "FILE", unset="~/.local/state/taskloom/provision-NAME.json"),
    Option(
        "metrics-port", "serve Prometheus metrics on this loopback port; 0: a free port, which the log names", "PORT",
        most=65535,
    ),
    Option("plan", "print the jobs that would be submitted now, and exit"),
    Option("once", "run one round, then exit"),
    Option("json", "print JSON"),
)


def add_to(parser: argparse.ArgumentParser, options: Iterable[Option]) -> None:
    """Add options to a parser; values are text or numbers. Without a default, None is what is not given."""
    for each in options:
        shown = f"{each.text} [{each.default}]" if each.default else each.text
        if not each.takes_value:
            parser.add_argument(*each.flags, action="store_true", help=shown)
        elif each.several:
            parser.add_argument(*each.flags, action="append", metavar=each.metavar, help=shown)
        else:
            parser.add_argument(
                *each.flags, metavar=each.metavar, choices=each.choices or None, type=_reader(each),
                default=each.default, required=each.required, help=shown,
            )  # fmt: skip


def _reader(option: Option) -> Callable[[str], str | int | float]:
    """Reads a value of the option. Raises ArgumentTypeError."""
    most, least = option.most, option.least
    if most is None:
        return str
    kind = "a number above" if option.real else "a whole number of at least"

    def read(text: str) -> int | float:
        try:
            value = float(text) if option.real else int(text)
        except ValueError:
            value = -1
        if not (least < value <= most if option.real else least <= value <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not accepted: {kind} {least}, at most {most}")
        return value

    return read
