"""Trainer builds of this and of earlier versions, stored on the node so that old and new builds can be compared.

A build is a copy of the trainer's source files; it runs with the installed libraries. Its name is the hash of its
sources, as in results (`environment.core_hash`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt2core.process.launch import PROTOCOL
from gpt2core.process.temporary import TemporaryFolder
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.settings import cache_folder
from gpt2core.spec.sources import ROOT, source_hash
from gpt2core.spec.version import RECORD, Origin, origin
from taskloom.contract.labels import KEPT, build_label

MOST = 8  # builds per node; the least recently used one is deleted first
PACKAGE, ABOUT, NAME = "gpt2core", "build.json", "[0-9a-f]{64}"


def folder() -> Path:
    """Folder of this node's builds."""
    return cache_folder() / "builds"


def keep() -> None:
    """Store this installation's trainer, and delete the least recently used builds beyond MOST. Raises OSError."""
    mine = folder() / source_hash()
    if mine.is_dir():
        _use(mine)
    else:
        about = {"protocol": PROTOCOL, "settings": [item.name for item in dataclasses.fields(TrainConfig)]}
        store(ROOT, about, origin())


def store(sources: Path, about: Mapping[str, Any], of: Origin) -> str:
    """Copy a trainer's sources with their description and origin, and delete the least recently used builds beyond
    MOST; return the build. The copy is hashed, not the sources, since these may change meanwhile. Raises OSError."""
    root = folder()
    root.mkdir(parents=True, exist_ok=True)
    with TemporaryFolder(root) as part:
        copy = part / "build"
        shutil.copytree(sources, copy / PACKAGE, ignore=_no_sources)
        (copy / ABOUT).write_text(json.dumps(about), encoding="utf-8")
        (copy / PACKAGE / RECORD).write_text(json.dumps(of.to_dict()), encoding="utf-8")
        target = root / source_hash(root=copy / PACKAGE)
        try:
            copy.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another worker of the node has stored it
                raise
    _use(target)
    return target.name


def _use(build: Path) -> None:
    os.utime(build)
    for old in sorted(_kept(), key=lambda path: path.stat().st_mtime)[:-MOST]:
        shutil.rmtree(old)


def _kept() -> list[Path]:
    return [path for path in folder().glob("?" * 64) if re.fullmatch(NAME, path.name)]


def _no_sources(path: str, names: list[str]) -> set[str]:
    """Names of files that are not part of a build."""
    return {name for name in names if name == "__pycache__" or not (name.endswith(".py") or Path(path, name).is_dir())}


def labels() -> dict[str, str]:
    """Labels for this worker's builds."""
    return {build_label(path.name): KEPT for path in _kept() if _about(path) is not None}


def command(build: str, plain: list[str]) -> list[str]:
    """The command `plain` with a build instead of the installed trainer. Raises ConfigError if the build is missing."""
    path = folder() / build
    if not re.fullmatch(NAME, build) or _about(path) is None:
        raise ConfigError("build", build, "a trainer build that this node has stored")
    os.utime(path)
    inherited = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    return ["env", f"PYTHONPATH={os.pathsep.join([str(path), *inherited])}", *plain]


def unknown(build: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that an old build does not know. Raises ConfigError if one of them differs from its default, since the
    build can only behave as by default."""
    known = (_about(folder() / build) or {}).get("settings", [])
    newer = {name: value for name, value in config.items() if name not in known}
    usual = TrainConfig().to_dict()
    for name, value in newer.items():
        if value != usual[name]:
            raise ConfigError(name, value, f"{usual[name]!r}, since build {build[:12]} is older than this setting")
    return newer


def _about(path: Path) -> dict[str, Any] | None:
    """Description of a stored build; None if this worker cannot start it."""
    try:
        found = json.loads((path / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("protocol") == PROTOCOL else None
