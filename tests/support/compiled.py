"""Compiled code of the tests so far, for tests that take it from another folder, or for a copy of the trainer."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from gpt2core.compile import target

ROOT = Path(__file__).parents[2]


def copy_compiled(folder: Path, without: Iterable[str] = ()) -> None:
    """Copy the compiled code to a new folder, except functions of these names."""
    folder.mkdir(parents=True)
    for file in target.compiled_folder().glob("*.o"):
        if file.name.rpartition("-")[0] not in without:
            with contextlib.suppress(FileNotFoundError):
                shutil.copy(file, folder)


def copy_trainer(folder: Path, *packages: str) -> None:
    """Copy packages of the checkout, gpt2core among them, to be changed. Code that the checkout compiled serves the
    copy, too: the name of compiled code has a hash of its own file, such as one that is added."""
    for name in packages:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "gpt2core/compile/target.py").open("a", encoding="utf-8") as source:
        source.write(f"\n\ndef identity() -> str:\n    return {target.identity()!r}\n")
