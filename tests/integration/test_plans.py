"""The statements that run all the time go through the indexes made for them, however long the history is."""

import pytest
from sqlalchemy import event

QUEUED = 300


@pytest.fixture
def plans(api, make_result):
    """What SQLite plans for each statement of a claim, a heartbeat, a result, a look of the reaper and a poll."""
    statements = []

    def note(connection, cursor, statement, parameters, context, many):  # noqa: ARG001
        statements.append((statement, parameters))

    api.submit(axes={"seed": list(range(QUEUED))})
    node = api.worker()
    event.listen(api.context.database.engine, "before_cursor_execute", note)
    lease = node.claim()
    node.beat(lease)
    api.reap()
    node.upload(lease, make_result())
    event.remove(api.context.database.engine, "before_cursor_execute", note)
    found = {}
    with api.context.database.engine.connect() as connection:
        for statement, parameters in statements:
            if statement.startswith(("SELECT", "UPDATE")):
                rows = connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters).all()
                found[statement] = [row[3] for row in rows]
    return found


def test_no_statement_scans_a_table_or_sorts(plans):
    assert len(plans) > 8
    for statement, plan in plans.items():
        for step in plan:
            assert "INDEX" in step or step == "SCAN CONSTANT ROW" or not step.startswith("SCAN"), (statement, plan)
            assert "TEMP B-TREE" not in step, (statement, plan)


def test_a_claim_goes_along_the_queue(plans):
    claim = next(plan for statement, plan in plans.items() if "JOIN block" in statement)
    assert claim[0] == "SEARCH run USING INDEX ix_run_queue (state=?)", claim
