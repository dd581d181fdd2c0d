"""The database's clock jumps or drifts: no attempt is lost or late by that, and no dead worker keeps its run.

A clock that jumps forward is one before which all stored instants move back.
"""

import time
from dataclasses import replace

import pytest
from sqlalchemy import text

from taskloom.server import extension
from taskloom.server.db import read_clock
from tests.support.patience import until

pytestmark = pytest.mark.both_databases
HOUR_S = 3600.0


def jump(api, by_s, *others):
    """others: further servers on this database."""
    with api.context.database.write() as session:  # for the reaper both happen at once
        session.execute(text("UPDATE worker SET seen_at = seen_at - :by"), {"by": by_s})
        moved = "UPDATE attempt SET expires_at = expires_at - :by, deadline_at = deadline_at - :by"
        session.execute(text(moved), {"by": by_s})
        reading = read_clock(session)
        for each in (api, *others):
            each.context.database.clock.follow(replace(reading, at=reading.at - by_s))


def settled(caplog):
    return [record for record in caplog.records if "clock jumped" in record.getMessage()]


def state(api):
    return api.get("/attempts/1")["state"]


@pytest.mark.parametrize("by_s", [HOUR_S, -2 * HOUR_S])
def test_a_heartbeat_after_a_jump_goes_on(api, caplog, by_s):
    api.submit(limits={"timeout_s": 600})
    node = api.worker()
    lease = node.claim()
    node.beat(lease, step=1)
    jump(api, by_s)
    answer = node.beat(lease, step=2)
    assert not answer["cancel"]
    assert not answer["overdue"]
    assert len(settled(caplog)) == 1
    ((left_s, lease_s),) = api.sql("SELECT deadline_at - claimed_at, expires_at - claimed_at FROM attempt")
    assert abs(left_s - 600) < 300 or by_s < 0
    assert lease_s > 0 or by_s > 0


@pytest.mark.parametrize("by_s", [HOUR_S, -2 * HOUR_S])
def test_a_healthy_attempt_is_not_lost_by_a_jump(start_server, caplog, by_s):
    api = start_server(reap_after_s=0.0, reap_every_s=0.02)
    api.submit(limits={"timeout_s": 600})
    node = api.worker()
    lease = node.claim()
    jump(api, by_s)
    until(lambda: settled(caplog), "the reaper to see the jump")
    api.reap()
    assert state(api) == "leased"
    assert not node.beat(lease, step=1)["cancel"]


@pytest.mark.parametrize("by_s", [HOUR_S, -2 * HOUR_S])
def test_a_dead_workers_run_is_queued_again_within_a_lease(start_server, by_s):
    api = start_server(reap_after_s=0.0, reap_every_s=0.02, lease_s=1.0)
    api.submit()
    api.worker().claim()
    jump(api, by_s)
    until(lambda: state(api) == "lost", "the end of its lease")
    assert api.get("/runs/1")["state"] == "queued"


@pytest.mark.parametrize("by_s", [HOUR_S, -2 * HOUR_S])
def test_a_jump_that_two_servers_notice_counts_once(start_server, caplog, by_s):
    api, other = start_server(), start_server()
    api.submit(limits={"timeout_s": 600})
    node = api.worker()
    lease = node.claim()
    jump(api, by_s, other)
    for node.api in (api, other):
        answer = node.beat(lease, step=1)
        assert not answer["cancel"]
        assert not answer["overdue"]
    assert len(settled(caplog)) == 2
    ((left_s,),) = api.sql("SELECT deadline_at - claimed_at FROM attempt")
    assert left_s < 900  # a timeout, and what the test takes


def test_a_clock_that_drifts_makes_nothing_late(start_server, caplog):
    api = start_server(reap_after_s=0.0, reap_every_s=0.02)
    api.submit(limits={"timeout_s": 30})
    node = api.worker()
    lease = node.claim()
    for _ in range(40):
        jump(api, 1.5)
        assert not node.beat(lease, step=1)["cancel"]
    assert len(settled(caplog)) > 10


def test_a_clock_that_was_set_back_while_no_server_ran(api):
    api.submit(limits={"timeout_s": 600})
    api.worker().claim()
    api.sql("UPDATE attempt SET expires_at = expires_at + 7200, deadline_at = deadline_at + 7200")
    api.sql("UPDATE worker SET seen_at = seen_at + 7200")
    extension.begin(api.context.database, api.context.settings)
    ((expires_s, deadline_s),) = api.sql("SELECT expires_at - claimed_at, deadline_at - claimed_at FROM attempt")
    assert expires_s < 600
    assert deadline_s < 1200
    assert api.sql("SELECT seen_at - claimed_at FROM worker, attempt")[0][0] < 600


def test_a_slow_answer_of_the_database_is_no_jump(api):
    clock = api.context.database.clock
    api.submit()
    node = api.worker()
    lease = node.claim()
    node.beat(lease, step=1)
    before, calls = clock.monotonic, []

    def delayed():
        calls.append(time.monotonic())
        return before() + (10.0 if len(calls) % 2 == 0 else 0.0)  # the second instant of a reading comes late

    clock.monotonic = delayed
    assert not node.beat(lease, step=2)["cancel"]


@pytest.mark.parametrize("since", ["claimed_at", "started_at"])
def test_no_run_ends_before_it_began(api, make_result, since):
    api.submit()
    node = api.worker()
    lease = node.claim()
    if since == "started_at":
        node.beat(lease, step=1)
    api.sql(f"UPDATE attempt SET {since} = {since} + 7200")  # the clock was set back by as much
    for table in ("run", "experiment"):
        api.sql(f"UPDATE {table} SET started_at = started_at + 7200")
    node.beat(lease, step=2)
    node.upload(lease, make_result())
    run, attempt = api.get("/runs/1"), api.get("/attempts/1")
    assert run["duration_s"] == 0
    assert attempt["claimed_at"] <= attempt["started_at"] <= attempt["finished_at"]
    assert api.get("/experiments/1")["started_at"] == run["started_at"]
    times = [each["at"] for each in api.get("/runs/1/changes")["items"]]
    assert times == sorted(times)
