"""A server and a worker as child processes of one command, and their end with it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import click

from gpt2core.process import launch
from taskloom.commands.output import say
from taskloom.errors import EXIT_WORK_FAILED, TaskloomError
from taskloom.stopping import Stopped, Stopping

PATIENCE_S = 30.0  # for a process to stop


class ProcessEnded(TaskloomError):
    """A child process has ended."""

    exit_code = EXIT_WORK_FAILED


class Processes:
    """Child processes, stopped by their process ids. logs: folder of their logs; None: they share standard error."""

    def __init__(self, stopping: Stopping, logs: Path | None) -> None:
        self._stopping, self._logs = stopping, logs
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *arguments: str) -> IO[str]:
        """Start a Taskloom process; return its standard output."""
        with contextlib.ExitStack() as open_files, self._stopping.held_back():
            log = None if self._logs is None else open_files.enter_context(self._log(name).open("w"))
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"taskloom.{name}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C reaches only this command, which stops them in order
            )
            self._running[name] = process
        assert process.stdout
        return process.stdout

    def start_both(self, server: list[str], worker: list[str]) -> str:
        """Start a server, and a worker of it; return the server's URL. Raises ProcessEnded."""
        # A preloaded library or sitecustomize may print lines before it.
        events = filter(None, map(launch.parse_event, self.start("server", *server)))
        url = next((str(event["url"]) for event in events if "url" in event), None)
        if url is None:
            raise ProcessEnded("the server did not start" + self._last_words("server"))
        self.start("worker", "--server", url, *worker)
        return url

    def check(self) -> None:
        """Raise ProcessEnded if one of them has ended."""
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                log = "" if self._logs is None else f"; its log is {self._log(name)}"
                raise ProcessEnded(f"the {name} ended with exit code {code}{log}")

    def wait(self) -> None:
        """Wait until one of them ends. Raises ProcessEnded."""
        while True:
            for process in self._running.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
            self.check()

    def stop(self) -> None:
        """Stop the worker before the server, so that it can still hand back its run."""
        for process in reversed(self._running.values()):
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()

    def _log(self, name: str) -> Path:
        assert self._logs is not None
        return self._logs / f"{name}.log"

    def _last_words(self, name: str) -> str:
        return "" if self._logs is None else f":\n{self._log(name).read_text().strip()}"


def with_processes(work: Callable[[Processes], int], logs: Path | None, stopped: int = EXIT_WORK_FAILED) -> int:
    """Run `work` with processes, stop them in any case, and return the exit code. stopped: that after Ctrl-C."""
    stopping, code = Stopping(), EXIT_WORK_FAILED
    processes = Processes(stopping, logs)
    with stopping.listening():
        try:
            code = work(processes)
        except Stopped:
            click.echo("stopped", err=True)
            code = stopped
        except TaskloomError as error:
            say(f"error: {error}", err=True)
            code = error.exit_code
        finally:
            with contextlib.suppress(Stopped), stopping.held_back():
                processes.stop()
    return code
