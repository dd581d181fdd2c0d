"""Metrics, request ids and the log."""

import functools
import json
import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpt2core.spec.version import version
from taskloom.server import migrate
from taskloom.server.logs import RequestFormatter
from taskloom.server.queue.tables.attempts import Attempt
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.transitions import changes


def scraped(api):
    """All samples of /metrics by name and labels."""
    answer = api.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.text)
    return {(s.name, *sorted(s.labels.values())): s.value for family in families for s in family.samples}


@pytest.fixture
def scrape(api):
    return functools.partial(scraped, api)


def test_metrics_count_requests_by_route_and_status(api, scrape):
    api.submit()
    for _ in range(3):
        api.get("/runs/1")
    api.get("/runs/7", 404)
    api.http.get("/nothing")
    found = scrape()
    assert found["taskloom_requests_total", "200", "runs_show"] == 3
    assert found["taskloom_requests_total", "404", "runs_show"] == 1
    assert found["taskloom_requests_total", "404", "none"] == 1
    assert found["taskloom_request_seconds_count", "runs_show"] == 4
    assert found["process_resident_memory_bytes",] > 0


def test_metrics_tell_the_queue_as_the_database_has_it(api, scrape):
    assert scrape()["taskloom_runs", "queued"] == 0
    assert scrape()["taskloom_queue_age_seconds",] == 0
    api.submit(axes={"seed": [1, 2, 3]})
    api.sql("UPDATE run SET queued_at = queued_at - 100")
    node = api.worker()
    lease = node.claim()
    found = scrape()
    assert (found["taskloom_runs", "queued"], found["taskloom_runs", "leased"]) == (2, 1)
    assert found["taskloom_workers",] == 1
    assert 100 <= found["taskloom_queue_age_seconds",] < 200
    node.beat(lease)
    assert scrape()["taskloom_runs", "running"] == 1
    api.sql("UPDATE worker SET seen_at = seen_at - 1000")
    assert scrape()["taskloom_workers",] == 0


@pytest.mark.parametrize(("given", "kept"), [("abc-1.2_X", True), ("a b", False), ("x" * 65, False), ("", False)])
def test_a_request_keeps_its_id_or_gets_one(api, given, kept):
    answered = api.http.get("/healthz", headers={"X-Request-Id": given}).headers["x-request-id"]
    assert (answered == given) is kept
    assert len(answered) == 32 or kept


def test_each_line_of_a_request_has_its_id(api, caplog):
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(json.loads(self.format(record)))

    handler = Keep()
    handler.setFormatter(RequestFormatter())
    root = logging.getLogger("taskloom")
    root.addHandler(handler)
    try:
        api.submit(axes={"seed": [1, 2]})
        cursor = api.get("/runs", limit=1)["next_cursor"]
        api.sql("UPDATE run SET variant = '[]'")
        with caplog.at_level(logging.INFO):
            api.http.get(f"/api/v1/runs?cursor={cursor}", headers={"X-Request-Id": "mine"})
            api.http.get("/healthz")
    finally:
        root.removeHandler(handler)
    error, request = (line for line in lines if line.get("request_id") == "mine")
    assert (error["logger"], error["level"]) == ("taskloom.server", "error")
    assert "ValidationError" in error["traceback"]
    assert (request["method"], request["path"], request["status"]) == ("GET", "/api/v1/runs", 500)
    assert request["duration_s"] > 0
    assert cursor not in str(lines)
    assert not any(line.get("path") == "/healthz" for line in lines)


@pytest.mark.both_databases
def test_metrics_count_how_runs_and_attempts_end(start_server, make_result):
    api = start_server(max_losses=0)
    api.submit(axes={"seed": [1, 2, 3, 4]}, order="sequential")
    api.sql("UPDATE run SET queued_at = queued_at - 100")
    node = api.worker()
    lease = node.claim()
    node.beat(lease)
    node.upload(lease, make_result(seed=1))
    node.upload(node.claim(), error={"slug": "boom"})
    api.post("/runs/4/cancel")
    api.let_lease_run_out(node.claim()["attempt_id"])
    api.reap()
    node.upload(lease, error={"slug": "another"}, status=409)
    found = scraped(api)
    for state in ("succeeded", "failed", "cancelled", "quarantined"):
        assert found["taskloom_runs_ended_total", state] == 1
    assert found["taskloom_attempts_ended_total", "lost", "timing"] == 1
    assert found["taskloom_attempts_ended_total", "succeeded", "timing"] == 1
    assert found["taskloom_queue_wait_seconds_count",] == 3
    assert found["taskloom_queue_wait_seconds_sum",] >= 300
    assert found["taskloom_attempt_seconds_count", "succeeded", "timing"] == 1
    assert found["taskloom_refused_requests_total", "attempts_finish", "result-conflict"] == 1
    assert found["taskloom_build_info", *sorted([migrate.HEAD, version()])] == 1


def test_what_was_not_committed_is_not_counted(api, make_result):
    api.submit()
    node = api.worker()
    lease = node.claim()

    def fail():
        with api.context.database.write() as session:
            run, attempt = session.get_one(Run, 1), session.get_one(Attempt, lease["attempt_id"])
            changes.make(session, changes.Cause("server", 0.0), run, "fail", attempt, "fail")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk"):
        fail()
    assert ("taskloom_runs_ended_total", "failed") not in scraped(api)
    node.upload(lease, make_result())
    assert scraped(api)["taskloom_runs_ended_total", "succeeded"] == 1


def test_metrics_hold_no_series_of_when_they_were_made(api):
    api.get("/runs")
    text = [api.http.get("/metrics").text for _ in range(2)][-1]
    assert "taskloom_request_seconds_bucket" in text
    assert "_created" not in text
