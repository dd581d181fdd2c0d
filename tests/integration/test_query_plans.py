"""Lists and the overview use indexes on both databases: no table that grows with runs is scanned. The planner is told
to avoid scans of whole tables."""

import json
from typing import Any

import pytest
from sqlalchemy import event

from taskloom.server.queue.experiments import durations
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.experiments import eta

pytestmark = pytest.mark.both_databases
GROWING = {
    "run", "attempt", "result", "digest", "run_event", "output_line", "progress_point", "step_times", "artifact",
    "experiment", "block",
}  # fmt: skip
INSTANT = "2026-01-01T00:00:00Z"
ADDRESSES = [
    "/runs", "/runs?sort=-id", "/runs?sort=-finished_at", "/runs?sort=created_at", "/runs?sort=-started_at",
    "/runs?sort=-median_step_s", "/runs?sort=tokens_per_s", "/runs?sort=-final_loss", "/runs?sort=flagged_steps",
    "/runs?sort=-duration_s", "/runs?sort=node", "/runs?sort=-state", "/runs?sort=experiment_id", "/runs?sort=threads",
    "/runs?state=succeeded", "/runs?state=failed&state=queued&sort=-id",
    "/runs?node=n1", "/runs?flagged=true", "/runs?experiment_id=1", "/runs?experiment_id=1&state=failed",
    f"/runs?sort=-finished_at&finished_since={INSTANT}", f"/runs?since={INSTANT}", "/runs?experiment_id=1&total=true",
    "/runs?state=failed&total=true", "/runs/1", "/runs/1/log", "/runs/1/steps", "/runs/1/progress", "/runs/1/changes",
    "/runs/1/artifacts", "/experiments", "/experiments?sort=finished_at", "/experiments/1", "/experiments/1/changes",
    "/experiments?limit=50&total=true", "/experiments?state=active", "/experiments?sort=-created_at",
    "/experiments?sort=name", "/experiments?sort=-state", "/experiments?sort=submitter", "/experiments?sort=-group",
    "/experiments?sort=-runs", "/experiments?sort=ratio",
    "/analysis/history/series", "/analysis/history/series?run_id=1", "/analysis/history/series?sort=name",
    "/analysis/history/series?sort=-median_step_s", "/analysis/history/series?sort=alerts", "/runs?sort=variant",
     "/analysis/history/series/1/points",
    f"/analysis/history/series/1/points?sort=-finished_at&finished_until={INSTANT}", "/analysis/alerts", "/overview",
    "/queue/runs", "/queue/demand", "/workers", "/workers/w1/attempts",
]  # fmt: skip


@pytest.fixture
def plans(api, make_result):
    """The statements of a request, each with the tables that it scans."""
    api.submit(repetitions=6, order="sequential")
    node = api.worker()
    for _ in range(2):
        lease = node.claim()
        node.beat(lease)
        node.upload(lease, make_result())
    node.beat(node.claim(), stage="training", step=1)
    engine = api.context.database.engine
    asked: list[Any] = []

    def hear(connection, cursor, statement, parameters, context, many):  # noqa: ARG001
        if statement.startswith("SELECT") and not explaining:
            asked.append((statement, parameters))

    explaining = False
    event.listen(engine, "before_cursor_execute", hear)

    def read_whole(statement, parameters=()):
        nonlocal explaining
        explaining = True
        with engine.connect() as connection:
            found = (on_sqlite if engine.dialect.name == "sqlite" else on_postgres)(connection, statement, parameters)
        explaining = False
        return found & GROWING

    def plans_of(address):
        asked.clear()
        assert api.http.get(f"/api/v1{address}").status_code == 200, address
        return [(statement, read_whole(statement, parameters)) for statement, parameters in list(asked)]

    plans: Any = plans_of
    plans.read_whole, plans.asked = read_whole, asked
    return plans


def on_sqlite(connection, statement, parameters):
    plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    if "LIMIT" in statement and not any(step.startswith("USE TEMP") for step in plan):
        return set()  # LIMIT ends the scan, since nothing is sorted
    steps = [step.split() for step in plan]
    return {words[1] for words in steps if words[0] == "SCAN" and "USING" not in words}


def on_postgres(connection, statement, parameters):
    connection.exec_driver_sql("SET enable_seqscan = off")
    found = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar_one()
    nodes, left = [], [part["Plan"] for part in (json.loads(found) if isinstance(found, str) else found)]
    while left:
        nodes.append(left.pop())
        left += nodes[-1].get("Plans", [])
    return {node["Relation Name"] for node in nodes if node["Node Type"].endswith("Seq Scan")}


