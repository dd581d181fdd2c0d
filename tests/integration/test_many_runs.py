"""Changing all runs of an experiment takes as many statements for many runs as for a few."""

from collections import Counter

import pytest
from sqlalchemy import event

from taskloom.server.queue.transitions import changes

pytestmark = pytest.mark.both_databases


@pytest.fixture
def writes(api):
    """The server's statements that write runs and their histories."""
    made = []

    def note(_connection, _cursor, statement, *_):
        if statement.startswith(("UPDATE run ", "INSERT INTO run ", "INSERT INTO run_event ")):
            made.append(" ".join(statement.split()[:3]))

    event.listen(api.context.database.engine, "before_cursor_execute", note)
    yield made
    event.remove(api.context.database.engine, "before_cursor_execute", note)


def in_all_states(api, make_result, runs):
    """An experiment with one run in each other state and all others queued, and the worker that runs one of them."""
    made = api.submit(axes={"seed": list(range(runs))}, order="sequential")
    node, other = api.worker("w1"), api.worker("w2")
    node.upload(node.claim(), make_result())
    node.upload(node.claim(), error={"slug": "boom"})
    running = node.claim()
    node.beat(running)
    return f"/experiments/{made['id']}", node, running, other.claim()


@pytest.mark.parametrize("runs", [10, 200])
def test_a_few_statements_change_all_runs(api, make_result, writes, runs):
    path, node, running, leased = in_all_states(api, make_result, runs)
    assert writes[:2] == ["INSERT INTO run", "INSERT INTO run_event"]
    writes.clear()
    cancelled = api.post(f"{path}/cancel")
    states = {"succeeded": 1, "failed": 1, "running": 1, "leased": 1, "cancelled": runs - 4}
    assert cancelled["by_state"] == states
    # One statement for the running runs, one for the queued runs.
    assert Counter(writes) == {"UPDATE run SET": 2, "INSERT INTO run_event": 2}
    assert node.beat(running)["cancel"] is True
    writes.clear()
    again = api.post(f"{path}/retry")
    assert again["by_state"] == {"succeeded": 1, "running": 1, "leased": 1, "queued": runs - 3}
    assert Counter(writes) == {"UPDATE run SET": 2, "INSERT INTO run_event": 2}  # the failed one, and the cancelled
    failed = api.get(f"/runs/{running['run_id'] - 1}")
    assert (failed["state"], failed["error"], failed["started_at"], failed["finished_at"]) == ("queued", *[None] * 3)
    assert leased["run_id"] == running["run_id"] + 1


def test_every_run_keeps_each_change_however_the_runs_are_divided(api, make_result, monkeypatch):
    monkeypatch.setattr(changes, "CHUNK", 3)
    path, node, running, leased = in_all_states(api, make_result, 14)
    for verb in ("cancel", "cancel", "retry"):
        api.post(f"{path}/{verb}")
    queued = range(leased["run_id"] + 1, leased["run_id"] + 11)
    for run_id in queued:
        rows = api.get(f"/runs/{run_id}/changes")["items"]
        assert [(row["verb"], row["state"], row["actor"]) for row in rows] == [
            ("submit", "queued", "local"), ("cancel", "cancelled", "local"), ("retry", "queued", "local"),
        ]  # fmt: skip
    for lease, before in ((running, ["claim", "start"]), (leased, ["claim"])):
        rows = api.get(f"/runs/{lease['run_id']}/changes")["items"]
        assert [row["verb"] for row in rows] == ["submit", *before, "request-cancel"]
    assert api.sql("SELECT count(*) FROM run WHERE queued_at > created_at") == [(11,)]  # they are queued again
    node.upload(running, outcome="cancelled")
    assert api.get(f"/runs/{running['run_id']}")["state"] == "cancelled"



def test_a_message_changes_the_row_of_its_run_once(api, make_result, writes):
    """PostgreSQL adds an entry to every index of the table each time."""
    api.submit(repetitions=2, order="sequential")
    node = api.worker()
    node.upload(node.claim(), make_result())  # which creates the series
    writes.clear()
    lease = node.claim()
    assert writes == ["UPDATE run SET", "INSERT INTO run_event"]
    node.beat(lease, stage="training", step=1)
    node.upload(lease, make_result())
    own = 1  # of `upload`, which gives the run the specification of its result
    assert Counter(writes) == {"UPDATE run SET": 3 + own, "INSERT INTO run_event": 3}
