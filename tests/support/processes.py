"""Real processes for tests. They are started, read, awaited and ended by their process ids."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.support import forks
from tests.support.patience import DEADLINE_S, until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def has_ended(process: psutil.Process) -> bool:
    """Whether the process has ended, whether or not its parent has reaped it."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # reaped between the two questions
        return True


def gone(process: psutil.Process) -> None:
    """Return once the process has ended."""
    until(lambda: has_ended(process), f"the end of {process}")


class Process:
    """A process whose standard output is read line by line and kept; standard error goes to a file."""

    def __init__(self, command: list[str], log: Path, **environment: str) -> None:
        self.log, self.lines, self._events = log, list[str](), queue.SimpleQueue[str | None]()
        whole, forked = {**os.environ, **environment}, [sys.executable, "-P", "-m", forks.MODULE]
        self.popen: subprocess.Popen[str] | forks.Fork
        with log.open("ab") as errors:
            if command[: len(forked)] == forked and forks.possible(whole):
                self.popen = forks.Fork(command[len(forked) :], errors, whole)
            else:
                self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=whole)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout
        with self.popen.stdout as stream:
            for line in stream:
                self.lines.append(line)
                self._events.put(line)
        self._events.put(None)

    def event(self, name: str, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
        """Wait for the next event with this name; other events are skipped."""
        end = time.monotonic() + deadline_s
        while True:
            try:
                line = self._events.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"no event {name}; standard error:\n{self.log.read_text()[-3000:]}"
            with contextlib.suppress(json.JSONDecodeError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") == name:
                    return event

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Wait for the exit status."""
        code = self.popen.wait(deadline_s)
        self._reader.join(deadline_s)
        return code

    def end(self) -> None:
        """End the process, by SIGKILL if necessary."""
        for number, patience_s in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
            if self.popen.poll() is None:
                self.popen.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.popen.wait(patience_s)
        self._reader.join(5)


def trainer_of(worker: Process) -> psutil.Process:
    """The trainer of a worker, its only child process."""
    return until(psutil.Process(worker.popen.pid).children, "the trainer's process")[0]


def short_leases(lease_s: float, heartbeat_s: float, reap_after_s: float) -> dict[str, float]:
    """Settings of servers under which lost workers are noticed within seconds."""
    often = {"reap_every_s": 0.1, "poll_s": 0.1, "block_release_s": 0.5, "max_losses": 99}
    return {"lease_s": lease_s, "heartbeat_s": heartbeat_s, "reap_after_s": reap_after_s, **often}


class House:
    """Servers on one database, and their workers, in one folder. `settings` are those of the servers."""

    def __init__(self, folder: Path, database_url: str, **settings: object) -> None:
        self.folder, self.database_url, self.url, self._port = folder, database_url, "", 0
        self._settings = {f"TASKLOOM_{name.upper()}": str(value) for name, value in settings.items()}
        self._all: list[Process] = []
        self.temporary.mkdir(exist_ok=True)
        self.server = self.start_server()

    def start(self, name: str, *command: str, **environment: str) -> Process:
        """Start a Python process in the folder."""
        return self.run(name, [sys.executable, *command], **environment)

    def run(self, name: str, command: list[str], **environment: str) -> Process:
        log = self.folder / f"{len(self._all)}-{name}.log"
        process = Process(command, log, **{"TMPDIR": str(self.temporary), **environment})
        self._all.append(process)
        return process

    def start_server(self, **environment: str) -> Process:
        """Start the server, on the previous server's port if there was one."""
        self.server = self._serve("server", self._port, **environment)
        self.url = self.server.event("listening")["url"]
        self._port = int(self.url.rpartition(":")[2])
        return self.server

    def start_another_server(self, **environment: str) -> str:
        """Start a second server on the same database and return its URL."""
        url: str = self._serve("another-server", 0, **environment).event("listening")["url"]
        return url

    def _serve(self, name: str, port: int, **environment: str) -> Process:
        options = ("--port", str(port), "--database-url", self.database_url)
        settings = {"TASKLOOM_ARTIFACT_ROOT": str(self.artifacts), **self._settings, **environment}
        return self.start(name, "-P", "-m", "taskloom.server", *options, **settings)

    def start_worker(self, trainer: str | None = "quick", *options: str, **environment: str) -> Process:
        """Start a worker with a fake trainer of that behaviour, or with the real one. It measures no peaks by default.
        Options override the defaults."""
        command = self.worker_command(trainer, *options)
        return self.run("worker", command, **{"FAKE_TRAINER": trainer or "", "TASKLOOM_PEAKS": "never", **environment})

    def start_gated(self, name: str, *options: str, **environment: str) -> tuple[Process, Path]:
        """Start a worker with a spool of its own, and return it with a file: its fake trainer ends once the file
        exists."""
        gate = self.folder / f"{name}-gate"
        options = ("--worker-id", name, "--spool", str(self.folder / f"{name}-spool"), *options)
        return self.start_worker("gated", *options, FAKE_TRAINER_GATE=str(gate), **environment), gate

    def worker_command(self, trainer: str | None, *options: str) -> list[str]:
        program = ("-P", "-m", "taskloom.worker") if trainer is None else (str(HERE / "worker_of_fakes.py"),)
        return [sys.executable, *program, "--server", self.url, "--spool", str(self.spool), "--json", *options]

    def start_fleet(self, workers: int, *servers: str) -> Process:
        """Start many workers with null trainers in one process (fleet.py)."""
        urls = [option for url in servers or (self.url,) for option in ("--server", url)]
        spool = str(self.folder / "fleet-spool")
        command = ("-m", "tests.support.fleet", *urls, "--workers", str(workers), "--spool", spool)
        return self.start("fleet", *command, PYTHONPATH=str(ROOT))

    @property
    def artifacts(self) -> Path:
        """Artifact folder of the servers: the default, beside the SQLite file."""
        file = self.database_url.removeprefix("sqlite:///")
        return self.folder / "artifacts" if file == self.database_url else Path(f"{file}.artifacts")

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    @property
    def temporary(self) -> Path:
        """Temporary folder of all processes."""
        return self.folder / "tmp"

    def close(self) -> None:
        for process in reversed(self._all):
            process.end()


@contextlib.contextmanager
def house(folder: Path, database_url: str, **settings: object) -> Iterator[House]:
    found = House(folder, database_url, **settings)
    try:
        yield found
    finally:
        found.close()
