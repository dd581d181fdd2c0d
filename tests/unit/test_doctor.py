"""`taskloom doctor`: what its exit code says, and `--peaks` while other processes run."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpt2core.node import load, peaks
from gpt2core.node.pinning import pin_this_thread
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import MachineError
from taskloom import diagnosis, local_run
from taskloom.cli import main
from taskloom.worker import affinity

ROOF = """
import json, pathlib, sys
json.load(sys.stdin)
found = {"schema": %r, "measured_at": "today", "busy_cores": 1.5, "blas": {"name": "own", "version": "1"},
         "threads": {"1": dict.fromkeys(%r, 10.0)}}
print(json.dumps({"event": "peak", "done": 0, "total": 1, "threads": 1}))
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
print(json.dumps({"event": "result"}))
"""
RATES = ("gflop_per_s", "bf16_gflop_per_s", "registers_gflop_per_s", "bf16_registers_gflop_per_s", "triad_gb_per_s")


@pytest.fixture(autouse=True)
def beside_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make doctor find any load too high, and replace the measurement by a script with known peaks."""
    script = tmp_path / "roof.py"
    script.write_text(ROOF % (peaks.SCHEMA, RATES))
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(load, "MOST_BUSY_CORES", -1.0)
    monkeypatch.setattr(peaks, "command", lambda result: [sys.executable, str(script), str(result)])


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *arguments])


def test_peaks_are_not_measured_beside_other_processes() -> None:
    refused = doctor("--peaks")
    assert refused.exit_code == 1
    assert "other processes keep" in refused.stderr
    assert "--force" in refused.stderr
    error: dict[str, Any] = json.loads(doctor("--peaks", "--json").stderr)
    assert error["busy_cores"] >= 0.0


def test_with_force_they_are_and_the_load_is_shown() -> None:
    measured = doctor("--peaks", "--force")
    assert measured.exit_code == 0, measured.stderr
    assert "measured today with own 1 while others kept 1.5 cores busy" in " ".join(measured.stdout.split())


def test_force_goes_with_peaks() -> None:
    assert doctor("--force").exit_code == 2


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [("TASKLOOM_DATABASE_URL", "nonsense", "no database URL"), ("TASKLOOM_WAIT_S", "never", "wait_s = 'never'")],
)
def test_a_check_of_server_or_worker_that_fails_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, named: str
) -> None:
    monkeypatch.setenv(variable, value)
    found = doctor("--json")
    assert found.exit_code == 2
    assert named in json.loads(found.stderr)["error"]
    checks = json.loads(found.stdout)["checks"]
    assert [named in check["advice"] for check in checks if check["status"] == "fail"] == [True]
    assert "cores" in {check["name"] for check in checks}  # the machine is examined all the same


def test_a_sandbox_that_pins_no_thread_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    assert "allow sched_setaffinity" in diagnosis.affinity().advice
    with pytest.raises(MachineError, match="cannot be pinned to core 0"):
        pin_this_thread(0)
    with pytest.raises(MachineError, match="the trainer cannot be started"):
        local_run.run(TrainConfig(cores=(0,)), lambda _: ["true"], lambda _: None, lambda _: None)
    affinity.move_agent([0])


@pytest.mark.parametrize("output", ["", "a line of a library\n"])
def test_a_process_that_tells_nothing_is_not_usable(output: str) -> None:
    assert [each.advice for each in diagnosis._read("taskloom.server", output, 70)] == [
        "the checks of taskloom.server ended with exit code 70"
    ]
