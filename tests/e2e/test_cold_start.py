"""A process that compiles and one that loads from the cache train to the same bits."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from gpt2core.process import launch

pytestmark = pytest.mark.slow

SETTINGS = {"model": "tiny", "steps": 3, "threads": 2, "token_slice": 16, "data": "synthetic"}


def start(folder: Path, name: str) -> tuple[list[dict], dict]:
    result = folder / f"{name}.json"
    environment = {**launch.environment(), "TASKLOOM_CACHE_DIR": str(folder / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        launch.command(result), input=json.dumps(SETTINGS), env=environment, capture_output=True, text=True, check=True
    )
    events = [event for line in done.stdout.splitlines() if (event := launch.parse_event(line))]
    return events, json.loads(result.read_text())


def test_cold_and_warm_starts_agree_and_only_the_cold_one_compiles(tmp_path):
    cold_events, cold = start(tmp_path, "cold")
    warm_events, warm = start(tmp_path, "warm")
    compiled = [e for e in cold_events if e["event"] == "compiling"]
    assert compiled[-1]["done"] == compiled[-1]["total"] - 1
    assert not [e for e in warm_events if e["event"] == "compiling"]
    assert warm["losses"] == cold["losses"]
    assert warm["weights_sha256"] == cold["weights_sha256"]
