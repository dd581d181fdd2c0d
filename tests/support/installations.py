"""Wheels of these sources, and environments that they are installed into, without the network."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SOURCES = ("analysis", "contract", "gpt2core", "migrations", "provisioner", "server", "taskloom", "worker")
FILES = (".gitattributes", ".gitignore", "pyproject.toml", "setup.py", "README.md", "LICENSE")


def copy_sources(folder: Path) -> Path:
    """Copy everything that is packaged."""
    folder.mkdir(exist_ok=True)
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder


def build_wheel(sources: Path, folder: Path) -> Path:
    """Build the wheel of these sources in a new folder."""
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", build, str(folder.resolve())]
    subprocess.run(command, cwd=sources, check=True, timeout=120, stdout=subprocess.DEVNULL)
    [wheel] = folder.glob("taskloom-*.whl")
    return wheel


def environment(folder: Path) -> Path:
    """An empty virtual environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    return folder


def install(folder: Path, *arguments: str | Path) -> None:
    """Install into an environment with pip, from files only. Python compiles what it imports."""
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
    options = ("--quiet", "--no-deps", "--no-index", "--no-compile")
    subprocess.run([*pip, "install", *options, *map(str, arguments)], check=True, timeout=120)


def link_requirements(folder: Path, *extras: str) -> None:
    """Link the requirements of the installed wheel, with these extras, to those of this environment."""
    packages = site_packages(folder)
    for name in closure(required(installed(packages), *extras)):
        distribution = importlib.metadata.distribution(name)
        for top in {Path(file).parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())


def site_packages(folder: Path) -> Path:
    """Where an environment's packages are."""
    return next(folder.glob("lib/python3*/site-packages"))


def installed(packages: Path) -> importlib.metadata.Distribution:
    """Taskloom as an installed distribution."""
    return importlib.metadata.Distribution.at(next(packages.glob("taskloom-*.dist-info")))


def required(distribution: importlib.metadata.Distribution, *extras: str) -> list[Requirement]:
    """Requirements of a distribution with these extras."""
    every = [Requirement(line) for line in distribution.requires or ()]
    chosen = ("", *extras)
    return [each for each in every if each.marker is None or any(each.marker.evaluate({"extra": x}) for x in chosen)]


def closure(wanted: list[Requirement]) -> set[str]:
    """The required distributions and their requirements, transitively."""
    found: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        if requirement.name not in found:
            found.add(requirement.name)
            wanted += required(importlib.metadata.distribution(requirement.name), *requirement.extras)
    return found
