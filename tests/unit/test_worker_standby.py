"""A trainer is started before its lease, and taken by the next one if it still lives."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pytest

from gpt2core.process import launch
from gpt2core.process.node_time import NodeTime
from taskloom.contract.attempts import Lease
from taskloom.worker import affinity, builds
from taskloom.worker.agent import Agent
from taskloom.worker.execution import Executor, Verdict
from taskloom.worker.settings import parse
from taskloom.worker.spool import Spool
from taskloom.worker.supervise import Supervisor
from tests.support.leases import lease
from tests.support.patience import until
from tests.support.processes import has_ended

TRAINER = """
import hashlib, json, os, pathlib, sys, time
from gpt2core.process.node_time import NodeTime, process_started_s
spent = NodeTime(process_started_s())
settings = json.load(sys.stdin)
spent.went_to("starting")
print(json.dumps({"event": "started"}), flush=True)
result = {"config": settings, "environment": {"pid": os.getpid()}, "node_time": {**spent.to_dict(), "timed_s": 0.0}}
text = json.dumps(result)
pathlib.Path(sys.argv[1]).write_text(text)
print(json.dumps({"event": "result", "sha256": hashlib.sha256(text.encode()).hexdigest()}), flush=True)
"""


class Worker:
    """An executor of leases. Its trainer only reports its settings, its process id and its start time."""

    def __init__(self, spool: Spool) -> None:
        self.agent = Agent("finish")
        settings = parse(["--spool", str(spool.folder), "--server", "http://127.0.0.1:1"], {})
        self.executor = Executor(
            settings, Supervisor(self.agent, SimpleQueue[Any]()),
            lambda result: [sys.executable, "-P", "-c", TRAINER, str(result)],
            launch.allowed_cores(), spool.new_folder,
        )  # fmt: skip

    def attempt(self, what: Lease, spent: NodeTime | None = None) -> Verdict:
        self.agent.claim(what)
        found = self.executor.execute(what, spent or NodeTime(), lambda: None, lambda _: None)
        self.agent.finish()
        self.agent.acknowledge()
        assert found is not None
        return found

    def result(self, spent: NodeTime | None = None) -> dict[str, Any]:
        found = self.attempt(lease(), spent)
        assert found.result is not None, found.error
        return found.result

    def ready(self) -> psutil.Process:
        assert self.executor.standby.ready is not None
        return psutil.Process(self.executor.standby.ready.process.process.pid)


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setattr(affinity, "move_agent", lambda _: None)  # it is this process
    spool = Spool(tmp_path)
    made = Worker(spool)
    yield made
    made.executor.standby.dismiss()
    spool.close()


def test_the_next_lease_takes_the_trainer_that_is_ready(worker: Worker) -> None:
    worker.executor.standby.prepare()
    ready = worker.ready().pid
    worker.executor.standby.prepare()  # one is enough
    assert worker.ready().pid == ready
    first, second = worker.result(), worker.result()
    assert first["environment"]["pid"] == ready
    assert first["config"]["steps"] == lease().spec["steps"]
    assert second["environment"]["pid"] != ready  # each run has a process of its own


def test_a_trainer_that_ended_before_its_lease_is_replaced(worker: Worker) -> None:
    worker.executor.standby.prepare()
    ready = worker.executor.standby.ready
    assert ready is not None
    ready.process.process.kill()
    until(lambda: not ready.process.lives(), "the end of the trainer that was ready")
    assert worker.result()["environment"]["pid"] != ready.process.process.pid
    assert not ready.folder.path.exists()


def test_a_lease_of_another_build_takes_a_trainer_of_its_own(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.executor.standby.prepare()
    ready = worker.ready()
    monkeypatch.setattr(builds, "command", lambda _, command: command)
    monkeypatch.setattr(builds, "unknown", lambda *_: {})
    found = worker.attempt(lease().model_copy(update={"build": "0" * 64}))
    assert found.error is not None
    assert "not from the requested build 0" in found.error["detail"]
    until(lambda: has_ended(ready), "the end of the trainer that was ready")


def test_a_worker_that_is_idle_or_leaves_dismisses_it(worker: Worker) -> None:
    worker.executor.standby.prepare()
    ready = worker.ready()
    worker.executor.standby.dismiss()
    until(lambda: has_ended(ready), "the end of the trainer that was ready")
    worker.executor.standby.dismiss()
    assert worker.result()["environment"]["pid"] != ready.pid  # a new trainer, though one ended


def test_a_trainer_that_cannot_be_started_is_reported_by_its_lease(worker: Worker) -> None:
    worker.executor.standby._command = lambda _: ["/there/is/no/trainer"]
    worker.executor.standby.prepare()
    found = worker.attempt(lease())
    assert found.error is not None
    assert found.error["slug"] == "not-started"


def test_a_lease_that_cannot_begin_leaves_no_trainer(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.executor.standby.prepare()
    ready = worker.ready()

    def full(_: int) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(worker.executor, "_new_folder", full)
    found = worker.attempt(lease())
    assert found.error is not None
    assert "No space left" in found.error["detail"]
    until(lambda: has_ended(ready), "the end of the trainer that was ready")


@pytest.mark.parametrize("code", [0, 1])
def test_the_node_s_time_is_counted_up_to_the_trainer_s_end(worker: Worker, code: int) -> None:
    worker.executor.standby._command = lambda _: [
        sys.executable, "-c", f"print('{{\"event\": \"compiling\"}}'); raise SystemExit({code})"
    ]  # fmt: skip
    began: list[float] = []
    spent = NodeTime()
    worker.agent.claim(lease())
    worker.executor.execute(lease(), spent, lambda: began.append(time.monotonic()), lambda _: None)
    assert began
    assert began[-1] <= spent.until_s <= time.monotonic()


@pytest.mark.parametrize("prepared", [False, True])
def test_node_time_counts_no_second_twice(worker: Worker, prepared: bool) -> None:
    begun = time.monotonic()
    spent = NodeTime(begun)
    if prepared:
        worker.executor.standby.prepare()
        ready = worker.executor.standby.ready
        assert ready is not None
        until(lambda: time.monotonic() > ready.since_s + 1, "a second that would count twice")
    spent.went_to("delivering")
    spent.went_to("claiming")
    parts = worker.result(spent)["node_time"]
    assert list(parts) == ["delivering_s", "claiming_s", "starting_s", "timed_s", "finishing_s"]
    assert begun < spent.until_s <= time.monotonic()
    assert math.fsum(parts.values()) == pytest.approx(spent.until_s - begun, abs=0.5)  # clocks read late
