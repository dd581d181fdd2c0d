"""Contents of an installation, commands without extras, and imports of child processes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from installations import (
    ROOT,
    SOURCES,
    build_wheel,
    copy_sources,
    environment,
    install,
    installed,
    link_requirements,
    site_packages,
)
from packaging.requirements import Requirement

from taskloom.cli import COMMANDS
from taskloom.extras import PROBES
from taskloom.server.read.dashboard.files import MEDIA_TYPES

pytestmark = pytest.mark.slow

HOSTILE = "raise SystemExit('a module of the current folder was imported')"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    return build_wheel(copy_sources(tmp_path_factory.mktemp("sources")), folder)


def test_a_wheel_adds_two_names_and_every_module(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in held} == {"gpt2core", "taskloom"}
    assert {"taskloom/py.typed", "gpt2core/py.typed"} <= held
    wanted = set()
    for name in SOURCES:
        prefix = "" if name in ("gpt2core", "taskloom") else "taskloom/"
        folder = ROOT / name
        wanted |= {prefix + str(path.relative_to(ROOT)) for path in folder.rglob("*.py")}
    dashboard = ROOT / "server/ui"
    wanted |= {
        f"taskloom/{path.relative_to(ROOT)}" for path in dashboard.rglob("*.*") if path.suffix in MEDIA_TYPES
    }
    assert wanted <= held


@pytest.fixture(scope="module")
def base(wheel, tmp_path_factory):
    """The `taskloom` command of an environment with the wheel and its requirements, without extras.

    The packages are links to those of this environment, so nothing is downloaded.
    """
    folder = environment(tmp_path_factory.mktemp("base"))
    install(folder, wheel)
    link_requirements(folder)
    return folder / "bin" / "taskloom"


def said(base, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command that runs without a checkout."""
    done = subprocess.run([base, *arguments], cwd=base.parent, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_command_line_and_the_client_need_no_extra(base):
    for command in COMMANDS:
        code, printed = said(base, command, "--help")
        assert (code, printed.split()[:3]) == (0, ["Usage:", "taskloom", command])
    code, printed = said(base, "runs", "list", "--server", "http://127.0.0.1:9")
    assert code == 3
    assert "no server answers at http://127.0.0.1:9" in printed
    client = "from taskloom import Client; Client('http://127.0.0.1:9').close()"
    subprocess.run([base.with_name("python"), "-P", "-c", client], cwd=base.parent, check=True, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "extras"),
    [
        (["serve", "--port", "0"], "server"),
        (["worker", "--once"], "worker"),
        (["train", "--model", "tiny", "--steps", "2"], "worker"),
        (["metg"], "worker"),
        (["doctor", "--peaks"], "worker"),
        (["provision", "pools.toml"], "provisioner"),
        (["demo"], "server,worker"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_names_the_extra_that_it_lacks(base, arguments, extras):
    code, printed = said(base, *arguments)
    assert code == 2
    assert f"[{extras}]" in printed
    assert "Traceback" not in printed


def test_each_extra_is_probed_by_a_package_of_its_own(base):
    packages = site_packages(base.parents[1])
    every = [Requirement(line) for line in installed(packages).requires or ()]
    for extra, package in PROBES.items():
        names = {each.name.replace("-", "_") for each in every if each.marker and f'"{extra}"' in str(each.marker)}
        assert package in names, extra


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
    done = subprocess.run([*train, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
