"""The outcome of a run for each end of its trainer, and the cores on which it may run."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from taskloom.worker import orphan
from taskloom.worker.affinity import spare_cores, team_cores
from taskloom.worker.agent import StopReason
from taskloom.worker.execution import Verdict, judge, upload
from taskloom.worker.supervise import Ending
from tests.support.leases import lease

ALONE = {"agent_shared_measured_cores": False}


def ending(code: int = 0, **changes: Any) -> Ending:
    fields: dict[str, Any] = {
        "code": code, "signal": None, "reason": None, "result": None, "error": None, "output": ("last words",),
        "warnings": (), "oom_killed": False, "at_s": 0.0,
    }  # fmt: skip
    return Ending(**(fields | changes))


def finished(
    path: Path, text: str = '{"config": {"data": "/srv/data/c.bin"}, "warnings": []}', **changes: Any
) -> Ending:
    path.write_text(text)
    return ending(result={"sha256": hashlib.sha256(text.encode()).hexdigest()}, **changes)


def verdict(path: Path, end: Ending, about: dict[str, Any] | None = None) -> Verdict:
    return judge(end, path, lease(), about or ALONE, {"data": "c.bin"})


def slug(found: Verdict) -> str:
    assert found.error is not None
    return str(found.error["slug"])


def test_a_result_shows_names_and_no_paths_of_the_node(tmp_path: Path) -> None:
    found = verdict(tmp_path / "r", finished(tmp_path / "r"))
    assert found.outcome == "succeeded"
    assert found.result is not None
    assert found.result["config"] == {"data": "c.bin"}
    assert found.result["warnings"] == []


def test_a_result_says_when_the_agent_had_no_core_to_itself(tmp_path: Path) -> None:
    found = verdict(tmp_path / "r", finished(tmp_path / "r"), {"agent_shared_measured_cores": True})
    assert found.result is not None
    assert "shared the measured cores" in found.result["warnings"][0]


def test_who_was_done_before_it_heard_of_the_cancellation_has_succeeded(tmp_path: Path) -> None:
    assert verdict(tmp_path / "r", finished(tmp_path / "r", reason=StopReason.CANCEL)).outcome == "succeeded"


@pytest.mark.parametrize(
    ("end", "outcome", "expected"),
    [
        (ending(3), "failed", "exit-status"),
        (ending(-9, signal="SIGKILL"), "failed", "killed"),
        (ending(-9, signal="SIGKILL", oom_killed=True), "failed", "out-of-memory"),
        (ending(-11, signal="SIGSEGV", oom_killed=True), "failed", "killed"),
        (ending(0), "failed", "no-result"),
        (ending(0, result={"sha256": "0" * 64}), "failed", "no-result"),
        (ending(130, reason=StopReason.CANCEL), "cancelled", "cancelled"),
        (ending(-9, signal="SIGKILL", reason=StopReason.DEADLINE), "failed", "timeout"),
        (ending(130, reason=StopReason.RELEASE), "cancelled", "released"),
        (
            ending(2, error={"event": "error", "slug": "not-finite", "detail": "d", "exit_code": 1}),
            "failed",
            "not-finite",
        ),
    ],
)
def test_every_ending_has_its_outcome(tmp_path: Path, end: Ending, outcome: str, expected: str) -> None:
    found = verdict(tmp_path / "missing", end)
    assert (found.outcome, slug(found), found.result) == (outcome, expected, None)
    assert found.error is not None
    assert found.error["output"] == ["last words"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"losses": [NaN]}'])
def test_a_file_that_is_no_result_is_a_failure(tmp_path: Path, text: str) -> None:
    assert slug(verdict(tmp_path / "r", finished(tmp_path / "r", text))) == "no-result"


def test_a_file_that_is_not_the_one_the_trainer_named_is_a_failure(tmp_path: Path) -> None:
    end = finished(tmp_path / "r")
    (tmp_path / "r").write_text('{"config": {}}')
    assert slug(verdict(tmp_path / "r", end)) == "no-result"


def test_an_upload_carries_the_hash_of_its_text() -> None:
    sent = upload("n:0", 3, Verdict("failed", None, {"slug": "x", "detail": "ä"}))
    assert sent.attempt_no == 3
    assert sent.sha256 == hashlib.sha256(sent.payload.encode()).hexdigest()
    assert json.loads(sent.payload) == {"result": None, "error": {"slug": "x", "detail": "ä"}}


def test_the_team_gets_the_first_cores_or_those_it_asked_for() -> None:
    assert team_cores(TrainConfig(threads=2), (4, 5, 6)) == (4, 5)
    assert team_cores(TrainConfig(threads=1, cores=(6,)), (4, 5, 6)) == (6,)
    assert team_cores(TrainConfig(threads=8, allow_oversubscription=True), (4, 5)) == (4, 5)
    assert spare_cores({3, 4, 5, 6}, (4, 5)) == (3, 6)
    assert spare_cores({4, 5}, (4, 5)) == ()


@pytest.mark.parametrize(("config", "field"), [(TrainConfig(threads=4), "threads"), (TrainConfig(cores=(7,)), "cores")])
def test_cores_a_worker_does_not_have_are_named(config: TrainConfig, field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        team_cores(config, (4, 5, 6))
    assert raised.value.field == field


def test_an_orphan_is_ended_and_a_stranger_with_its_number_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(command, start_new_session=True) as process:
        orphan.remember(tmp_path, process.pid)
        noted = json.loads((tmp_path / orphan.NAME).read_text())
        (tmp_path / orphan.NAME).write_text(json.dumps({**noted, "created_at_s": noted["created_at_s"] - 5}))
        assert orphan.end(tmp_path) is None
        assert process.poll() is None
        orphan.remember(tmp_path, process.pid)
        assert orphan.end(tmp_path) == process.pid
        assert not psutil.pid_exists(process.pid)  # `end` has waited for it
    assert orphan.end(tmp_path) is None
    (tmp_path / orphan.NAME).write_text("{")
    assert orphan.end(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
