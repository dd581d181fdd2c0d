"""Version of this installation, which names the commit of its sources: `0.1.0+g1a2b3c4`; and that commit itself."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RELEASE = "0.1.0"
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")  # SHA-1 or SHA-256
ROOT = Path(__file__).parents[2]
RECORD = "build.json"  # in the package: what its build recorded
GIT_S = 10.0  # longest time that Git may take


@dataclass(frozen=True)
class Origin:
    """The commit of an installation's sources. None: unknown.

    dirty: whether the sources differ from the commit. committed_at: ISO 8601, with a time zone.
    """

    version: str = RELEASE
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    committed_at: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Origin:
        """From a record, whose other entries are ignored."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: found[name] for name in names if name in found})


@functools.cache
def origin(root: Path = ROOT) -> Origin:
    """In a checkout, the commit that is checked out now, and whether Git sees changes of the trainer; otherwise what
    the build recorded."""
    commit = checked_out(root)
    if commit is None:
        return recorded(root) or _named(_installed())
    changes = git(root, "status", "--porcelain", "--", "gpt2core")
    dirty = None if changes is None else bool(changes)
    return Origin(with_commit(commit), commit, branch_of(root), dirty, git(root, "show", "-s", "--format=%cI", commit))


def _named(version: str) -> Origin:
    """What the version alone says."""
    return Origin(version, commit_of(version), dirty=True if ".d" in version.partition("+")[2] else None)


def recorded(root: Path) -> Origin | None:
    """What the build of the package in this folder recorded; None without a record."""
    try:
        found = json.loads((root / "gpt2core" / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Origin.of(found) if isinstance(found, dict) else None


def git(checkout: Path, *arguments: str) -> str | None:
    """Git's output without white space around it; None where it does not answer. It takes no lock, and the checkout may
    be another user's."""
    trusting = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false")
    command = ["git", "--no-optional-locks", *trusting, "-C", str(checkout)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=True, env=own, timeout=GIT_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def commit_of(version: str) -> str | None:
    """The commit that a version names, shortened; None for a release without one."""
    found = re.search(r"\+g([0-9a-f]{7,64})", version)
    return None if found is None else found[1]


@functools.cache
def version(root: Path = ROOT) -> str:
    """In a checkout, the release with the commit that is checked out now; otherwise what the build recorded."""
    commit = checked_out(root)
    if commit is not None:
        return with_commit(commit)
    record = recorded(root)
    return _installed() if record is None else record.version


def _installed() -> str:
    try:
        return importlib.metadata.version("taskloom")
    except importlib.metadata.PackageNotFoundError:
        return RELEASE


def with_commit(commit: str, changes: str = "") -> str:
    """The release with a commit. changes: a hash of sources that are not that commit's."""
    return f"{RELEASE}+g{commit[:7]}" + (f".d{changes[:8]}" if changes else "")


def checked_out(checkout: Path) -> str | None:
    """The commit at HEAD, read from Git's plain files; None if the folder is no checkout or has no commit."""
    try:
        folder, head = _head(checkout)
        commit = _resolved(folder, head.removeprefix("ref: ")) if head.startswith("ref: ") else head
    except (OSError, UnicodeDecodeError):
        return None
    return commit if commit is not None and COMMIT.fullmatch(commit) else None


def branch_of(checkout: Path) -> str | None:
    """The branch at HEAD; None if the folder is no checkout, or none is checked out."""
    try:
        _, head = _head(checkout)
    except (OSError, UnicodeDecodeError):
        return None
    name = head.removeprefix("ref: refs/heads/")
    return None if name == head else name


def _head(checkout: Path) -> tuple[Path, str]:
    """Git's folder of a checkout, and the text of its HEAD. Raises OSError or UnicodeDecodeError."""
    folder = checkout / ".git"
    if folder.is_file():  # a linked worktree
        folder = checkout / folder.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
    return folder, (folder / "HEAD").read_text(encoding="utf-8").strip()


def _resolved(folder: Path, ref: str) -> str | None:
    common = folder
    if (folder / "commondir").is_file():  # a linked worktree shares its branches
        common = folder / (folder / "commondir").read_text(encoding="utf-8").strip()
    if (common / ref).is_file():
        return (common / ref).read_text(encoding="utf-8").strip()
    for line in (common / "packed-refs").read_text(encoding="utf-8").splitlines():
        commit, _, name = line.partition(" ")
        if name == ref:
            return commit
    return None
