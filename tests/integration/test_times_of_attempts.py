"""A run's times are those of its canonical attempt, whatever arrives late."""

import pytest

pytestmark = pytest.mark.both_databases


@pytest.fixture
def overtaken(api):
    """A run whose first attempt was lost after it had started, and whose second one runs."""
    api.submit()
    first = api.worker("w1")
    lost = first.claim()
    first.beat(lost, step=1)
    api.let_lease_run_out(lost["attempt_id"])
    api.reap()
    second = api.worker("w2", node=first.identity["node"])
    lease = second.claim()
    return api, first, lost, second, lease


def times(api, *columns):
    (row,) = api.sql(f"SELECT {', '.join(columns)} FROM run")
    return tuple(row)


def test_a_late_result_moves_no_time(overtaken, make_result):
    api, first, lost, second, lease = overtaken
    second.beat(lease, step=1)
    ended_at = api.sql("SELECT finished_at FROM attempt WHERE id = :id", id=lost["attempt_id"])
    before = times(api, "started_at", "finished_at")
    first.upload(lost, make_result(), status=200)
    assert api.sql("SELECT finished_at, state FROM attempt WHERE id = :id", id=lost["attempt_id"]) == [
        (ended_at[0][0], "superseded")
    ]
    assert times(api, "started_at", "finished_at") == before
    second.upload(lease, make_result())
    ended = times(api, "started_at", "finished_at", "state")
    started, finished = api.sql("SELECT started_at, finished_at FROM attempt WHERE id = :id", id=lease["attempt_id"])[0]
    assert ended == (started, finished, "succeeded")


def test_a_run_starts_with_the_attempt_that_has_its_result(overtaken, make_result):
    api, _, _, second, lease = overtaken
    second.beat(lease, step=1)
    second.upload(lease, make_result())
    first_started, second_started = (row[0] for row in api.sql("SELECT started_at FROM attempt ORDER BY id"))
    assert times(api, "started_at") == (second_started,)
    assert first_started < second_started


def test_attempts_of_a_run_do_not_overlap(overtaken, make_result):
    api, first, lost, second, lease = overtaken
    first.upload(lost, make_result())
    second.upload(lease, make_result())
    rows = api.sql("SELECT claimed_at, finished_at FROM attempt ORDER BY id")
    assert rows[0][1] <= rows[1][0]


def test_tracing_moves_no_start(api, make_result):
    api.submit(trace=True)
    node = api.worker()
    for _ in range(2):
        lease = node.claim()
        node.beat(lease, step=1)
        node.upload(lease, make_result())
    started = api.sql("SELECT started_at FROM attempt WHERE purpose = 'timing'")[0][0]
    assert times(api, "started_at", "state") == (started, "succeeded")
