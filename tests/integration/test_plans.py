"""Frequent statements use their indexes, however long the history is."""

import json
from typing import Any

import pytest
from sqlalchemy import event

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]
QUEUED = 300
COPIES = 60  # past experiments and runs of each, 18,000 runs in all
MOST_ROWS = 1500  # rows that one statement may read
LARGE = ("run", "attempt", "result")

RUN = "block, repetition, variant, spec, shape, rank, cores_needed, pinned_cores, memory_needed_bytes, timeout_s"
PAST = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :copies) INSERT INTO experiment "
    "(name, request, request_sha256, owner, runs, created_at) "
    "SELECT 'past', request, '', owner, runs, created_at FROM experiment, n",
    "INSERT INTO block (experiment_id, number, cores_needed, memory_needed_bytes, pinned_cores) "
    "SELECT id, number, 1, 0, '' FROM experiment, block "
    "WHERE name = 'past' AND experiment_id = 1",
    f"INSERT INTO run (experiment_id, position, {RUN}, state, attempts, losses, created_at, queued_at, finished_at) "
    f"SELECT experiment.id, position, {RUN}, CASE position % 100 WHEN 0 THEN 'failed' WHEN 1 THEN 'cancelled' "
    "ELSE 'succeeded' END, 1, 0, 0, 0, 1 FROM experiment, run WHERE name = 'past' AND experiment_id = 1",
    "INSERT INTO attempt (run_id, attempt_no, worker_id, boot_id, node, core_set, state, claimed_at, expires_at, "
    "deadline_at, finished_at) SELECT id, 1, 'w1', '', '', '', state, 0, 0, 0, 1 FROM run WHERE state <> 'queued'",
    "INSERT INTO result (attempt_id, run_id, outcome, sha256, payload, canonical, received_at) "
    "SELECT id, run_id, state, '', '', true, 0 FROM attempt WHERE finished_at IS NOT NULL",
)


@pytest.fixture
def past(api, database_kind):
    """A worker, a queue, and a long history."""
    api.submit(axes={"seed": list(range(QUEUED))})
    node = api.worker()
    for statement in PAST:
        api.sql(statement, **({"copies": COPIES} if ":copies" in statement else {}))
    if database_kind == "postgres":
        api.sql("ANALYZE")  # as its autovacuum does; SQLite needs no statistics
    return node


@pytest.fixture
def planned(api, past, database_kind):  # noqa: ARG001
    """A function that runs its argument and returns (statement, tables read, plan) for each statement."""

    def plans(work):
        statements = []

        def note(connection, cursor, statement, parameters, context, many):  # noqa: ARG001
            statements.append((statement, parameters))

        event.listen(api.context.database.engine, "before_cursor_execute", note)
        work()
        event.remove(api.context.database.engine, "before_cursor_execute", note)
        explain = explain_sqlite if database_kind == "sqlite" else explain_postgres
        with api.context.database.engine.connect() as connection:
            return {s: explain(connection, s, p) for s, p in statements if s.startswith(("SELECT", "UPDATE"))}

    return plans


def explain_sqlite(connection, statement, parameters):
    """The plan's steps, after checking that none reads a large table as a whole or sorts rows. Distinct values, which
    are not sorted, are few."""
    steps = [row[3] for row in connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters)]
    first_rows = "WHERE" not in statement and "LIMIT" in statement
    for step in steps:
        assert step not in [f"SCAN {table}" for table in LARGE] or first_rows, (statement, steps)
        assert "TEMP B-TREE" not in step or step.endswith("FOR DISTINCT"), (statement, steps)
    return steps


def explain_postgres(connection, statement, parameters):
    """The names of the plan's indexes, after checking that no large table is read as a whole, and few rows at all."""
    analyze = "ANALYZE, " if statement.startswith("SELECT") else ""
    with connection.begin() as transaction:
        found = connection.exec_driver_sql(f"EXPLAIN ({analyze}FORMAT JSON) {statement}", parameters).scalar_one()
        transaction.rollback()
    nodes, indexes, rows = [json.loads(found)[0]["Plan"] if isinstance(found, str) else found[0]["Plan"]], [], 0
    for node in nodes:
        nodes += node.get("Plans", [])
        if "Scan" in node["Node Type"]:
            assert (node["Node Type"], node.get("Relation Name")) not in [("Seq Scan", table) for table in LARGE], found
            read = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
            rows += read * node.get("Actual Loops", 1)
            indexes.append(node.get("Index Name"))
    assert rows <= MOST_ROWS, (statement, found)
    return indexes


def test_what_workers_ask_goes_along_indexes(api, past, planned, make_result, database_kind):
    def work():
        lease = past.claim()
        past.beat(lease)
        api.reap()
        past.upload(lease, make_result())

    plans = planned(work)
    assert len(plans) > 8
    claim = next(plan for statement, plan in plans.items() if "JOIN block" in statement)
    if database_kind == "sqlite":
        assert claim[0] == "SEARCH run USING INDEX ix_run_queue (state=?)", claim
    else:
        assert "ix_run_queue" in claim


QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/runs", {}),
    ("/runs", {"cursor": True}),
    ("/runs", {"experiment_id": 7}),
    ("/runs", {"state": "failed"}),
    ("/runs", {"sort": "-id"}),
    ("/runs", {"sort": "-finished_at", "since": "7d"}),
    ("/runs", {"sort": "median_step_s"}),
    ("/runs", {"sort": "-id", "node": "n"}),
    ("/runs", {"sort": "-id", "flagged": "true"}),
    ("/runs", {"state": ["failed", "cancelled", "running"], "cursor": True}),
    ("/runs", {"state": "failed", "experiment_id": 7}),
    ("/runs", {"state": ["failed", "cancelled"], "experiment_id": 7}),
    ("/runs/5000", {}),
    ("/runs/1", {}),  # queued
    ("/experiments", {"limit": 3}),
    ("/experiments/7", {}),
    ("/workers", {}),
    ("/attempts/5000", {}),
)


def test_lists_filters_and_details_go_along_indexes(api, planned):
    cursor = api.get("/runs", limit=500)["next_cursor"]
    for path, query in QUESTIONS:
        given = {**query, "cursor": cursor} if "cursor" in query else query
        assert planned(lambda path=path, given=given: api.get(path, **given)), path
