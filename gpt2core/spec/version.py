"""Version of this installation, which names the commit of its sources: `0.1.0+g1a2b3c4`."""

from __future__ import annotations

import functools
import importlib.metadata
import re
from pathlib import Path

RELEASE = "0.1.0"
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")  # SHA-1 or SHA-256
ROOT = Path(__file__).parents[2]


@functools.cache
def version(root: Path = ROOT) -> str:
    """In a checkout, the release with the commit that is checked out now; otherwise what the build recorded."""
    commit = checked_out(root)
    if commit is not None:
        return with_commit(commit)
    try:
        return importlib.metadata.version("taskloom")
    except importlib.metadata.PackageNotFoundError:
        return RELEASE


def with_commit(commit: str, changes: str = "") -> str:
    """The release with a commit. changes: a hash of sources that are not that commit's."""
    return f"{RELEASE}+g{commit[:7]}" + (f".d{changes[:8]}" if changes else "")


def checked_out(checkout: Path) -> str | None:
    """The commit at HEAD, read from Git's plain files; None if the folder is no checkout or has no commit."""
    folder = checkout / ".git"
    try:
        if folder.is_file():  # a linked worktree
            folder = checkout / folder.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (folder / "HEAD").read_text(encoding="utf-8").strip()
        commit = _resolved(folder, head.removeprefix("ref: ")) if head.startswith("ref: ") else head
    except (OSError, UnicodeDecodeError):
        return None
    return commit if commit is not None and COMMIT.fullmatch(commit) else None


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
