"""Build hook of setuptools: the version with the commit (docs/decisions/0027). pyproject.toml declares the rest."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from email.parser import HeaderParser
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
ARCHIVED = "$Format:%H$"  # `git archive` replaces this with the commit (.gitattributes)

sys.path.insert(0, str(ROOT))
from gpt2core.spec.version import COMMIT, RELEASE, checked_out, with_commit  # noqa: E402


def version() -> str:
    """The commit from TASKLOOM_COMMIT, the checkout or the archive; else the version that an sdist recorded."""
    given = os.environ.get("TASKLOOM_COMMIT")
    if given:
        if not re.fullmatch(r"[0-9a-f]{7,64}", given):
            raise SystemExit(f"TASKLOOM_COMMIT = {given!r} is not accepted: a commit's hash, 7 digits or more")
        return with_commit(given)
    commit = checked_out(ROOT)
    if commit is not None:
        return with_commit(commit, changes())
    if COMMIT.fullmatch(ARCHIVED):
        return with_commit(ARCHIVED)
    recorded = ROOT / "PKG-INFO"
    if recorded.is_file():
        return str(HeaderParser().parsestr(recorded.read_text(encoding="utf-8"))["Version"])
    return RELEASE


def changes() -> str:
    """Hash of the packaged files if they are not the commit's, so that another build has another version."""
    links = [path.resolve().name for path in (ROOT / "taskloom").iterdir() if path.is_symlink()]
    packaged = ("--", "gpt2core", "taskloom", *links, "pyproject.toml", "setup.py")
    if shutil.which("git") is None or not git("status", "--porcelain", *packaged):
        return ""
    digest = hashlib.sha256()
    for name in git("ls-files", "-z", "--cached", "--others", "--exclude-standard", *packaged).split("\0"):
        path = ROOT / name
        if name and path.is_file():
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def git(*arguments: str) -> str:
    """Git's output; the checkout may be another user's."""
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# In a folder of its own, since modules that another commit had would stay in the checkout's build/ and be packaged.
with tempfile.TemporaryDirectory() as folder:
    setup(version=version(), options={"build": {"build_base": folder}})
