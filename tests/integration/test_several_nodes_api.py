"""Runs that need several nodes go to the workers of jobs that have as many."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.both_databases

RANKED = {"base": {"batch": 4, "threads": 1, "ranks": 4}}
POOL = {"cores": 2, "memory_bytes": 8 << 30, "walltime_s": 36000, "interval_s": 30}


def waits_for(api, experiment):
    return api.get(f"/runs/{api.runs(experiment)[0]['id']}")["queue"]["waiting_for"]


def test_a_worker_of_two_nodes_takes_runs_of_two_nodes_and_of_one(api):
    experiment = api.submit(**RANKED, requires={"nodes": 2})["id"]
    one = api.worker("one", labels={"mpi": "installed"})
    assert waits_for(api, experiment) == "no worker has 2 nodes"
    one.claim(status=204)
    four = api.worker("four", labels={"nodes": "4"}, cores=[4, 5])
    four.claim(status=204)
    two = api.worker("two", labels={"nodes": "2"}, cores=[2, 3])
    lease = two.claim()
    assert (lease["experiment_id"], lease["nodes"]) == (experiment, 2)
    assert two.claim()["nodes"] == 2  # the same lease again, since its answer may have been lost
    plain = api.submit(base={"threads": 1})["id"]
    lease = four.claim()
    assert lease["experiment_id"] == plain
    assert "nodes" not in lease  # earlier workers refuse the field


def test_a_number_of_nodes_that_neither_worker_nor_pool_has_is_refused(api):
    api.worker("one")
    (error,) = api.submit(422, **RANKED, requires={"nodes": 2})["errors"]
    assert (error["pointer"], error["accepted"]) == ("/requires/nodes", "1, since no known worker or pool has 2 nodes")
    api.put("/queue/pools/p", {**POOL, "labels": {"pool": "p", "nodes": "2"}})
    (error,) = api.submit(422, **RANKED, requires={"nodes": 4})["errors"]
    assert error["accepted"] == "1 and 2, since no known worker or pool has 4 nodes"


def test_a_pool_is_what_a_run_of_several_nodes_waits_for(api):
    four = api.submit(base={"batch": 8, "threads": 1, "ranks": 8}, requires={"nodes": 4})["id"]
    two = api.submit(**RANKED, requires={"nodes": 2})["id"]
    api.put("/queue/pools/p", {**POOL, "labels": {"pool": "p", "nodes": "2"}})
    assert waits_for(api, four).endswith("no job of a pool has 4 nodes")
    assert "the provisioner of pool `p` submits a job" in waits_for(api, two)
    first, second = api.get("/queue/demand")["needs"]
    assert (first["labels"], first["cores"]) == ({"nodes": "4"}, 2)
    assert (second["labels"], second["cores"]) == ({"nodes": "2"}, 2)


def test_the_dry_run_tells_the_memory_of_one_node(api):
    plans = [
        api.post("/experiments?dry_run=true", {**RANKED, "requires": {"nodes": nodes}}, 200) for nodes in (1, 2, 4)
    ]
    whole = plans[0]["memory_bytes"]
    assert [plan["memory_bytes"] for plan in plans] == [whole, whole // 2, whole // 4]


def test_estimates_are_those_of_as_many_nodes(api, make_result):
    """A run of one node says how long one of one node takes, and is a guess for one of two."""
    asked = {"base": {**RANKED["base"], "steps": 4}}
    api.submit(**asked)
    node = api.worker("one", cores=[0, 1, 2, 3], labels={"mpi": "installed"})
    result = make_result([3, 3, 3, 3], ranks=4, batch=4, cores=[0, 1, 2, 3])
    node.upload(node.claim(), {**result, "node_time": {"warmup_s": 3.0, "timed_s": 9.0}})
    api.worker("two", labels={"nodes": "2"}, cores=[4, 5])
    one, two = (
        api.post("/experiments?dry_run=true", {**asked, "requires": {"nodes": nodes}}, 200) for nodes in (1, 2)
    )
    assert (one["estimate_basis"], two["estimate_basis"]) == ("same-shape", "guess")
    assert two["estimated_s"] == pytest.approx(one["estimated_s"])  # half the memory and half the threads on each
    queued = [api.submit(**asked, **more)["id"] for more in ({}, {"requires": {"nodes": 2}})]
    assert [api.get(f"/experiments/{each}")["eta_basis"] for each in queued] == ["finished-runs", "guess"]
