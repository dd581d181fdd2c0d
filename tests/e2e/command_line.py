"""Calls of `taskloom` as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TINY = ("--model", "tiny", "--batch", "2", "--seq", "16", "--steps", "3")


def taskloom(
    *arguments: str, server: str | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "taskloom.cli", *arguments]
    environment = {**os.environ, **({"TASKLOOM_SERVER": server} if server else {})}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment, cwd=folder, check=False
    )


def told(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON on standard output of a command that succeeded."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
