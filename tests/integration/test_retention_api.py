import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from taskloom.server.queue.retention import pruning
from tests.support.patience import until

pytestmark = pytest.mark.both_databases
TABLES = ("experiment", "block", "run", "attempt", "result", "artifact", "output_line", "run_event")


@pytest.fixture
def past(api, make_result):
    """Experiment 1 has ended with succeeded, failed and cancelled runs; 2 has ended; 3 is queued; 4 is recent."""
    node = api.worker()

    def run(name, **upload):
        lease = node.claim()
        body = {"worker_id": "w1", "attempt_no": lease["attempt_no"], "progress": {}}
        api.post(f"/attempts/{lease['attempt_id']}/heartbeat", {**body, "output": {"first": 1, "lines": ["hello"]}})
        node.leave(lease, "own.txt", name.encode())
        node.leave(lease, "shared.txt", b"the same for all")
        node.upload(lease, **upload)

    api.submit(axes={"seed": [1, 2, 3]}, order="sequential")
    run("one", result=make_result())
    run("two", error={"slug": "boom"})
    api.post("/runs/3/cancel")
    api.submit()
    run("three", result=make_result())
    api.submit(axes={"seed": [1, 2]}, order="sequential")
    run("four", result=make_result())
    api.post("/runs/6/cancel")
    api.submit()
    run("five", result=make_result())
    api.post("/runs/6/retry")
    api.sql("UPDATE run SET finished_at = finished_at - 1000 WHERE finished_at IS NOT NULL AND id < 7")
    return api


def rows(api):
    return {table: api.sql(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def files(api):
    return {p.name for p in api.context.store.root.glob("??/*")}


def prune(api, **request):
    return api.post("/prune", {"older_than_s": 500, **request})


def test_old_runs_go_with_all_that_belongs_to_them(past):
    before, stored = rows(past), files(past)
    counted = prune(past, dry_run=True)
    assert (rows(past), files(past)) == (before, stored)
    done = prune(past)
    assert done == {**counted, "dry_run": False}
    assert {key: done[key] for key in ("experiments", "runs", "attempts", "results", "artifacts", "output_lines")} == {
        "experiments": 2, "runs": 4, "attempts": 3, "results": 3, "artifacts": 6, "output_lines": 3,
    }  # fmt: skip
    after = rows(past)
    assert {table: before[table] - after[table] for table in TABLES} == {
        "experiment": 2, "block": 4, "run": 4, "attempt": 3, "result": 3, "artifact": 6, "output_line": 3,
        "run_event": 14,
    }  # fmt: skip
    assert (done["files"], done["bytes"]) == (3, len("onetwothree"))
    assert len(files(past)) == len(stored) - 3  # shared files stay
    assert [item["id"] for item in past.get("/experiments")["items"]] == [4, 3]
    assert past.http.get("/api/v1/runs/5/artifacts/shared.txt").content == b"the same for all"
    assert prune(past)["runs"] == 0


def test_nothing_goes_of_what_is_unfinished_or_young(past):
    past.sql("UPDATE run SET finished_at = finished_at + 1000 WHERE experiment_id = 1")
    assert prune(past)["runs"] == 1  # that of experiment 2; experiment 3 has not ended
    assert prune(past, older_than_s=0)["runs"] == 4
    assert [run["id"] for run in past.get("/runs")["items"]] == [5, 6]


def test_the_newest_go_too_and_their_ids_are_not_given_again(past):
    newest = past.get("/runs/7")["history"][-1]["id"]
    prune(past, older_than_s=0)
    past.get("/runs/7", 404)
    past.post("/runs/6/cancel")
    assert past.submit()["id"] == 5
    lease = past.worker("w2").claim()
    assert (lease["run_id"], lease["attempt_id"]) == (8, newest + 1)


def test_only_what_is_asked_for_goes(past):
    assert prune(past, experiment_id=2, states=["failed"])["runs"] == 0
    assert prune(past, states=["failed", "cancelled"])["runs"] == 2
    assert [run["id"] for run in past.runs(1)] == [1]
    assert prune(past, experiment_id=1)["experiments"] == 1
    assert [item["id"] for item in past.get("/experiments")["items"]] == [4, 3, 2]
    assert past.post("/prune", {}, 422)["errors"][0]["field"] == "older_than_s"
    assert past.post("/prune", {"older_than_s": 1, "states": ["queued"]}, 422)["errors"][0]["pointer"] == "/states/0"


def test_a_run_that_is_still_to_be_confirmed_stays(past):
    past.sql("""UPDATE experiment SET request = '{"confirms": 4}' WHERE id = 3""")
    prune(past)
    assert [run["id"] for run in past.get("/runs")["items"]] == [4, 5, 6, 7]


def test_files_that_nothing_refers_to_go_and_those_on_their_way_stay(past):
    store = past.context.store
    orphan = store.path("ab" + "0" * 62)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"orphan")
    with store.incoming() as coming, store.incoming() as left:
        os.utime(left.path, (time.time() - 1e6,) * 2)
        done = prune(past, older_than_s=5000)
        assert (done["runs"], done["files"], done["bytes"]) == (0, 2, 6)
        assert coming.path.exists()
        assert not left.path.exists()
    assert not orphan.exists()


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/runs/2/retry", "/experiments/1/retry"])
def test_what_is_tried_again_while_it_is_deleted_is_gone(past, monkeypatch, database_kind, path):
    """Both requests lock the experiment and its runs in the same order."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    confirmed = pruning._confirmed

    def meet(session):
        """Retry the runs once they are locked, and return when the retry waits for the lock."""
        if not tried:
            tried.append(pool.submit(past.http.post, f"/api/v1{path}"))
            if database_kind == "postgres":  # SQLite has one writer
                until(lambda: past.sql(waiting)[0][0], "a retry that waits")
        return confirmed(session)

    tried: list[Any] = []
    monkeypatch.setattr(pruning, "_confirmed", meet)
    with ThreadPoolExecutor(1) as pool:
        assert prune(past, experiment_id=1)["runs"] == 3
        assert tried[0].result().status_code == 404
