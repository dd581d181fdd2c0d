"""Requests that no client of ours sends: parameters given twice, encodings refused, processes that cannot start."""

import gzip
import socket
import sys

import pytest

from tests.support.command_line import cli
from tests.support.patience import DEADLINE_S, until

EVIL = "\x1b[2J\x1b]0;owned\x07 a\tb \u202e\x9b31m\r"


@pytest.mark.parametrize(("query", "fields"), [
    ("limit=1&limit=2", ["limit"]), ("experiment_id=1&experiment_id=1", ["experiment_id"]),
    ("limit=1&limit=2&node=a&nodes=b&node=c", ["nodes", "limit", "node"]),
    ("limit=1&limit=0", ["limit", "limit"]),
])  # fmt: skip
def test_a_parameter_given_twice_is_refused(empty_api, query, fields):
    answer = empty_api.http.get(f"/api/v1/runs?{query}")
    assert answer.status_code == 422, answer.text
    assert [each["field"] for each in answer.json()["errors"]] == fields
    assert "one value" in {each["accepted"] for each in answer.json()["errors"]}


def test_parameters_of_several_values_may_be_repeated(empty_api):
    answer = empty_api.http.get("/api/v1/runs?state=queued&state=running&label=a=b&label=c=d")
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(("version", "hosts", "status"), [
    ("1.1", (), 400), ("1.0", (), 200), ("1.1", ("",), 200), ("1.1", ("localhost",), 200), ("1.1", ("a_b.c:80",), 200),
    ("1.1", ("[::1]:8080",), 200), ("1.1", ("a b",), 400), ("1.1", ("a/b",), 400), ("1.1", ("u@a",), 400),
    ("1.1", ("a:b",), 400), ("1.1", ("gr\xfc\xdfe",), 400), ("1.0", ("<a>",), 400), ("1.1", ("a", "a"), 400),
])  # fmt: skip
def test_a_request_names_one_host(empty_api, version, hosts, status):
    lines = [f"GET /healthz HTTP/{version}", *(f"Host: {host}" for host in hosts), "Connection: close", "", ""]
    url = empty_api.http.base_url
    with socket.create_connection((url.host, url.port), timeout=DEADLINE_S) as connection:
        connection.sendall("\r\n".join(lines).encode("latin-1"))
        answer = connection.recv(1 << 16).decode()
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert (status == 400) is ("problem+json" in answer)


@pytest.mark.parametrize(("accepted", "packs"), [
    ("gzip", True), ("br;q=1, gzip;q=0.5", True), ("gzip; q=1.0", True), ("gzip;q=0.001", True),
    ("gzip;q=0", False), ("gzip;q=0.000, *", False), ("identity, gzip ; q = 0", False), ("x-gzip;q=0", False),
    ("gzip-like", False), ("", False), ("*;q=0", False),
])  # fmt: skip
@pytest.mark.parametrize("path", ["/api/v1/filters/runs", "/ui/"])
def test_gzip_is_for_those_who_take_it(empty_api, accepted, packs, path):
    with empty_api.http.stream("GET", path, headers={"Accept-Encoding": accepted}) as answer:
        raw = b"".join(answer.iter_raw())
    assert (answer.headers.get("content-encoding") == "gzip") is packs
    assert "Accept-Encoding" in answer.headers["vary"]
    assert (gzip.decompress(raw) if packs else raw).startswith((b"{", b"<!"))


def test_pages_of_named_origins_may_use_every_method(start_server):
    api = start_server(cors_origins="https://plots.example.org")
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
        asked = {"Origin": "https://plots.example.org", "Access-Control-Request-Method": method}
        assert api.http.options("/api/v1/experiments/1", headers=asked).status_code == 200, method


@pytest.mark.parametrize("executable", ["/bin/false", "/nowhere"])
def test_an_answer_whose_process_cannot_be_started_is_refused(start_server, monkeypatch, executable):
    api = start_server(analysis_processes=1)
    api.submit()
    monkeypatch.setattr(sys, "executable", executable)
    for path in ("/api/v1/analysis/scaling?experiment_id=1", "/api/v1/exports/runs"):
        refused = api.http.get(path, timeout=DEADLINE_S)
        assert (refused.status_code, refused.headers.get("retry-after")) == (503, "5"), refused.text
        assert refused.json()["type"] == "/problems/out-of-resources"
    monkeypatch.undo()
    assert until(lambda: api.http.get("/api/v1/exports/runs").status_code == 200)