def test_no_list_reads_a_growing_table_from_end_to_end(plans):
    whole = {}
    seen = 0
    for address in ADDRESSES:
        for statement, tables in plans(address):
            seen += 1
            if tables:
                whole[address] = (tables, " ".join(statement.split())[:600])
    assert whole == {}
    assert seen > len(ADDRESSES)


def test_what_reads_a_growing_table_from_end_to_end_is_found(plans):
    assert plans.read_whole("SELECT count(*) FROM run WHERE cores_needed > 3") == {"run"}
    assert plans.read_whole("SELECT id FROM run WHERE cores_needed > 3 ORDER BY timeout_s LIMIT 5") == {"run"}
    assert plans.read_whole("SELECT id FROM run WHERE state = 'failed' ORDER BY id LIMIT 5") == set()


def rows_read(api, statements):
    """Rows that the statements read from tables and indexes; on SQLite, steps of its virtual machine."""
    found = 0
    with api.context.database.engine.connect() as connection:
        for statement, parameters in statements:
            if connection.dialect.name == "sqlite":
                steps: list[Any] = []
                connection.connection.driver_connection.set_progress_handler(lambda steps=steps: steps.append(1), 1)
                connection.exec_driver_sql(statement, parameters).all()
                connection.connection.driver_connection.set_progress_handler(None, 0)
                found += len(steps)
            else:
                connection.exec_driver_sql("SET enable_seqscan = off")
                plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
                left = [part["Plan"] for part in plan.scalar_one()]
                while left:
                    node = left.pop()
                    left += node.get("Plans", [])
                    read = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                    found += read * node["Actual Loops"] if "Scan" in node["Node Type"] else 0
    return found


def add_runs_like_the_first(api, first, last):
    """Add runs with these positions, otherwise as run 1 is."""
    copied = [column.name for column in Run.__table__.columns if column.name not in ("id", "position")]
    numbers = f"n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
    api.sql(
        f"INSERT INTO run (position, {', '.join(copied)}) WITH RECURSIVE {numbers} "
        f"SELECT i, {', '.join(copied)} FROM run, n WHERE run.id = 1"
    )


def test_the_remaining_time_is_found_without_reading_every_ended_run(api, plans):
    """With 1,000,000 runs a full read took a second, and the overview then waited for ten seconds."""

    def ended(first, last):
        add_runs_like_the_first(api, first, last)
        with api.context.database.read() as session:
            asked.clear()
            assert eta.Etas(api.context.settings).estimate(session).total_s is not None
        return rows_read(api, list(asked))

    asked = plans.asked
    few = ended(1000, 1000 + eta.LATEST)
    assert few > 100
    assert ended(2000, 5000) < 1.5 * few


def test_the_duration_of_a_shape_is_found_without_reading_all_of_its_runs(api, plans):
    """A plan of a shape that had run 50,000 times took a second, and 22 before the disk's pages were in memory."""

    def ended(first, last):
        add_runs_like_the_first(api, first, last)
        api.context.database.count(Run)  # the plan depends on how many runs have the shape
        plans.asked.clear()
        with api.context.database.read() as session:
            run = session.get(Run, 1)
            assert durations.mean_s(session, [(run.shape, run.spec["steps"])]) is not None
        return rows_read(api, list(plans.asked))

    few = ended(1000, 1000 + durations.SEARCHED)
    assert few > durations.SEARCHED
    assert ended(2000, 5000) < 5 * few


def test_the_mean_time_of_an_experiment_is_read_again_only_after_a_run_of_it_has_ended(api, plans, make_result):
    node = api.worker("w2", node="n2")
    lease = node.claim()
    kept = eta.Etas(api.context.settings)

    def estimated():
        plans.asked.clear()
        with api.context.database.read() as session:
            found = kept.estimate(session)
            means = [statement for statement, _ in plans.asked if "avg(" in statement]
            assert found == eta.Etas(api.context.settings).estimate(session)
        return len(means)

    assert [estimated(), estimated()] == [1, 0]
    node.beat(lease)
    node.upload(lease, make_result())
    assert [estimated(), estimated()] == [1, 0]


def test_an_estimate_is_kept_until_a_run_or_a_worker_changes(api, plans):
    node = api.worker("w2", node="n2")
    kept = eta.Etas(api.context.settings)

    def statements():
        plans.asked.clear()
        with api.context.database.read() as session:
            kept.estimate(session)
        return len(plans.asked)

    assert [statements() > 1, statements(), statements()] == [True, 1, 1]
    node.claim()
    assert [statements() > 1, statements()] == [True, 1]
    api.sql("UPDATE worker SET seen_at = 0 WHERE worker_id = 'w2'")
    assert [statements() > 1, statements()] == [True, 1]
