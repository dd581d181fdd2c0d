"""Wheels of two commits: pip replaces one by the other, and every part of Taskloom shows the commit."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt2core.spec.version import RELEASE
from tests.support.installations import build_wheel, copy_sources, environment, install, link_requirements
from tests.support.processes import Process

pytestmark = pytest.mark.slow


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def committed(folder: Path, text: str) -> str:
    """Commit a change of the server, and return the version that its wheel must have."""
    (folder / "server/changed.py").write_text(f'"""{text}"""\n')
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", text)
    return f"{RELEASE}+g{git(folder, 'rev-parse', 'HEAD')[:7]}"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_sources(tmp_path_factory.mktemp("sources"))
    git(folder, "init", "--quiet")
    return folder


def wheel(sources: Path, tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return build_wheel(sources, tmp_path / name)


def record(wheel: Path) -> dict[str, Any]:
    """What a build recorded in its wheel."""
    with zipfile.ZipFile(wheel) as archive:
        found: dict[str, Any] = json.loads(archive.read("gpt2core/build.json"))
    return found


def shown(folder: Path) -> str:
    """What `taskloom --version` of an environment prints."""
    command = [str(folder / "bin/taskloom"), "--version"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_a_wheel_of_another_commit_replaces_the_installed_one(sources: Path, tmp_path: Path) -> None:
    versions = [committed(sources, "old"), committed(sources, "new")]
    new = wheel(sources, tmp_path, "new")
    git(sources, "checkout", "--quiet", "HEAD~1")
    old = wheel(sources, tmp_path, "old")
    (sources / "server/changed.py").write_text('"""not committed"""\n')
    changed = wheel(sources, tmp_path, "changed")
    git(sources, "checkout", "--quiet", "--force", "-")
    folder = environment(tmp_path / "environment")
    install(folder, old)
    link_requirements(folder, "server")
    assert shown(folder) == f"taskloom, version {versions[0]}"
    # Commits have no order: both directions, and sources that are no commit's.
    for file, version, text in ((new, versions[1], "new"), (old, versions[0], "old"), (changed, None, "not committed")):
        install(folder, "--upgrade", file)
        assert shown(folder).startswith(f"taskloom, version {version or versions[0] + '.d'}")
        read = [str(folder / "bin/python"), "-P", "-c", "import taskloom.server.changed as m; print(m.__doc__)"]
        assert subprocess.run(read, capture_output=True, text=True, check=True, timeout=60).stdout.strip() == text
    install(folder, "--upgrade", new)
    url = f"sqlite:///{tmp_path}/taskloom.db"
    server = Process([str(folder / "bin/taskloom"), "serve", "--port", "0", "--database-url", url], tmp_path / "log")
    try:
        address = server.event("listening")["url"]
        assert httpx.get(f"{address}/healthz").json() == {"status": "ok", "version": versions[1]}
        assert f'version="{versions[1]}"' in httpx.get(f"{address}/metrics").text
    finally:
        server.end()


def test_a_module_of_another_commit_is_not_packaged(sources: Path, tmp_path: Path) -> None:
    committed(sources, "with a module")
    with zipfile.ZipFile(wheel(sources, tmp_path, "with")) as archive:
        assert "taskloom/server/changed.py" in archive.namelist()
    git(sources, "rm", "--quiet", "server/changed.py")
    git(sources, "commit", "--quiet", "--message", "without the module")
    with zipfile.ZipFile(wheel(sources, tmp_path, "without")) as archive:
        assert "taskloom/server/changed.py" not in archive.namelist()


def test_a_source_distribution_and_an_archive_keep_the_commit(sources: Path, tmp_path: Path) -> None:
    version = committed(sources, "distributed")
    sdist = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", sdist, str(tmp_path)], cwd=sources, capture_output=True, check=True)
    git(sources, "archive", "--prefix=archive/", "--output", str(tmp_path / "archive.tar.gz"), "HEAD")
    for file in tmp_path.glob("*.tar.gz"):
        with tarfile.open(file) as archive:
            archive.extractall(tmp_path / "unpacked", filter="data")
    built = [wheel(folder, tmp_path, f"from-{folder.name}") for folder in (tmp_path / "unpacked").iterdir()]
    assert {file.name for file in built} == {f"taskloom-{version}-py3-none-any.whl"}
    for file in built:
        found = record(file)
        assert found["commit"] == git(sources, "rev-parse", "HEAD")
        assert found["committed_at"] == git(sources, "show", "-s", "--format=%cI")


def test_a_wheel_records_commit_branch_and_changes(sources: Path, tmp_path: Path) -> None:
    version = committed(sources, "recorded")
    git(sources, "checkout", "--quiet", "-B", "feature/x")
    found = record(wheel(sources, tmp_path, "clean"))
    assert (found["version"], found["branch"], found["dirty"]) == (version, "feature/x", False)
    (sources / "server/changed.py").write_text('"""not committed"""\n')
    assert record(wheel(sources, tmp_path, "dirty"))["dirty"] is True
    git(sources, "checkout", "--quiet", "--force", "-")
    assert not (sources / "gpt2core/build.json").exists()


def test_an_image_without_git_is_given_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy_sources(tmp_path / "sources")
    monkeypatch.setenv("TASKLOOM_COMMIT", "1a2b3c4d5e6f")
    assert wheel(folder, tmp_path, "image").name == f"taskloom-{RELEASE}+g1a2b3c4-py3-none-any.whl"
