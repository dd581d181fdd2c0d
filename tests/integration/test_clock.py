"""Runs that cannot read the processor's counter may also be long, and results name their clock."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpt2core.process import launch

pytestmark = pytest.mark.slow

SETTINGS = {
    "model": {"layers": 2, "heads": 2, "channels": 16, "vocab": 61, "context": 8},  # a very short step
    "batch": 1, "seq": 8, "steps": 20_000, "batch_slice": 1, "token_slice": 8, "data": "synthetic", "blas": "own",
    "threads": 2, "allow_oversubscription": True,
}  # fmt: skip


def start(result: Path, clock: str, settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    environment = {**launch.environment(), "TASKLOOM_CLOCK": clock}
    environment.pop("NUMBA_CACHE_DIR", None)  # a folder of compiled code for each clock
    return subprocess.run(
        launch.command(result), input=json.dumps(settings), env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "scheduler",
    [{"scheduler": "serial", "threads": 1}, {"scheduler": "fork-join"}, {"scheduler": "task", "sync": "none"}],
)
def test_a_long_run_without_the_processors_counter(scheduler, tmp_path):
    result = tmp_path / "result.json"
    done = start(result, "clock_gettime", {**SETTINGS, **scheduler})
    assert done.returncode == 0, (done.returncode, done.stderr[-1000:])
    found = json.loads(result.read_text())
    assert found["environment"]["clock"] == "clock_gettime"
    assert len(found["step_s"]) == SETTINGS["steps"]
    assert 0 < min(found["step_s"]) < max(found["step_s"]) < 60


def test_without_a_wish_the_result_names_the_clock(tmp_path):
    result = tmp_path / "result.json"
    assert start(result, "", {**SETTINGS, "steps": 2}).returncode == 0
    tsc = "tsc" if "constant_tsc" in Path("/proc/cpuinfo").read_text() else "clock_gettime"
    counters = {"x86_64": tsc, "aarch64": "cntvct"}
    assert json.loads(result.read_text())["environment"]["clock"] == counters.get(os.uname().machine, "clock_gettime")


def test_an_unknown_clock_is_refused(tmp_path):
    done = start(tmp_path / "result.json", "sundial", {**SETTINGS, "steps": 2})
    assert done.returncode == 2
    assert "TASKLOOM_CLOCK = 'sundial' is not accepted" in done.stdout
