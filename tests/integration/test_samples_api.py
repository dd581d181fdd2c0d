import json

import pytest

pytestmark = pytest.mark.both_databases


@pytest.fixture
def sweep(api, make_result):
    """An experiment of six runs, four of them succeeded, and another experiment."""
    api.submit(axes={"threads": [1, 2], "seed": [1, 2, 3]}, order="sequential")
    api.submit()
    node = api.worker()
    for i in range(5):
        lease = node.claim()
        if i == 2:
            node.upload(lease, error={"slug": "boom"})
        else:
            node.upload(lease, make_result([0.5, 0.1 + i / 10], losses=[4, 3]))
    return api


def lines(api, **query):
    answer = api.http.get("/api/v1/samples", params={"format": "ndjson", **query})
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_samples_of_an_experiment_are_those_of_its_runs(sweep):
    page = sweep.get("/samples", runs="experiment_id=1")
    assert page["next_cursor"] is None
    assert [item["run_id"] for item in page["items"]] == [1, 2, 4, 5]
    for item in page["items"]:
        alone = sweep.get(f"/runs/{item['run_id']}/samples")
        assert {key: item[key] for key in alone} == alone
        run = sweep.get(f"/runs/{item['run_id']}")
        assert {key: item[key] for key in ("variant", "repetition", "block", "experiment_id")} == {
            key: run[key] for key in ("variant", "repetition", "block", "experiment_id")
        }
    assert [item["items"][1]["step_s"] for item in page["items"]] == [0.1, 0.2, 0.1 + 3 / 10, 0.5]


def test_lines_are_the_same_and_say_that_they_are_complete(sweep):
    *items, end = lines(sweep, runs="experiment_id=1")
    assert items == sweep.get("/samples", runs="experiment_id=1")["items"]
    assert end == {"next_cursor": None}
    *some, end = lines(sweep, runs="experiment_id=1", limit=3)
    assert [item["run_id"] for item in some] == [1, 2, 4]
    assert [i.get("run_id") for i in lines(sweep, runs="experiment_id=1", cursor=end["next_cursor"])] == [5, None]


def test_pages_go_on_where_the_last_one_ended(sweep):
    first = sweep.get("/samples", runs="experiment_id=1,threads=1", limit=1)
    second = sweep.get("/samples", runs="experiment_id=1,threads=1", limit=5, cursor=first["next_cursor"])
    assert [item["run_id"] for page in (first, second) for item in page["items"]] == [1, 2]
    assert second["next_cursor"] is None


def test_a_page_ends_early_where_it_has_many_samples(start_server, sweep):
    small = start_server(max_samples=3)
    page = small.get("/samples", runs="experiment_id=1")
    assert [item["run_id"] for item in page["items"]] == [1, 2]  # two steps of each
    rest = small.get("/samples", runs="experiment_id=1", cursor=page["next_cursor"])
    assert ([item["run_id"] for item in rest["items"]], rest["next_cursor"]) == ([4, 5], None)
    assert sweep.sql("SELECT count(*) FROM run") == [(7,)]


def test_runs_are_selected_by_their_ids_too(sweep):
    assert [item["run_id"] for item in sweep.get("/samples", runs="5,1,3,1")["items"]] == [1, 5]
    assert [i["run_id"] for i in sweep.get("/samples", runs="experiment_id=1,threads=2")["items"]] == [4, 5]
    assert sweep.get("/samples", runs="7")["items"] == []
    assert "99, 100" in sweep.get("/samples", 404, runs="1,99,100")["detail"]
    assert sweep.get("/samples", 404, runs="experiment_id=99")["type"] == "/problems/not-found"
    assert sweep.get("/samples", 422, runs="nonsense")["errors"][0]["field"] == "runs"
    assert sweep.get("/samples", 422, runs="1", limit=501)["max_limit"] == 500
    assert sweep.get("/samples", 422, runs="1", format="ndjson", limit=10_001)["max_limit"] == 10_000