READING = (
    "runs log 1", "runs log 1 --tail 1", "runs show 1", "runs list", "runs list --columns name,node", "runs changes 1",
    "runs artifacts 1", "runs samples experiment_id=1", "experiments list", "experiments show 1",
    "experiments changes 1", "experiments alerts", "experiments history", "experiments report 1",
    "experiments workload 1", "workers list",
    "webhooks list", "report 1 --format markdown", "report 1 --format junit", "thresholds list",
    "runs show 99",
    f"runs list --filter x={EVIL.split()[0]}", "compare 1 1", "export runs -o runs.csv",
)  # fmt: skip


@pytest.mark.parametrize("terminal", [False, True])
def test_text_of_other_people_controls_no_terminal(api, tmp_path, monkeypatch, terminal):
    labels = {EVIL: EVIL}
    api.submit(name=EVIL, notes=EVIL, requires={"labels": labels}, base={"model": "tiny"}, commit="a" * 40)
    node = api.worker(node=EVIL, labels=labels)
    lease = node.claim()
    output = {"first": 1, "lines": [EVIL, EVIL]}
    body = {"worker_id": node.worker_id, "attempt_no": 1, "progress": {}, "output": output}
    api.post(f"/attempts/{lease['attempt_id']}/heartbeat", body)
    node.upload(lease, error={"slug": EVIL, "detail": EVIL, "output": [EVIL]})
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    for each in READING:
        done = cli(*each.split(" "), server=str(api.http.base_url), folder=tmp_path)
        printed = done.stdout + done.stderr
        assert not set("\x07\x9b\u202e\r") & set(printed), (each, printed)
        assert "\x1b[2J" not in printed, each
        assert "\x1b]" not in printed, each
        assert "Traceback" not in printed, each


@pytest.mark.parametrize("body", [
    '{"base": {"model": "tiny"}, "base": {}}', '{"base": {"model": "tiny", "lr": 1.0, "lr": 2.0}}',
    '{"axes": {"lr": [1.0], "\\u006cr": [2.0]}}',
])  # fmt: skip
def test_a_name_given_twice_in_a_body_is_refused(empty_api, body):
    answer = empty_api.http.post("/api/v1/experiments", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert (error["field"], error["accepted"]) in {("base", "one value"), ("lr", "one value")}


@pytest.mark.parametrize(("at", "shown"), [
    ("0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z"), ("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z"),
])  # fmt: skip
def test_an_instant_beyond_the_calendar_breaks_no_list(api, make_result, at, shown):
    assert api.submit(base={"model": "tiny"}, committed_at=at)["committed_at"] == shown
    node = api.worker()
    node.upload(node.claim(), make_result(environment={"core_committed_at": at}))
    (run,) = api.get("/runs")["items"]
    assert run["trainer_committed_at"] == run["committed_at"] == shown
    assert api.get("/experiments")["items"][0]["committed_at"] == shown


DEEP = 2000 * "["


@pytest.mark.parametrize("path", [
    f'/tuned?base={{"a":{DEEP}', f"/runs?filter=median_step_s<{DEEP}", f"/runs?filter=cores={DEEP}",
    f"/samples?runs=experiment_id=1,model={DEEP}",
])  # fmt: skip
def test_values_that_nest_without_end_are_refused(empty_api, path):
    answer = empty_api.http.get(f"/api/v1{path}")
    assert answer.status_code in (404, 422), answer.text


@pytest.mark.parametrize("name", ["Host", "Authorization", "Content-Type", "Content-Encoding", "Idempotency-Key"])
def test_a_header_given_twice_is_refused(empty_api, name):
    sent = f"GET /healthz HTTP/1.1\r\n{name}: a\r\n{name.upper()}: b\r\n\r\n"
    url = empty_api.http.base_url
    with socket.create_connection((url.host, url.port), timeout=DEADLINE_S) as connection:
        connection.sendall(sent.encode())
        answer = connection.recv(1 << 16).decode()
    assert answer.startswith("HTTP/1.1 400 ")
    assert f"{name.lower()} is given twice" in answer
