"""A Git repository whose commits have a small trainer: what a worker asks of it, and nothing that trains."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gpt2core.process.launch import PROTOCOL

SETTINGS = "from dataclasses import dataclass\n\n\n@dataclass\nclass TrainConfig:\n    model: str = ''\n"


class Repository:
    """A repository in a folder, without commits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=trunk")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(self.folder), *identity, *arguments]
        surroundings = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
        return done.stdout.strip()

    def commit(self, subject: str, **files: str) -> str:
        """Commit files, by their paths with __ for / and without .py; return the commit."""
        for name, text in files.items():
            path = self.folder / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "--message", subject)
        return self.git("rev-parse", "HEAD")

    def trainer(self, subject: str, comment: str, protocol: int = PROTOCOL) -> str:
        """Commit a trainer whose sources differ by a comment; return the commit."""
        return self.commit(
            subject,
            gpt2core__process__launch=f"PROTOCOL = {protocol}  # {comment}\n",
            gpt2core__spec__config=SETTINGS,
        )
