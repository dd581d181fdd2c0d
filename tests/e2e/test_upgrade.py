"""Wheels of two commits: pip replaces one by the other, and every part of Taskloom shows the commit."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt2core.spec.version import RELEASE
from tests.support.installations import build_wheel, copy_sources, environment, install, link_requirements
from tests.support.processes import Process

pytestmark = pytest.mark.slow

Wheels = dict[str, tuple[Path, str]]  # by names, with their versions


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
    git(folder, "init", "--quiet", "--initial-branch=feature/x")
    return folder


def wheel(sources: Path, tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return build_wheel(sources, tmp_path / name)


@pytest.fixture(scope="module")
def wheels(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Wheels of two commits, of a change that is not committed, and of a commit without the changed module, one after
    the other; each with the version of its commit."""
    folder, found = tmp_path_factory.mktemp("wheels"), Wheels()
    for name in ("old", "new"):
        version = committed(sources, name)
        found[name] = wheel(sources, folder, name), version
    (sources / "server/changed.py").write_text('"""not committed"""\n')
    found["changed"] = wheel(sources, folder, "changed"), f"{version}.d"
    git(sources, "rm", "--quiet", "--force", "server/changed.py")
    git(sources, "commit", "--quiet", "--message", "without the module")
    found["without"] = wheel(sources, folder, "without"), ""
    return found


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


def test_a_wheel_of_another_commit_replaces_the_installed_one(wheels: Wheels, tmp_path: Path) -> None:
    folder = environment(tmp_path / "environment")
    file, version = wheels["old"]
    install(folder, file)
    link_requirements(folder, "server")
    assert shown(folder) == f"taskloom, version {version}"
    # Commits have no order: both directions, and sources that are no commit's.
    for name, text in (("changed", "not committed"), ("old", "old"), ("new", "new")):
        file, version = wheels[name]
        install(folder, "--upgrade", file)
        assert shown(folder).startswith(f"taskloom, version {version}")
        read = [str(folder / "bin/python"), "-P", "-c", "import taskloom.server.changed as m; print(m.__doc__)"]
        assert subprocess.run(read, capture_output=True, text=True, check=True, timeout=60).stdout.strip() == text
    url = f"sqlite:///{tmp_path}/taskloom.db"
    server = Process([str(folder / "bin/taskloom"), "serve", "--port", "0", "--database-url", url], tmp_path / "log")
    try:
        address = server.event("listening")["url"]
        assert httpx.get(f"{address}/healthz").json() == {"status": "ok", "version": version}
        assert f'version="{version}"' in httpx.get(f"{address}/metrics").text
    finally:
        server.end()


@pytest.mark.parametrize(("name", "has_it"), [("new", True), ("without", False)])
def test_a_module_of_another_commit_is_not_packaged(wheels: Wheels, name: str, has_it: bool) -> None:
    with zipfile.ZipFile(wheels[name][0]) as archive:
        assert ("taskloom/server/changed.py" in archive.namelist()) == has_it


def test_a_source_distribution_and_an_archive_keep_the_commit(sources: Path, tmp_path: Path) -> None:
    version = committed(sources, "distributed")
    sdist = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", sdist, str(tmp_path)], cwd=sources, capture_output=True, check=True)
    git(sources, "archive", "--prefix=archive/", "--output", str(tmp_path / "archive.tar.gz"), "HEAD")
    (tmp_path / "unpacked").mkdir()
    for file in tmp_path.glob("*.tar.gz"):
        subprocess.run(["tar", "-xzf", file, "-C", tmp_path / "unpacked"], check=True)
    built = [wheel(folder, tmp_path, f"from-{folder.name}") for folder in (tmp_path / "unpacked").iterdir()]
    assert {file.name for file in built} == {f"taskloom-{version}-py3-none-any.whl"}
    for file in built:
        found = record(file)
        assert found["commit"] == git(sources, "rev-parse", "HEAD")
        assert found["committed_at"] == git(sources, "show", "-s", "--format=%cI")


def test_a_wheel_records_commit_branch_and_changes(wheels: Wheels, sources: Path) -> None:
    file, version = wheels["new"]
    found = record(file)
    assert (found["version"], found["branch"], found["dirty"]) == (version, "feature/x", False)
    assert record(wheels["changed"][0])["dirty"] is True
    assert not (sources / "gpt2core/build.json").exists()


def test_an_image_without_git_is_given_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy_sources(tmp_path / "sources")
    monkeypatch.setenv("TASKLOOM_COMMIT", "1a2b3c4d5e6f")
    assert wheel(folder, tmp_path, "image").name == f"taskloom-{RELEASE}+g1a2b3c4-py3-none-any.whl"
