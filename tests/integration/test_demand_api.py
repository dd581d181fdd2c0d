"""Demand of the queue, and waiting reasons of queued runs if provisioners bring workers."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.both_databases

POOL = {"cores": 2, "memory_bytes": 8 << 30, "labels": {"pool": "p"}, "walltime_s": 3600, "interval_s": 30}


def waiting(api, run_id=1):
    place = api.get(f"/runs/{run_id}")["queue"]
    return place["reason"], place["waiting_for"]


def test_demand_groups_blocks_by_what_they_need(api):
    assert api.get("/queue/demand") == {"needs": [], "workers": []}
    api.submit(axes={"threads": [1, 2]}, repetitions=3, limits={"timeout_s": 100})
    api.submit(axes={"threads": [1, 2]}, repetitions=1, limits={"timeout_s": 100})
    api.submit(base={"cores": [5]}, requires={"labels": {"site": "a"}}, limits={"timeout_s": 100}, priority=1)
    pinned, wide = api.get("/queue/demand")["needs"]
    assert (pinned["pinned_cores"], pinned["labels"], pinned["blocks"], pinned["runs"]) == ([5], {"site": "a"}, 1, 1)
    assert (wide["cores"], wide["timeout_s"], wide["blocks"], wide["kept_blocks"], wide["runs"]) == (2, 100, 4, 0, 8)
    node = api.worker()
    node.claim()
    demand = api.get("/queue/demand")
    assert [(need["blocks"], need["kept_blocks"], need["runs"]) for need in demand["needs"]] == [(1, 0, 1), (3, 1, 7)]
    assert [(worker["worker_id"], worker["idle"]) for worker in demand["workers"]] == [("w1", False)]
    api.post("/workers/w1/leave", {"boot_id": "boot-1"}, status=204)
    demand = api.get("/queue/demand")
    assert demand["workers"] == []
    assert [need["blocks"] for need in demand["needs"]] == [1, 4]


def test_a_queued_run_says_what_becomes_of_a_pools_jobs(api):
    api.submit(base={"threads": 2}, limits={"timeout_s": 600})
    assert waiting(api)[0] == "no-worker"
    api.put("/queue/pools/p", POOL)
    assert waiting(api)[0] == "pool-asked"
    api.put("/queue/pools/p", {**POOL, "problem": "sbatch: Job violates accounting policy"})
    assert waiting(api) == ("pool-held", "pool `p`: sbatch: Job violates accounting policy")
    job = {"job_id": "7", "state": "PENDING", "reason": "Priority"}
    api.put("/queue/pools/p", {**POOL, "jobs": [job]})
    assert waiting(api) == ("pool-waiting", "a job of pool `p` is pending in Slurm: Priority")
    api.put("/queue/pools/p", {**POOL, "jobs": [{**job, "state": "RUNNING", "reason": "None"}]})
    assert waiting(api) == ("pool-starting", "a job of pool `p` is starting")
    api.worker()
    assert waiting(api)[0] == "next"


def test_what_no_job_of_a_pool_could_run_says_so(api):
    api.submit(limits={"timeout_s": 3500})
    api.put("/queue/pools/p", POOL)
    reason, text = waiting(api)
    assert reason == "too-little-time"
    assert text.endswith("; may take 3500 s; the job of a pool with the most time left has 3480 s")


def test_a_pool_whose_provisioner_is_silent_does_not_count(api):
    api.submit()
    api.put("/queue/pools/p", POOL)
    api.sql("UPDATE pool SET silent_at = silent_at - 91")
    assert waiting(api)[0] == "no-worker"
    assert [pool["name"] for pool in api.get("/queue/pools")["items"]] == ["p"]


@pytest.mark.parametrize(
    ("name", "changes", "status"),
    [("p", {"cores": 0}, 422), ("p", {"walltime_s": "1h"}, 422), ("a.b", {}, 422), ("p", {"extra": 1}, 422)],
)
def test_a_report_that_is_not_one_is_refused(empty_api, name, changes, status):
    empty_api.put(f"/queue/pools/{name}", {**POOL, **changes}, status=status)
    assert empty_api.get("/queue/pools")["items"] == []


def test_there_are_only_so_many_pools(api, monkeypatch):
    monkeypatch.setattr("taskloom.server.queue.demand.provisioning.MAX_POOLS", 1)
    api.put("/queue/pools/a", POOL)
    assert api.put("/queue/pools/b", POOL, status=422)["type"] == "/problems/too-many-pools"
    api.put("/queue/pools/a", POOL)
