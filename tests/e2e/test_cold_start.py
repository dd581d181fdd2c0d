"""A process that compiles and one that loads cached code give the same bits; only the first loads Numba."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpt2core.process import launch

pytestmark = pytest.mark.slow

SETTINGS = {"model": "tiny", "steps": 3, "threads": 2, "token_slice": 16, "data": "synthetic"}


def start(folder: Path, name: str, **settings: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Events and result of a trainer whose cache of compiled code is in `folder`.

    Numba cannot be loaded if the folder contains a folder `without`.
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


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the result `cold` of a trainer that found an empty cache, and with the code that it compiled."""
    folder = tmp_path_factory.mktemp("first")
    cold_events, _ = start(folder, "cold")
    assert compiled(cold_events)[-1]["done"] == compiled(cold_events)[-1]["total"] - 1
    return folder


@pytest.fixture
def warmed(first: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the filled cache."""
    shutil.copytree(first / "cache", tmp_path / "cache")
    return tmp_path


def test_cold_and_warm_starts_agree_and_only_the_cold_one_compiles(first: Path, warmed: Path) -> None:
    cold = json.loads((first / "cold.json").read_text())
    refuse_numba(warmed)
    warm_events, warm = start(warmed, "warm")
    assert not compiled(warm_events)
    assert cold["compiled"] > 0
    assert warm["compiled"] == 0
    assert warm["memory_bytes"]["peak_rss"] < cold["memory_bytes"]["peak_rss"]
    assert warm["losses"] == cold["losses"]
    assert warm["weights_sha256"] == cold["weights_sha256"]


def test_the_loop_is_compiled_once_in_another_process(first: Path) -> None:
    assert len(list(first.glob("cache/*/task_loop-*.o"))) == 1


@pytest.mark.parametrize("scheduler", ["serial", "fork-join", "omp-for", "omp-task"])
def test_a_loop_that_another_process_compiled_needs_no_numba(first: Path, warmed: Path, scheduler: str) -> None:
    environment = {**launch.environment(), "TASKLOOM_CACHE_DIR": str(warmed / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    subprocess.run(launch.loop_command(scheduler, "auto"), env=environment, check=True)
    refuse_numba(warmed)
    _, warm = start(warmed, "warm", scheduler=scheduler, threads=1 if scheduler == "serial" else 2)
    assert warm["weights_sha256"] == json.loads((first / "cold.json").read_text())["weights_sha256"]


def test_a_run_compiles_its_loop_itself_if_the_other_process_fails(warmed: Path) -> None:
    for name in ("task_loop", "adamw"):
        (file,) = warmed.glob(f"cache/*/{name}-*.o")
        file.unlink()
    result = warmed / "result.json"
    program = (
        "from gpt2core import __main__ as trainer; from gpt2core.process import launch, trainer as process\n"
        "launch.loop_command = lambda *_: ['false']\n"
        "process.leave(trainer.main())"
    )
    environment = {**launch.environment(), "TASKLOOM_CACHE_DIR": str(warmed / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", program, "--result", str(result)], input=json.dumps(SETTINGS), env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list(warmed.glob("cache/*/task_loop-*.o"))) == 1


def test_two_trainers_may_compile_at_once(warmed: Path) -> None:
    for path in sorted((warmed / "cache").rglob("*.o"))[::4]:
        path.unlink()
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda name: start(warmed, name), ("one", "two")))
    assert any(compiled(events) for events, _ in both)
    refuse_numba(warmed)
    events, warm = start(warmed, "warm")
    assert not compiled(events)
    assert {each["weights_sha256"] for _, each in both} == {warm["weights_sha256"]}
