"""A process that compiles and one that loads kept code train to the same bits; only the first loads Numba."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpt2core.process import launch

pytestmark = pytest.mark.slow

SETTINGS = {"model": "tiny", "steps": 3, "threads": 2, "token_slice": 16, "data": "synthetic"}


def start(folder: Path, name: str, **settings: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events and the result of a process with its compiled code in `folder`. Once there is a folder `without` in
    it, Numba cannot be loaded.
    """
    result = folder / f"{name}.json"
    environment = {**launch.environment(), "TASKLOOM_CACHE_DIR": str(folder / "cache")}
    environment["PYTHONPATH"] = f"{folder / 'without'}:{environment.get('PYTHONPATH', '')}"
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        launch.command(result), input=json.dumps({**SETTINGS, **settings}), env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    events = [event for line in done.stdout.splitlines() if (event := launch.parse_event(line))]
    return events, json.loads(result.read_text())


def refuse_numba(folder: Path) -> None:
    (folder / "without").mkdir()
    (folder / "without" / "numba.py").write_text("raise ImportError('Numba was loaded')")


def compiled(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == "compiling"]


def test_cold_and_warm_starts_agree_and_only_the_cold_one_compiles(tmp_path: Path) -> None:
    cold_events, cold = start(tmp_path, "cold")
    refuse_numba(tmp_path)
    warm_events, warm = start(tmp_path, "warm")
    assert compiled(cold_events)[-1]["done"] == compiled(cold_events)[-1]["total"] - 1
    assert not compiled(warm_events)
    assert warm["losses"] == cold["losses"]
    assert warm["weights_sha256"] == cold["weights_sha256"]


@pytest.mark.parametrize("scheduler", ["serial", "fork-join", "omp-for", "omp-task"])
def test_every_scheduler_starts_without_numba_once_it_was_compiled(tmp_path: Path, scheduler: str) -> None:
    settings = {"scheduler": scheduler, "threads": 1 if scheduler == "serial" else 2}
    _, cold = start(tmp_path, "cold", **settings)
    refuse_numba(tmp_path)
    _, warm = start(tmp_path, "warm", **settings)
    assert warm["weights_sha256"] == cold["weights_sha256"]


def test_two_trainers_may_compile_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda name: start(tmp_path, name)[1], ("one", "two")))
    refuse_numba(tmp_path)
    events, warm = start(tmp_path, "warm")
    assert not compiled(events)
    assert {each["weights_sha256"] for each in both} == {warm["weights_sha256"]}
