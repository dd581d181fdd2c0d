"""What an installation adds, and what a child process imports."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("analysis", "contract", "gpt2core", "migrations", "provisioner", "server", "taskloom", "worker")
HOSTILE = "raise SystemExit('a module of the current folder was imported')"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "sources"
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*build, str(copy)], check=True, timeout=120)
    return next(folder.glob("taskloom-*.whl"))


def test_a_wheel_adds_two_names_and_every_module(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in held} == {"gpt2core", "taskloom"}
    wanted = set()
    for name in SOURCES:
        prefix = "" if name in ("gpt2core", "taskloom") else "taskloom/"
        folder = ROOT / name
        wanted |= {prefix + str(path.relative_to(ROOT)) for path in folder.rglob("*.py")}
    assert wanted <= held


@pytest.mark.parametrize("name", ["server", "contract", "gpt2core"])
def test_a_module_of_the_current_folder_is_never_taken(tmp_path, name):
    (tmp_path / f"{name}.py").write_text(HOSTILE)
    command = [Path(sys.executable).with_name("taskloom"), "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert json.loads(server.stdout.readline())["event"] == "listening"
        finally:
            server.terminate()
    train = [command[0], "train", "--model", "tiny", "--batch", "1", "--seq", "16", "--steps", "1", "--warmup", "0"]
    done = subprocess.run([*train, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
