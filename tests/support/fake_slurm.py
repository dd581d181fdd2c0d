"""sbatch, squeue and scancel of a cluster on which every job waits for its priority. It records its arguments.

    python fake_slurm.py CALLS.jsonl sbatch|squeue|scancel ARGUMENT...
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

NAMES = ("sbatch", "squeue", "scancel")


def commands(folder: Path) -> Path:
    """A new folder for PATH with the three commands."""
    folder.mkdir()
    for name in NAMES:
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {folder}/calls.jsonl {name} "$@"\n')
        command.chmod(0o755)
    return folder


def calls(folder: Path, name: str) -> list[dict[str, Any]]:
    """The calls of one command: `arguments`, the `script` of a submitted job, and the `server` of its environment."""
    kept = folder / "calls.jsonl"
    every = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    return [call for call in every if call["name"] == name]


def main(kept: Path, name: str, arguments: list[str]) -> None:
    script = sys.stdin.read() if name == "sbatch" else ""
    with kept.open("a") as file:
        server = os.environ.get("TASKLOOM_SERVER")
        file.write(json.dumps({"name": name, "arguments": arguments, "script": script, "server": server}) + "\n")
    submitted = calls(kept.parent, "sbatch")
    if name == "sbatch":
        print(len(submitted))
    elif name == "squeue":
        for number, call in enumerate(submitted, 1):
            (job_name,) = (a.partition("=")[2] for a in call["arguments"] if a.startswith("--job-name="))
            print(f"{number}|{job_name}|PENDING|Priority")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
