"""Step times of running runs: stored, paged, sent in events, deleted with the result."""

import pytest

from taskloom import Client
from taskloom.server.queue.attempts import steps

pytestmark = pytest.mark.both_databases


@pytest.fixture
def node(api):
    api.submit(trace=True)
    node = api.worker()
    node.lease = node.claim()
    return node


def done(node, first, *step_s, status=200, loss=None, **more):
    """A heartbeat that reports steps."""
    fields = {"first": first, "step_s": list(step_s), "loss": loss or [5.0 - i for i in range(len(step_s))], **more}
    body = {"worker_id": node.worker_id, "attempt_no": node.lease["attempt_no"], "progress": {}, "steps": fields}
    return node.api.post(f"/attempts/{node.lease['attempt_id']}/heartbeat", body, status)


def rows(page):
    return [(item["attempt_no"], item["step"], item["step_s"]) for item in page["items"]]


def test_steps_come_in_pages_and_go_on_after_the_last_one_read(api, node):
    nothing = api.get("/runs/1/steps")
    assert nothing["items"] == []
    done(node, 1, 0.5, 0.25, loss=[4.5, None])
    done(node, 2, 0.25, 0.125, 0.0625)  # the first of these steps was reported before
    done(node, 1, 0.5)
    assert rows(api.get("/runs/1/steps")) == [(1, 1, 0.5), (1, 2, 0.25), (1, 3, 0.125), (1, 4, 0.0625)]
    assert [item["loss"] for item in api.get("/runs/1/steps")["items"]] == [4.5, None, 4.0, 3.0]
    first = api.get("/runs/1/steps", limit=3, cursor=nothing["cursor"])
    second = api.get("/runs/1/steps", limit=3, cursor=first["cursor"])
    assert (len(first["items"]), rows(second)) == (3, [(1, 4, 0.0625)])
    assert api.get("/runs/1/steps", cursor=second["cursor"]) == {
        "run_id": 1, "items": [], "cursor": second["cursor"],
    }  # fmt: skip
    done(node, 5, 1.0)
    assert rows(api.get("/runs/1/steps", cursor=second["cursor"])) == [(1, 5, 1.0)]
    with Client(str(api.http.base_url)) as client:
        assert [seen.step for seen in client.steps(1, second["cursor"]).items] == [5]
    assert api.get("/runs/9/steps", 404)["type"] == "/problems/not-found"
    assert api.get("/runs/1/steps", 422, cursor="YWZ0ZXI6eA")["type"] == "/problems/bad-cursor"


def test_the_accuracy_of_classes_comes_with_the_steps(api, node):
    done(node, 1, 0.5, 0.5)
    done(node, 2, 0.5, 0.25, accuracy=[0.25, 0.75])
    found = [item["accuracy"] for item in api.get("/runs/1/steps")["items"]]
    assert found == [None, None, 0.75]  # the second step was known
    done(node, 4, 0.5, 0.25, accuracy=[0.25], status=422)
    done(node, 4, 0.5, accuracy=[1.25], status=422)


def test_evaluations_come_with_the_steps_before_them(api, node):
    done(node, 1, 0.5, 0.5, accuracy=[0.25, 0.5], evaluation_loss=[None, 3.5], evaluation_accuracy=[None, 0.375])
    done(node, 2, 0.5, 0.5, accuracy=[0.5, 0.5], evaluation_loss=[3.5, None], evaluation_accuracy=[0.375, None])
    done(node, 4, 0.5, evaluation_accuracy=[0.5])
    names = ("step", "loss", "accuracy", "evaluation_loss", "evaluation_accuracy")
    found = [tuple(item[name] for name in names) for item in api.get("/runs/1/steps")["items"]]
    assert found == [
        (1, 5.0, 0.25, None, None), (2, 4.0, 0.5, 3.5, 0.375), (3, 4.0, 0.5, None, None), (4, 5.0, None, None, 0.5),
    ]  # fmt: skip
    done(node, 5, 0.5, 0.25, evaluation_loss=[0.25], status=422)
    done(node, 5, 0.5, evaluation_accuracy=[1.25], status=422)


def test_the_newest_steps_are_sent_as_events(api, node):
    done(node, 1, *[0.5] * 150)
    with api.http.stream("GET", "/api/v1/runs/1/events") as answer:
        line = next(line for line in answer.iter_lines() if line.startswith("data: "))
    items = api.http.get("/api/v1/runs/1/steps", params={"limit": 150}).json()["items"][50:]
    assert '"steps":[{"attempt_no":1,"step":51,"step_s":0.5,"loss":' in line
    assert line.count('"step_s"') == len(items) == 100


def test_only_the_newest_steps_of_an_attempt_are_kept(api, node, monkeypatch):
    monkeypatch.setattr(steps, "MOST", 4)
    for first in range(1, 12, 2):
        done(node, first, 0.5, 0.5)
    assert [step for _, step, _ in rows(api.get("/runs/1/steps"))] == [9, 10, 11, 12]


def test_each_attempt_has_its_steps_and_a_result_has_them_all(api, node, make_result):
    done(node, 1, 0.5)
    api.let_lease_run_out(node.lease["attempt_id"])
    api.reap()
    node.lease = node.claim()
    done(node, 1, 0.25)
    assert rows(api.get("/runs/1/steps")) == [(1, 1, 0.5), (2, 1, 0.25)]
    node.upload(node.lease, make_result())
    assert rows(api.get("/runs/1/steps")) == []
    node.lease = node.claim()  # to be traced
    done(node, 1, 9.0)
    assert rows(api.get("/runs/1/steps")) == []


@pytest.mark.on_sqlite
def test_steps_that_cannot_be_are_refused(api, node):
    for fields in (
        {"first": 0, "step_s": [1.0], "loss": [1.0]},
        {"first": 1, "step_s": [], "loss": []},
        {"first": 1, "step_s": [1.0, 2.0], "loss": [1.0]},
        {"first": 1, "step_s": [-1.0], "loss": [1.0]},
        {"first": 1, "step_s": [1.0] * 1001, "loss": [1.0] * 1001},
    ):
        body = {"worker_id": "w1", "attempt_no": 1, "progress": {}, "steps": fields}
        problem = api.post(f"/attempts/{node.lease['attempt_id']}/heartbeat", body, 422)
        assert problem["errors"][0]["pointer"].startswith("/steps"), fields
