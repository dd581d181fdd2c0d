"""What browsers and proxies need: compression, CORS and a path prefix; verdicts and curves for the dashboard."""

import gzip

import pytest
from fastapi import FastAPI

from taskloom import Client
from taskloom.server.access import browsers
from taskloom.server.errors import StartRefused
from tests.support.patience import until


def raw(api, path, **headers):
    """Headers of an answer, and its body as it was sent."""
    with api.http.stream("GET", path, headers=headers) as answer:
        return answer.headers, b"".join(answer.iter_raw())


def test_large_answers_are_compressed_where_the_client_takes_it(api):
    api.submit(axes={"seed": list(range(30))})
    headers, packed = raw(api, "/api/v1/runs", **{"Accept-Encoding": "gzip"})
    plain_headers, plain = raw(api, "/api/v1/runs", **{"Accept-Encoding": "identity"})
    assert (headers["content-encoding"], plain_headers.get("content-encoding")) == ("gzip", None)
    assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain) / 5
    assert "content-encoding" not in raw(api, "/api/v1/whoami", **{"Accept-Encoding": "gzip"})[0]


def test_artifacts_are_sent_byte_for_byte(api, tmp_path):
    api.submit()
    node = api.worker()
    lease = node.claim()
    content = b"line\n" * 1000
    node.leave(lease, "kept.txt", content)
    headers, body = raw(api, "/api/v1/runs/1/artifacts/kept.txt", **{"Accept-Encoding": "gzip"})
    assert (headers.get("content-encoding"), body) == (None, content)
    with Client(str(api.http.base_url)) as client:
        client.download_artifact(1, "kept.txt", tmp_path / "kept.txt")
        client.export("runs", tmp_path / "runs.csv")
    assert (tmp_path / "kept.txt").read_bytes() == content
    assert (tmp_path / "runs.csv").read_text().startswith("run_id,")


def test_pages_of_named_origins_may_read_answers_with_a_key(start_server):
    api = start_server(cors_origins="https://plots.example.org, http://localhost:3000")
    token = api.post("/keys", {"scope": "admin"}, 201)["token"]
    asked = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    for origin, allowed in (("https://plots.example.org", True), ("https://other.example.org", False)):
        before = api.http.options("/api/v1/runs", headers={"Origin": origin, **asked})
        answer = api.http.get("/api/v1/runs", headers={"Origin": origin, "Authorization": f"Bearer {token}"})
        for each in (before, answer):
            assert (each.headers.get("access-control-allow-origin") == origin) is allowed
        assert before.is_success is allowed
    assert api.http.get("/api/v1/runs", headers={"Origin": "https://plots.example.org"}).status_code == 401


def test_without_origins_no_other_page_reads_anything(api):
    answer = api.http.get("/api/v1/whoami", headers={"Origin": "http://localhost:3000"})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("origin", ["*", "plots.example.org", "https://a.b/c"])
def test_what_is_no_origin_is_refused_at_the_start(origin):
    with pytest.raises(StartRefused, match="is not an origin"):
        browsers.install(FastAPI(), origin)


@pytest.mark.parametrize("strips", [True, False])
def test_the_server_is_served_below_a_path(start_server, strips):
    api = start_server(root_path="/lab/taskloom")
    prefix = "" if strips else "/lab/taskloom"
    made = api.http.post(f"{prefix}/api/v1/experiments", json={})
    assert (made.status_code, made.headers["location"]) == (201, "/lab/taskloom/api/v1/experiments/1")
    assert api.http.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/lab/taskloom"}]
    assert api.http.get(f"{prefix}/ui/").status_code == 200
    with Client(f"{api.http.base_url}{prefix}".replace("//lab", "/lab")) as client:
        assert [run.id for run in client.runs()] == [1]


@pytest.mark.both_databases
def test_a_reload_sees_the_live_curve_until_there_is_a_result(api, make_result):
    api.submit()
    node = api.worker()
    lease = node.claim()
    node.beat(lease, stage="compiling")
    for step, loss in ((2, 3.0), (2, 3.0), (6, 2.0)):
        node.beat(lease, stage="training", step=step, steps=9, loss=loss, tokens_per_s=10.0)
        api.sql("UPDATE progress_point SET at = 1000 + 2 * step")
    points = api.get("/runs/1/progress")["items"]
    rows = [(p["attempt_no"], p["step"], p["loss"], p["tokens_per_s"], p["step_s"]) for p in points]
    assert rows == [(1, 2, 3.0, 10.0, None), (1, 6, 2.0, 10.0, 2.0)]
    node.upload(lease, make_result())
    assert api.get("/runs/1/progress")["items"] == []
    assert api.get("/runs/9/progress", 404)["type"] == "/problems/not-found"


def test_an_experiment_that_ended_says_what_it_found(start_server, make_result):
    api = start_server(keep_verdicts=True, poll_s=0.05)
    api.submit(axes={"scheduler": ["fork-join", "task"]}, repetitions=8)
    node = api.worker()
    for i in range(16):
        lease = node.claim()
        fast = lease["spec"]["scheduler"] == "task"
        node.upload(lease, make_result([9.0] + [(0.5 if fast else 1.0) * (1 + (i * 7 % 5) / 1000)] * 4))
    found = until(lambda: api.get("/experiments/1")["verdict"], "a kept verdict")
    assert (found["verdict"], found["a"], found["b"]) == ("faster", "fork-join", "task")
    assert found["low"] <= found["ratio"] <= found["high"]
    assert found["ratio"] == pytest.approx(2, rel=0.01)
    assert found["sentence"].startswith(f"task is {found['ratio']:.3f} [")
    assert found["sentence"].endswith("] times as fast as fork-join.")
    sweep = api.get("/analysis/sweep", experiment_id=1)
    assert found["ratio"] == (sweep["pooled"] or sweep["rows"])[0]["ratio"]
    assert api.get("/experiments")["items"][0]["verdict"] == found
