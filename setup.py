"""Build hook of setuptools: the version with the commit, and a record of that commit in the package
(docs/decisions/0027). pyproject.toml declares the rest."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from email.parser import HeaderParser
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
ARCHIVED, ARCHIVED_AT = "$Format:%H$", "$Format:%cI$"  # `git archive` replaces them (.gitattributes)

sys.path.insert(0, str(ROOT))
from gpt2core.spec.version import (  # noqa: E402
    COMMIT,
    RECORD,
    Origin,
    branch_of,
    checked_out,
    recorded,
    with_commit,
)


def origin() -> Origin:
    """The commit from TASKLOOM_COMMIT, the checkout or the archive; else what an sdist recorded."""
    given, branch = os.environ.get("TASKLOOM_COMMIT"), os.environ.get("TASKLOOM_BRANCH") or None
    if given:
        if not re.fullmatch(r"[0-9a-f]{7,64}", given):
            raise SystemExit(f"TASKLOOM_COMMIT = {given!r} is not accepted: a commit's hash, 7 digits or more")
        return Origin(with_commit(given), given, branch)
    commit = checked_out(ROOT)
    if commit is not None:
        changed, has_git = changes(), shutil.which("git") is not None
        at = git("show", "-s", "--format=%cI", commit).strip() if has_git else None
        dirty = bool(changed) if has_git else None
        return Origin(with_commit(commit, changed), commit, branch or branch_of(ROOT), dirty, at)
    if COMMIT.fullmatch(ARCHIVED):
        return Origin(with_commit(ARCHIVED), ARCHIVED, branch, committed_at=ARCHIVED_AT)
    info = ROOT / "PKG-INFO"
    if info.is_file():
        version = str(HeaderParser().parsestr(info.read_text(encoding="utf-8"))["Version"])
        return recorded(ROOT) or Origin(version)
    return Origin()


def record(root: str) -> None:
    """Write the commit into the package below a folder."""
    text = json.dumps(dataclasses.asdict(ORIGIN))
    (Path(root) / "gpt2core" / RECORD).write_text(text + "\n", encoding="utf-8")


class Build(build_py):
    """Adds the record to what is installed; an editable installation reads its checkout instead."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            record(self.build_lib)


class Archive(sdist):
    """Adds the record to the sources, from which packages may be built elsewhere."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        record(base_dir)


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


ORIGIN = origin()
# In a folder of its own, since modules that another commit had would stay in the checkout's build/ and be packaged.
with tempfile.TemporaryDirectory() as folder:
    setup(
        version=ORIGIN.version,
        options={"build": {"build_base": folder}},
        cmdclass={"build_py": Build, "sdist": Archive},
    )
