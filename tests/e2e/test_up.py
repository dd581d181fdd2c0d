"""`taskloom up` on a terminal: a server and a worker that say what a person needs, and end with it."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from tests.support.command_line import TINY, taskloom
from tests.support.patience import until
from tests.support.processes import House, gone

TASKLOOM = [sys.executable, "-P", "-m", "taskloom.cli"]


class Terminal:
    """A command whose output is a terminal."""

    def __init__(self, command: list[str], folder: Path) -> None:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TASKLOOM_SPOOL": str(folder / "spool"), "COLUMNS": "200"}
        self.popen = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=folder, env=environment
        )
        os.close(theirs)
        self._read = b""
        self._reader = threading.Thread(target=self._collect, args=(ours,), daemon=True)
        self._reader.start()

    def _collect(self, file: int) -> None:
        with os.fdopen(file, "rb", buffering=0) as stream:
            while True:
                try:
                    self._read += stream.read(4096) or b""
                except OSError:  # no process has the terminal any more
                    return

    @property
    def lines(self) -> list[str]:
        return self._read.decode().replace("\r\n", "\n").splitlines()

    def line(self, pattern: str) -> re.Match[str]:
        """Wait for a line that matches."""
        return until(lambda: next(filter(None, (re.search(pattern, line) for line in self.lines)), None), pattern)

    def end(self, number: int = signal.SIGINT) -> int:
        self.popen.send_signal(number)
        code = self.popen.wait(60)
        self._reader.join(10)
        return code


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    started = Terminal([*TASKLOOM, "up", "--port", "0", "--peaks", "never"], tmp_path)
    yield started
    if started.popen.poll() is None:
        started.end(signal.SIGTERM)


def test_up_starts_both_says_what_a_person_needs_and_ends_both(terminal: Terminal, tmp_path: Path) -> None:
    first = terminal.line(r"^Taskloom is at (\S+)/ with a worker on this machine; Ctrl-C ends both$")
    url = first[1]
    terminal.line(r"^\d\d:\d\d:\d\d worker \S+ registered, cores ")
    children = psutil.Process(terminal.popen.pid).children()
    asked = ("submit", *TINY, "--name", "a\x1b[2Jb", "--wait")
    done = taskloom(*asked, server=url, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    *_, see, verdict = done.stdout.splitlines()
    assert see == f"see: {url}/ui/experiment?id=1"
    assert verdict.startswith("verdict: There is nothing to compare; smallest median: ")
    terminal.line("experiment 1 has ended: There is nothing to compare")
    assert terminal.end() == 0
    for child in children:
        gone(child)
    lines = terminal.lines
    assert any(line.endswith("experiment 1 (a\N{REPLACEMENT CHARACTER}[2Jb): 1 run") for line in lines)
    assert not any(line.startswith("{") or "\x1b" in line for line in lines)
    assert len(lines) < 10, lines


def test_up_ends_if_its_server_cannot_start(terminal: Terminal, tmp_path: Path) -> None:
    port = terminal.line(r"^Taskloom is at http://127\.0\.0\.1:(\d+)/")[1]
    done = taskloom("up", "--port", port, folder=tmp_path)
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 cannot be used" in done.stderr
    assert "error: the server did not start" in done.stderr


@pytest.mark.parametrize(
    ("asked", "path"),
    [(("submit", *TINY, "--wait", "--json"), "/experiments/1"), (("runs", "log", "1", "--follow"), "/runs/1")],
    ids=["submit", "log"],
)
def test_waiting_commands_outlast_a_server_that_restarts(
    home: House, client: Client, asked: tuple[str, ...], path: str
) -> None:
    if asked[0] == "runs":
        client.submit(ExperimentRequest.model_validate({"base": {"model": "tiny", "batch": 2, "seq": 16}}))
    command = [*TASKLOOM, *asked]
    waiting = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "TASKLOOM_SERVER": home.url})  # fmt: skip
    assert waiting.stderr
    try:
        until(lambda: f'/api/v1{path}"' in home.server.log.read_text(), "its first question")
        home.server.popen.kill()
        home.server.wait()
        assert "does not answer; trying again for 120 s\n" in waiting.stderr.readline()
        home.start_server()
        assert waiting.stderr.readline() == "the server answers again\n"
        home.start_worker("quick", "--once")
        _, errors = waiting.communicate(timeout=120)
        assert waiting.returncode == 0, errors
    finally:
        waiting.kill()
        waiting.wait()
