"""The commands of docs/how-to/deploy.md with a real server, and systemd's check of the units."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import DEADLINE_S
from tests.support.processes import House

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs/how-to/deploy.md"
SERVICES = ("taskloom-server", "taskloom-worker")
TIMED = ("taskloom-backup", "taskloom-prune", "taskloom-calibrate@")
FORBIDS_WRITABLE_CODE = 65  # PR_SET_MDWE of linux/prctl.h


def execute(heading: str, **variables: str) -> str:
    """Execute the sh block under a heading of the page, and return its output."""
    section = HOW_TO.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    [block] = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **variables, "PATH": path}
    done = subprocess.run(["sh", "-eu", "-c", block], cwd=ROOT, env=environment, capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_units_are_copied_and_a_worker_works_with_the_key_that_was_made(home: House, tmp_path: Path) -> None:
    config, units = tmp_path / "config", tmp_path / "units"
    units.mkdir()
    execute("Units", CONFIG=str(config), UNITS=str(units))
    timers = {f"{name}.timer" for name in TIMED}
    assert {path.name for path in units.iterdir()} == {f"{name}.service" for name in (*SERVICES, *TIMED)} | timers
    printed = execute("Keys", CONFIG=str(config), URL=home.url)
    assert "node-1" in printed
    keys = {path.name: oct(path.stat().st_mode)[-3:] for path in config.glob("*key*")}
    assert keys == {"admin-key.json": "600", "worker-key.json": "600"}
    settings = dict(line.split("=", 1) for line in (config / "worker.env").read_text().splitlines())
    assert settings["TASKLOOM_SERVER"] == home.url
    worker = [str(Path(sys.executable).with_name("taskloom")), "worker", "--idle-exit", "1s", "--peaks", "never"]
    environment = {**os.environ, **settings, "TASKLOOM_SPOOL": str(tmp_path / "spool")}
    done = subprocess.run(worker, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    environment["TASKLOOM_TOKEN"] = "not-a-key"
    done = subprocess.run(worker, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0


@pytest.mark.parametrize("name", [*SERVICES, *TIMED])
def test_the_exposure_of_a_unit_is_below_2(name: str) -> None:
    analyse = shutil.which("systemd-analyze")
    unit = ROOT / f"deploy/{name}.service"
    lines = unit.read_text(encoding="utf-8").splitlines()
    if analyse is None:  # Without systemd, check the settings on which its rating depends.
        wanted = {"NoNewPrivileges=yes", "ProtectSystem=strict", "PrivateUsers=yes", "CapabilityBoundingSet="}
        assert wanted <= set(lines)
        return
    command = [analyse, "security", "--offline=true", "--no-pager", str(unit)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
    [exposure] = re.findall(r"exposure level for \S+: (\d+\.\d)", printed)
    assert float(exposure) < 2.0


@pytest.mark.parametrize("name", TIMED)
def test_timers_start_services_whose_commands_exist(name: str) -> None:
    texts = [(ROOT / f"deploy/{name}.{kind}").read_text(encoding="utf-8") for kind in ("service", "timer")]
    assert re.search(r"^Type=oneshot$", texts[0], re.MULTILINE)
    assert re.search(r"^OnCalendar=\S", texts[1], re.MULTILINE)
    [command] = re.findall(r"^ExecStart=/opt/taskloom/bin/(.+)$", texts[0], re.MULTILINE)
    analyse = shutil.which("systemd-analyze")
    if analyse is not None:
        units = [str(ROOT / f"deploy/{name}.{kind}") for kind in ("service", "timer")]
        command_line = [analyse, "verify", *units]
        done = subprocess.run(command_line, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        ours = [line for line in done.stderr.splitlines() if name in line and "is not executable" not in line]
        assert ours == []
    program, *arguments = command.split()
    if program == "taskloom-backup":
        assert "deploy/backup.sh /opt/taskloom/bin/taskloom-backup" in HOW_TO.read_text(encoding="utf-8")
        return
    options = [argument for argument in arguments if argument.startswith("--")]
    words = arguments[: arguments.index(options[0])]
    shown = subprocess.run(
        [Path(sys.executable).with_name(program), *words, "--help"], capture_output=True, text=True, check=True,
        timeout=DEADLINE_S,
    ).stdout  # fmt: skip
    assert all(option in shown for option in options)


def test_what_the_units_write_lies_in_their_state_folder() -> None:
    for name in SERVICES:
        text = (ROOT / f"deploy/{name}.service").read_text(encoding="utf-8")
        assert "\nProtectHome=yes\n" in text
        places = re.findall(r"^Environment=TASKLOOM_\w+=(?:sqlite:///)?(\S+)$", text, re.MULTILINE)
        assert places
        assert all(place.startswith("/var/lib/taskloom/") for place in places), name


def test_a_server_needs_no_memory_that_is_writable_and_executable(tmp_path: Path) -> None:
    """The server's unit has MemoryDenyWriteExecute=yes. The test sets that restriction by prctl where Linux has it."""
    program = (
        "import ctypes, sys; from taskloom.cli import main\n"
        f"if ctypes.CDLL(None).prctl({FORBIDS_WRITABLE_CODE}, 1, 0, 0, 0): sys.exit(99)\n"
        f"main(['serve', '--port', '0', '--database-url', 'sqlite:///{tmp_path}/taskloom.db'])"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            listening = server.stdout.readline()
            assert listening or server.wait(DEADLINE_S) == 99
        finally:
            server.terminate()
