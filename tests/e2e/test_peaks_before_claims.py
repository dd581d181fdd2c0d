"""A worker measures unknown peaks once, before its first claim. If that fails, it executes runs nevertheless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from taskloom import Client
from tests.support.patience import until
from tests.support.processes import House
from tests.support.runs import ended, submit

pytestmark = pytest.mark.slow


@pytest.fixture
def fresh(tmp_path: Path) -> dict[str, str]:
    """The environment of a worker on a node without stored peaks."""
    return {"TASKLOOM_PEAKS": "forced", "TASKLOOM_CACHE_DIR": str(tmp_path / "cache"), "FAKE_ROOF": "quick"}


def kept(fresh: dict[str, str]) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in Path(fresh["TASKLOOM_CACHE_DIR"]).glob("peaks-*.json")]


def test_nothing_is_claimed_before_the_peaks_are_known(home: House, client: Client, fresh: dict[str, str]) -> None:
    run_id = submit(client)
    gate = home.folder / "gate"
    worker = home.start_worker(**{**fresh, "FAKE_ROOF": "gated", "FAKE_ROOF_GATE": str(gate)})
    assert worker.event("peak")["threads"] == 1
    assert client.run(run_id).state == "queued"
    assert [each.state for each in client.workers()] == ["measuring peaks"]
    place = client.run(run_id).queue
    assert place is not None
    assert place.reason == "measuring-peaks"
    assert kept(fresh) == []
    gate.touch()
    assert worker.event("peaks-measured")
    assert worker.event("claimed")
    assert ended(client, run_id).state == "succeeded"
    assert len(kept(fresh)) == 1
    worker.end()
    submit(client)
    again = home.start_worker("quick", "--once", **{**fresh, "FAKE_ROOF": "crash"})
    assert again.wait() == 0
    assert not any('"peaks' in line for line in again.lines)


def test_a_measurement_that_fails_keeps_nobody_from_working(home: House, client: Client, fresh: dict[str, str]) -> None:
    run_id = submit(client)
    worker = home.start_worker("quick", "--once", **{**fresh, "FAKE_ROOF": "crash"})
    assert worker.event("peaks-failed")
    assert worker.wait() == 0
    assert ended(client, run_id).state == "succeeded"
    assert kept(fresh) == []


def test_an_idle_worker_measures_and_a_run_ends_the_measurement(
    home: House, client: Client, fresh: dict[str, str]
) -> None:
    gate = home.folder / "gate"
    gated = {**fresh, "FAKE_ROOF": "gated", "FAKE_ROOF_GATE": str(gate), "FAKE_IDLE_S": "0"}
    worker = home.start_worker("quick", "--peaks", "idle", "--wait-s", "0.2", **gated)
    worker.event("peak")
    until(lambda: [each.state for each in client.workers()] == ["measuring peaks"], "the state")
    run_id = submit(client)
    assert worker.event("peaks-interrupted")
    assert worker.event("claimed")["run_id"] == run_id
    assert ended(client, run_id).state == "succeeded"
    assert kept(fresh) == []
    worker.event("peak")  # there is no run again
    gate.touch()
    assert worker.event("peaks-measured")
    until(lambda: [each.state for each in client.workers()] == ["idle"], "the state")
    assert len(kept(fresh)) == 1


def test_a_worker_that_is_told_to_leave_does_not_wait_for_it(home: House, fresh: dict[str, str]) -> None:
    worker = home.start_worker(**{**fresh, "FAKE_ROOF": "gated", "FAKE_ROOF_GATE": "/nowhere/gate"})
    worker.event("peak")
    worker.popen.terminate()
    assert worker.wait() == 0
    assert kept(fresh) == []
