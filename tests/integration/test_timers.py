"""What the server does by itself from time to time: calibrations, and the deletion of old runs."""

from __future__ import annotations

import pytest

from tests.support.patience import until

pytestmark = pytest.mark.both_databases


def test_each_node_with_a_label_is_calibrated_once_in_an_interval(start_server):
    timed = {"calibrate_every_h": 10_000.0, "reap_every_s": 0.05}
    first, second = (start_server(**timed) for _ in range(2))
    first.worker("w1", labels={"node": "a1"})
    first.worker("w2", labels={"node": "a1"})
    first.worker("w3", labels={"node": "b2"})
    first.worker("w4", labels={"partition": "c"})
    found = until(lambda: (len(items := first.get("/experiments", sort="id")["items"]) == 2 and items) or None)
    assert {(each["purpose"], each["runs"], each["submitter"]) for each in found} == {("calibrate", 20, "calibrations")}
    asked = [first.get(f"/experiments/{each['id']}")["request"]["requires"]["labels"] for each in found]
    assert sorted(labels["node"] for labels in asked) == ["a1", "b2"]
    first.worker("w5", labels={"node": "c3"})
    until(lambda: len(second.get("/experiments")["items"]) == 3)  # both servers have looked again since


def test_old_runs_are_deleted_and_no_others(start_server, make_result):
    api = start_server()
    node = api.worker()
    for _ in range(2):
        api.submit()
        node.upload(node.claim(), make_result())
    api.sql("UPDATE run SET finished_at = finished_at - 864000 WHERE id = 1")
    start_server(prune_after_days=11.0)
    start_server(prune_after_days=9.0)
    until(lambda: [each["id"] for each in api.get("/runs")["items"]] == [2])
    assert [each["id"] for each in api.get("/experiments")["items"]] == [2]


def test_a_node_whose_workers_are_gone_is_not_calibrated(start_server):
    api = start_server()
    api.worker("w1", labels={"node": "a1"})
    api.post("/workers/w1/leave", {"boot_id": "boot-1"}, 204)
    api.worker("w2", labels={"node": "b2"})
    api.sql("UPDATE worker SET seen_at = seen_at - 3600 WHERE worker_id = 'w2'")
    timed = start_server(calibrate_every_h=1.0, reap_every_s=0.05)
    timed.worker("w3", labels={"node": "c3"})
    until(lambda: timed.get("/experiments")["items"])
    requests = [timed.get(f"/experiments/{each['id']}")["request"] for each in timed.get("/experiments")["items"]]
    assert [request["requires"]["labels"] for request in requests] == [{"node": "c3"}]
