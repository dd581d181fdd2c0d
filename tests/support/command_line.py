"""Calls of `taskloom`, either as a new process or in this process, which need not load it again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from taskloom.cli import main

TINY = ("--model", "tiny", "--batch", "2", "--seq", "16", "--steps", "3")


def taskloom(
    *arguments: str, server: str | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "taskloom.cli", *arguments]
    environment = {"TASKLOOM_START_WAIT_S": "0", **os.environ, **({"TASKLOOM_SERVER": server} if server else {})}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment, cwd=folder, check=False
    )


def cli(
    *arguments: str, server: str, folder: Path | None = None, token: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Execute a command in this process. Only for commands that do nothing but send requests to a server."""
    environment = {"TASKLOOM_SERVER": server, "TASKLOOM_TOKEN": token, **variables}
    with contextlib.chdir(folder or Path.cwd()):
        done = CliRunner().invoke(main, arguments, env=environment, catch_exceptions=False)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def json_of(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON on standard output of a command that succeeded."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
