"""Runs the trainer or METG as a child process on this machine and reports its events and its result."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from gpt2core.process import launch
from gpt2core.process.child import Child, Exited, Printed, Reported, Waiting
from gpt2core.process.temporary import TemporaryFolder
from gpt2core.spec import extras, preflight
from gpt2core.spec.errors import ConfigError, MachineError
from taskloom.stopping import Stopped, Stopping

Command = Callable[[Path], list[str]]
GRACE_S = 3.0  # between SIGTERM and SIGKILL for a trainer, whose run is lost anyway


class Settings(Protocol):
    """Settings of a child process and the cores it may use."""

    @property
    def threads(self) -> int: ...
    @property
    def cores(self) -> tuple[int, ...] | None: ...
    @property
    def allow_oversubscription(self) -> bool: ...
    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class LocalEnding:
    """End of a child process: the exit code for the command, and the trainer's result or plan."""

    exit_code: int
    result: dict[str, Any] | None
    error: Mapping[str, Any] | None


def check_cores(config: Settings) -> None:
    """Raise ConfigError for cores that this process may not use, or for more threads than cores."""
    allowed = launch.allowed_cores()
    if config.cores is not None and not set(config.cores) <= set(allowed):
        raise ConfigError("cores", list(config.cores), "cores this process may use: " + ",".join(map(str, allowed)))
    ranks = getattr(config, "ranks", 1)
    if config.cores is None and config.threads * ranks > len(allowed) and not config.allow_oversubscription:
        most = f"at most the {len(allowed)} cores this process may use"
        if ranks > len(allowed):
            raise ConfigError("ranks", ranks, most)
        raise ConfigError("threads", config.threads, most + (f" / ranks ({ranks})" if ranks > 1 else ""))


def run(
    config: Settings,
    command: Command,
    on_event: Callable[[Mapping[str, Any]], None],
    on_line: Callable[[str], None],
) -> LocalEnding:
    """Run the trainer to its end. A signal that stops this process stops the trainer first.

    Raises NotInstalled if the installation has no trainer, InputError for surroundings in which it cannot start.
    """
    extras.require("worker")
    preflight.require(preflight.SETTINGS)
    inbox: SimpleQueue[Any] = SimpleQueue()
    with TemporaryFolder() as folder:
        path = folder / "result.json"
        child: Child | None = None
        stopping = Stopping()
        with stopping.listening():
            try:
                with stopping.held_back():
                    child = Child(_started(command(path), config.cores), config.to_dict(), inbox)
                return _listen(inbox, path, on_event, on_line)
            except Stopped:
                if child is not None:
                    on_line(f"stopping: the trainer ends after its current step, or is killed after {GRACE_S:g} s")
                    _stop(child, inbox)
                return LocalEnding(1, None, {"slug": "cancelled", "detail": "stopped on request"})
            finally:
                if child is not None:
                    child.kill()


def _started(command: Sequence[str], cores: Sequence[int] | None) -> Waiting:
    """Raises MachineError."""
    try:
        return Waiting(command, cores)
    except OSError as error:  # such as no memory, no process, or a sandbox without sched_setaffinity
        raise MachineError(f"the trainer cannot be started: {error}") from error


def _listen(
    inbox: SimpleQueue[Any], path: Path, on_event: Callable[[Mapping[str, Any]], None], on_line: Callable[[str], None]
) -> LocalEnding:
    events: dict[str, Mapping[str, Any]] = {}
    while True:
        match inbox.get():
            case Reported(event):
                events.setdefault(str(event["event"]), event)  # the first of several ranks' errors is the cause
                on_event(event)
            case Printed(text):
                on_line(text)
            case Exited(code) as exited:
                return _ending(code, exited.signal_name, events, path)


def _ending(code: int, signal_name: str | None, events: Mapping[str, Mapping[str, Any]], path: Path) -> LocalEnding:
    if code == 0 and "result" in events:
        return LocalEnding(0, json.loads(path.read_bytes()), None)
    if code == 0 and "planned" in events:
        return LocalEnding(0, {k: v for k, v in events["planned"].items() if k != "event"}, None)
    error = events.get("error")
    if error is None:
        why = f"was ended by {signal_name}" if signal_name else f"ended with exit status {code} and no result"
        error = {"slug": "exit-status", "detail": f"the trainer {why}"}
    return LocalEnding(code if code in (launch.EXIT_FAILED, launch.EXIT_BAD_INPUT) else 1, None, error)


def _stop(child: Child, inbox: SimpleQueue[Any]) -> None:
    child.terminate()
    with contextlib.suppress(Empty):
        while not isinstance(inbox.get(timeout=GRACE_S), Exited):
            pass
