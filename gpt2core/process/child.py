"""A trainer as a child process: started on chosen cores, given its settings, read, stopped as a group, reaped.

A pipe, the lifeline, connects the two. It closes when the starter ends, even by SIGKILL, and then the trainer ends.
(PR_SET_PDEATHSIG would not do: it fires when the thread ends that started the child.)

Standard library only, so that the worker and `taskloom train` start their trainers in the same way without loading one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, Any

from gpt2core.process import launch

GRACE_S = 10.0  # between asking a child to stop and killing it
FAILED_S = 60.0  # between the error that a child reports and killing it: a launcher may miss that its rank has ended
LINE_CHARS = 2000  # longer lines of output are cut
PIECE_CHARS = 1 << 20  # text without an end of line is read in pieces


@dataclass(frozen=True)
class Reported:
    """The child reported an event of the protocol (see gpt2core.process.launch)."""

    event: Mapping[str, Any]


@dataclass(frozen=True)
class Printed:
    """The child printed a line that is no event."""

    text: str


@dataclass(frozen=True)
class Exited:
    """The child and all its children have ended. code: that of the first error which it reported; without one its exit
    status, or minus the signal that ended it. (A launcher of ranks may end with the signal by which it ended others.)
    """

    code: int

    @property
    def signal_name(self) -> str | None:
        return signal.Signals(-self.code).name if self.code < 0 else None


@contextlib.contextmanager
def spawning_on(cores: Sequence[int] | None) -> Iterator[None]:
    """Start children inside this block with the given affinity, from their first instruction on.

    On Linux the mask belongs to the calling thread and fork copies it, so no code need run between fork and exec.
    """
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Waiting:
    """A trainer process that waits for its settings. Its output is not read until a `Child` is made of it.

    Raises OSError if the process cannot be started or may not use the cores.
    """

    def __init__(self, command: Sequence[str], cores: Sequence[int] | None = None) -> None:
        theirs, self.lifeline = os.pipe()
        try:
            with spawning_on(cores):
                self.process = subprocess.Popen(
                    list(command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**launch.environment(), launch.LIFELINE: str(theirs)},
                    pass_fds=(theirs,),
                    start_new_session=True,
                    text=True,
                    encoding="utf-8",
                    errors="replace",
                )
        except BaseException:
            os.close(self.lifeline)
            raise
        finally:
            os.close(theirs)

    def lives(self) -> bool:
        """Whether the process has not ended."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def withdraw(self) -> None:
        """End the process and all it started; return once it is gone."""
        os.killpg(self.process.pid, signal.SIGKILL)
        with self.process:  # closes its pipes and waits
            pass
        os.close(self.lifeline)


class Child:
    """A trainer process that has its settings. Its messages arrive in `inbox`: Reported, Printed and, last, Exited."""

    def __init__(self, waiting: Waiting, settings: Mapping[str, Any], inbox: SimpleQueue[Any]) -> None:
        self._process, self._lifeline, self._inbox = waiting.process, waiting.lifeline, inbox
        self.pid = self._process.pid
        self._overdue: threading.Timer | None = None  # runs once the child has reported an error
        self._failed: int | None = None  # that error's exit code
        process = self._process
        assert process.stdin
        assert process.stdout
        assert process.stderr
        streams = (process.stdout, process.stderr)
        self._readers = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams]
        for reader in self._readers:
            reader.start()
        threading.Thread(target=self._reap, daemon=True).start()
        with contextlib.suppress(BrokenPipeError):  # it ended before reading; its exit status has the reason
            process.stdin.write(json.dumps(settings))
            process.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()

    def terminate(self) -> None:
        """Ask the child's process group to stop."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the child's whole process group at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:  # not yet reaped, so the group's id is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in iter(lambda: stream.readline(PIECE_CHARS), ""):
                event = launch.parse_event(line)
                self._inbox.put(Printed(line.rstrip("\n")[:LINE_CHARS]) if event is None else Reported(event))
                if event is not None and event["event"] == "error" and self._overdue is None:
                    self._failed = event.get("exit_code")
                    self._overdue = threading.Timer(FAILED_S, self.kill)
                    self._overdue.daemon = True
                    with contextlib.suppress(RuntimeError):  # no thread is left: what the child says still counts
                        self._overdue.start()

    def _reap(self) -> None:
        # Kill the child's remaining children while the unreaped child still reserves the group's id.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        os.close(self._lifeline)
        for reader in self._readers:
            reader.join()
        if self._overdue is not None:
            self._overdue.cancel()
        self._inbox.put(Exited(code if self._failed is None else self._failed))
