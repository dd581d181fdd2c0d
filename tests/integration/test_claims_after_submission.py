"""A claim reads one queued run, also right after a large submission, which PostgreSQL's daemon has not counted yet."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import event

pytestmark = [pytest.mark.both_databases, pytest.mark.on_postgres]
RUNS = 1000


def rows_read(plan):
    """Rows that each node of a plan gave."""
    yield plan["Actual Rows"]
    for inner in plan.get("Plans", ()):
        yield from rows_read(inner)


def test_a_claim_does_not_sort_the_queue(api):
    api.submit(axes={"seed": list(range(RUNS))}, order="sequential")
    node = api.worker()
    claims = []

    def hear(connection, cursor, statement, parameters, context, many):  # noqa: ARG001
        if "SKIP LOCKED" in statement:
            claims.append((statement, parameters))

    engine = api.context.database.engine
    event.listen(engine, "before_cursor_execute", hear)
    node.claim()
    event.remove(engine, "before_cursor_execute", hear)
    ((statement, parameters),) = claims
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
        connection.rollback()
    (found,) = json.loads(plan) if isinstance(plan, str) else plan
    assert max(rows_read(found["Plan"])) < 10, found
