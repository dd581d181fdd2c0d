"""The protocol on a real database, under random sequences of actions of workers, users, clocks and the reaper.

The test does not predict the next state. It checks the invariants after every step.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy import text

from taskloom.contract.attempts import HeartbeatRequest, Lease, LeaseRequest, Progress, ResultUpload
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.workers import WorkerRegistration
from taskloom.server.access.keys.keyring import ANYBODY
from taskloom.server.db import Database
from taskloom.server.errors import InvalidTransition, LeaseLost, ResultConflict, StaleBoot, WorkerBusy
from taskloom.server.queue.attempts import lifecycle
from taskloom.server.queue.attempts.claim import claim
from taskloom.server.queue.experiments import control, submission
from taskloom.server.queue.runs import control as runs
from taskloom.server.queue.workers import registry
from taskloom.server.settings import Settings
from tests.support.caller import whole

WORKERS = st.sampled_from(["w1", "w2", "w3"])
PICK = st.integers(0, 10**6)


class Protocol(RuleBasedStateMachine):
    """One server's services on a database of their own."""

    def __init__(self, empty: Path, result: dict[str, Any]) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "test.db"
        shutil.copy(empty, path)
        self.database = Database(f"sqlite:///{path}")
        self.settings = Settings(database_url=f"sqlite:///{path}")
        self.result = result
        self.boots = dict.fromkeys(("w1", "w2", "w3", "last"), 0)
        self.leases: list[tuple[str, Lease]] = []
        self.acknowledged: set[int] = set()  # attempts whose result was acknowledged
        self.succeeded: set[int] = set()  # runs that were once seen to have succeeded
        for name in self.boots:
            self.register(name)

    def register(self, name: str, boot: int | None = None) -> None:
        boot_id = f"boot-{self.boots[name] if boot is None else boot}"
        given = WorkerRegistration(worker_id=name, boot_id=boot_id, node=f"n-{name}", cores=[0], memory_bytes=8 << 30)
        registry.register(self.database, self.settings, ANYBODY, given)

    def sql(self, statement: str, **values: Any) -> list[Any]:
        with self.database.read() if statement.startswith("SELECT") else self.database.write() as session:
            found = session.execute(text(statement), values)
            return list(found.all()) if found.returns_rows else []  # type: ignore[attr-defined]

    def lease(self, pick: int) -> tuple[str, Lease]:
        return self.leases[pick % len(self.leases)]

    def run_id(self, pick: int) -> int:
        ids = self.sql("SELECT id FROM run ORDER BY id")
        return int(ids[pick % len(ids)][0])

    @rule(repetitions=st.integers(1, 3), trace=st.booleans())
    def submit(self, repetitions: int, trace: bool) -> None:
        request = ExperimentRequest.model_validate({"repetitions": repetitions, "order": "sequential", "trace": trace})
        submission.submit(self.database, self.settings, request, "somebody", None)

    @rule(name=WORKERS)
    def restart(self, name: str) -> None:
        self.boots[name] += 1
        self.register(name)

    @rule(name=WORKERS)
    def claim(self, name: str) -> None:
        request = LeaseRequest(worker_id=name, boot_id=f"boot-{self.boots[name]}", wait_s=0)
        try:
            found = claim(self.database, self.settings, request)
        except WorkerBusy:
            return
        if isinstance(found, Lease):
            self.leases.append((name, found))

    @rule(name=WORKERS)
    def claim_as_the_process_before(self, name: str) -> None:
        request = LeaseRequest(worker_id=name, boot_id=f"boot-{self.boots[name] - 1}", wait_s=0)
        try:
            claim(self.database, self.settings, request)
        except StaleBoot:
            return
        raise AssertionError("a process that was replaced claimed a run")

    @precondition(lambda self: any(self.boots.values()))
    @rule(pick=PICK)
    def register_late(self, pick: int) -> None:
        """Deliver a message that a process sent before it was replaced."""
        name = [name for name, boot in self.boots.items() if boot][pick % sum(map(bool, self.boots.values()))]
        try:
            self.register(name, boot=pick % self.boots[name])
        except StaleBoot:
            return
        raise AssertionError("a process that was replaced took its worker back")

    @precondition(lambda self: self.leases)
    @rule(pick=PICK)
    def beat(self, pick: int) -> None:
        name, lease = self.lease(pick)
        beat = HeartbeatRequest(worker_id=name, attempt_no=lease.attempt_no, progress=Progress(stage="training"))
        try:
            lifecycle.heartbeat(self.database, self.settings, lease.attempt_id, beat)
        except (LeaseLost, InvalidTransition):
            newest = self.sql("SELECT attempts, state FROM run WHERE id = :id", id=lease.run_id)[0]
            state = self.sql("SELECT state FROM attempt WHERE id = :id", id=lease.attempt_id)[0][0]
            assert state not in ("leased", "running"), newest

    @precondition(lambda self: self.leases)
    @rule(pick=PICK, outcome=st.sampled_from(["succeeded", "failed", "cancelled"]))
    def upload(self, pick: int, outcome: str) -> None:
        name, lease = self.lease(pick)
        try:
            lifecycle.finish(self.database, lease.attempt_id, self.upload_of(name, lease, outcome))
        except (ResultConflict, InvalidTransition):
            return
        self.acknowledged.add(lease.attempt_id)

    def upload_of(self, name: str, lease: Lease, outcome: str) -> ResultUpload:
        ok = outcome == "succeeded"
        payload = json.dumps({"result": self.result if ok else None, "error": None if ok else {"slug": outcome}})
        sha256 = hashlib.sha256(payload.encode()).hexdigest()
        fields = {"outcome": outcome, "sha256": sha256, "payload": payload}
        return ResultUpload.model_validate({"worker_id": name, "attempt_no": lease.attempt_no, **fields})

    @precondition(lambda self: self.leases)
    @rule(pick=PICK, column=st.sampled_from(["expires_at", "deadline_at"]), looked=st.booleans())
    def time_passes(self, pick: int, column: str, looked: bool) -> None:
        _, lease = self.lease(pick)
        self.sql(f"UPDATE attempt SET {column} = {column} - 1e6 WHERE id = :id", id=lease.attempt_id)
        if looked:
            lifecycle.reap(self.database, self.settings)

    @precondition(lambda self: self.sql("SELECT count(*) FROM run") != [(0,)])
    @rule(pick=PICK, verb=st.sampled_from([runs.cancel, runs.retry]))
    def user(self, pick: int, verb: Any) -> None:
        try:
            verb(self.database, self.settings, self.run_id(pick), "somebody")
        except InvalidTransition:
            return

    @precondition(lambda self: self.sql("SELECT count(*) FROM run") != [(0,)])
    @rule(pick=PICK, verb=st.sampled_from([control.cancel, control.retry]))
    def user_of_an_experiment(self, pick: int, verb: Any) -> None:
        try:
            verb(self.database, 1 + pick % self.sql("SELECT max(id) FROM experiment")[0][0], "somebody")
        except InvalidTransition:
            return

    @invariant()
    def runs_and_attempts_agree(self) -> None:
        for run_id, state, attempts_no in self.sql("SELECT id, state, attempts FROM run"):
            rows = self.sql("SELECT attempt_no, state FROM attempt WHERE run_id = :id ORDER BY attempt_no", id=run_id)
            assert [row[0] for row in rows] == list(range(1, attempts_no + 1))
            active = [(no, held) for no, held in rows if held in ("leased", "running")]
            assert active == ([(attempts_no, state)] if state in ("leased", "running") else [])

    @invariant()
    def a_run_has_one_result_that_counts_and_keeps_its_success(self) -> None:
        counted = self.sql("SELECT run_id, outcome FROM result WHERE canonical")
        assert len({run_id for run_id, _ in counted}) == len(counted)
        now = {row[0] for row in self.sql("SELECT id FROM run WHERE state = 'succeeded' OR purpose = 'tracing'")}
        assert now == {run_id for run_id, outcome in counted if outcome == "succeeded"}
        assert self.succeeded <= now
        self.succeeded = now

    @invariant()
    def what_was_acknowledged_is_kept(self) -> None:
        assert {row[0] for row in self.sql("SELECT attempt_id FROM result")} == self.acknowledged

    def teardown(self) -> None:
        """Check that every run ends once a worker executes the queue."""
        self.sql("UPDATE attempt SET expires_at = expires_at - 1e6")
        self.sql("UPDATE worker SET seen_at = seen_at - 1e6")  # so that blocks leave their nodes
        lifecycle.reap(self.database, self.settings)
        for _ in itertools.count():
            found = claim(self.database, self.settings, LeaseRequest(worker_id="last", boot_id="boot-0", wait_s=0))
            if not isinstance(found, Lease):
                break
            lifecycle.finish(self.database, found.attempt_id, self.upload_of("last", found, "succeeded"))
            self.acknowledged.add(found.attempt_id)
        self.check_end()
        self.database.close()
        self.folder.cleanup()

    def check_end(self) -> None:
        traced = "SELECT run_id FROM attempt WHERE purpose = 'tracing'"
        assert self.sql(f"SELECT count(*) FROM run WHERE id IN ({traced}) AND state <> 'succeeded'") == [(0,)]
        counted = "SELECT attempt_id FROM result WHERE canonical"
        assert self.sql(f"SELECT count(*) FROM attempt WHERE id IN ({counted}) AND purpose = 'tracing'") == [(0,)]
        assert self.sql("SELECT count(*) FROM run WHERE state IN ('queued', 'leased', 'running')") == [(0,)]
        self.runs_and_attempts_agree()
        self.a_run_has_one_result_that_counts_and_keeps_its_success()
        self.what_was_acknowledged_is_kept()


@pytest.mark.parametrize("examples", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_whatever_comes_in_whatever_order_nothing_is_lost_or_doubled(migrated, make_result, examples):
    # No shrinking: each step uses a database, so it would take minutes and show little more than the steps themselves.
    shape = settings(
        max_examples=examples, stateful_step_count=30, deadline=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )  # fmt: skip
    made: Any = lambda: Protocol(migrated, whole(make_result([0.2] * 12, warmup=2)))  # noqa: E731
    run_state_machine_as_test(made, settings=shape)
