"""Contents of an installation, commands without extras, and imports of child processes."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gpt2core.spec.extras import MODULES
from taskloom.server.read.dashboard.files import MEDIA_TYPES
from tests.support.installations import (
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
from tests.support.processes import Process

pytestmark = pytest.mark.slow

HOSTILE = "raise SystemExit('a module of the current folder was imported')"
HELP = """
import json
from click.testing import CliRunner
from taskloom.cli import COMMANDS, main
asked = {name: CliRunner().invoke(main, [name, "--help"], prog_name="taskloom") for name in COMMANDS}
print(json.dumps({name: (done.exit_code, done.output) for name, done in asked.items()}))
"""


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
    done = subprocess.run(
        [base.with_name("python"), "-P", "-c", HELP], cwd=base.parent, capture_output=True, text=True, timeout=120,
        check=True,
    )  # fmt: skip
    for command, (code, printed) in json.loads(done.stdout).items():
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
    assert f"taskloom[{extras}]" in printed
    assert "Traceback" not in printed


def test_every_module_of_every_extra_is_known(base):
    """What an extra installs is in the table of its modules, by the names that are imported."""
    every = [Requirement(line) for line in installed(site_packages(base.parents[1])).requires or ()]
    names = {"pydantic-settings": "pydantic_settings", "prometheus-client": "prometheus_client"}
    for extra, modules in MODULES.items():
        wanted = {each.name for each in every if each.marker and f'"{extra}"' in str(each.marker)} - {"mkl", "mpich"}
        assert {names.get(name, name) for name in wanted} == set(modules), extra
    assert set(installed(site_packages(base.parents[1])).metadata.get_all("Provides-Extra") or ()) == {*MODULES, "dev"}


SERVE = ["taskloom.server.__main__", "--port", "0"]
POSTGRES = ["--database-url", "postgresql://a@127.0.0.1:9/b"]
WITHOUT = [
    *[("server", name, arguments) for name in MODULES["server"] for arguments in (SERVE, ["taskloom.cli", "serve"])],
    ("server", "sqlalchemy", ["taskloom.server.__main__", "keys", "list"]),
    *[("worker", name, ["taskloom.cli", *command]) for name in MODULES["worker"] for command in (
        ["worker", "--once"], ["train", "--model", "tiny", "--steps", "2"], ["metg"], ["doctor", "--peaks"])],
    ("provisioner", "prometheus_client", ["taskloom.cli", "provision", "pools.toml"]),
    ("mpi", "mpi4py", ["taskloom.cli", "train", "--model", "tiny", "--ranks", "2", "--allow-oversubscription"]),
    ("postgres", "psycopg", [*SERVE, *POSTGRES]),
    ("postgres", "psycopg", ["taskloom.server.__main__", "keys", *POSTGRES, "list"]),
]  # fmt: skip


@pytest.mark.parametrize(("extra", "module", "arguments"), WITHOUT, ids=lambda value: str(value).split(".")[-1])
def test_without_a_module_its_extra_is_named_in_one_line(tmp_path, extra, module, arguments):
    """In a process that cannot import this module."""
    entry, *given = arguments
    blocked = f"import sys; sys.modules[{module!r}] = None; sys.argv[1:] = {given!r}"
    command = [sys.executable, "-P", "-c", f"{blocked}; import {entry} as m; sys.exit(m.main())"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert f"install taskloom[{extra}]" in done.stderr
    assert f"({module})" in done.stderr


@pytest.fixture(scope="module")
def without_drivers(wheel, tmp_path_factory):
    """The `taskloom` command with the server's packages, without psycopg and pyarrow."""
    folder = environment(tmp_path_factory.mktemp("without-drivers"))
    install(folder, wheel)
    link_requirements(folder, "server")
    return folder / "bin" / "taskloom"


def test_a_server_for_postgresql_without_its_driver_is_refused_in_one_line(without_drivers):
    code, printed = said(without_drivers, "serve", *POSTGRES)
    assert (code, printed.count("\n")) == (2, 1)
    assert "install taskloom[postgres]" in printed


def test_an_export_that_takes_another_package_names_its_extra(without_drivers, tmp_path):
    url = f"sqlite:///{tmp_path}/taskloom.db"
    server = Process([str(without_drivers), "serve", "--port", "0", "--database-url", url], tmp_path / "log")
    try:
        address = server.event("listening")["url"]
        export = ("export", "runs", "--server", address, "--format")
        assert said(without_drivers, *export, "csv", "-o", str(tmp_path / "table"))[0] == 0
        for form in ("parquet", "arrow"):
            code, printed = said(without_drivers, *export, form, "-o", str(tmp_path / "table"))
            assert code == 2, printed
            assert "install taskloom[exports] on the server" in printed
    finally:
        server.end()


def test_modules_of_the_current_folder_are_never_taken(tmp_path):
    for name in ("server", "contract", "gpt2core"):
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    command = [str(Path(sys.executable).with_name("taskloom")), "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert json.loads(server.stdout.readline())["event"] == "listening"
        finally:
            server.terminate()
    train = [command[0], "train", "--model", "tiny", "--batch", "1", "--seq", "16", "--steps", "1", "--warmup", "0"]
    done = subprocess.run([*train, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
