import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event

from taskloom.server.read.events import stream as streams
from tests.support import tunings
from tests.support.patience import DEADLINE_S, until

pytestmark = pytest.mark.both_databases


class Stream:
    """Events of a URL, read as they arrive."""

    def __init__(self, api, path, last_event_id=None):
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        self._context = api.http.stream("GET", f"/api/v1{path}", headers=headers, timeout=DEADLINE_S)
        self.answer = self._context.__enter__()
        assert self.answer.headers["content-type"].startswith("text/event-stream")
        self._lines = self.answer.iter_lines()

    def next(self):
        """The next event: id, name, data; None at the end."""
        found = {}
        for line in self._lines:
            if line:
                name, _, value = line.partition(": ")
                found[name] = value
            elif "event" in found:
                return found.get("id"), found["event"], json.loads(found["data"])
            else:
                found = {}
        return None

    def close(self):
        self._context.__exit__(None, None, None)


@pytest.fixture
def listen(start_server):
    """A server whose streams poll often, and a function that opens streams; open ones are closed at the end."""
    streams = []
    api = start_server(events_every_s=0.02)

    def opened(path, last_event_id=None):
        streams.append(Stream(api, path, last_event_id))
        return streams[-1]

    listen: Any = opened
    listen.api = api
    yield listen
    for stream in streams:
        stream.close()


def test_a_run_tells_its_states_and_progress_and_its_end(listen, make_result):
    api = listen.api
    api.submit()
    stream = listen("/runs/1/events")
    data = {"run_id": 1, "state": "queued", "attempt_no": 0, "progress": None, "steps": []}
    assert stream.next()[1:] == ("changed", data)
    node = api.worker()
    lease = node.claim()
    assert stream.next()[2]["state"] == "leased"
    node.beat(lease, stage="training", step=3, steps=9, loss=2.5)
    event = stream.next()[2]
    assert (event["state"], event["progress"]["step"], event["progress"]["loss"]) == ("running", 3, 2.5)
    node.upload(lease, make_result())
    assert stream.next()[2] == {**data, "state": "succeeded", "attempt_no": 1}
    assert stream.next()[1] == "ended"
    assert stream.next() is None


def test_an_experiment_tells_its_counts_and_its_runs_under_way(listen, make_result):
    api = listen.api
    api.submit(axes={"seed": [1, 2]}, order="sequential")
    stream = listen("/experiments/1/events")
    first = stream.next()[2]
    assert (first["state"], first["runs"], first["by_state"], first["active"]) == ("active", 2, {"queued": 2}, [])
    node = api.worker()
    lease = node.claim()
    event = stream.next()[2]
    assert (event["by_state"], [run["run_id"] for run in event["active"]]) == ({"leased": 1, "queued": 1}, [1])
    node.upload(lease, make_result())
    assert stream.next()[2]["by_state"] == {"queued": 1, "succeeded": 1}
    api.post("/experiments/1/cancel")
    assert stream.next()[2]["state"] == "cancelled"
    assert stream.next()[1] == "ended"


@pytest.mark.on_sqlite
def test_a_tuning_names_its_phases(listen, make_result):
    """A run is executed only after an event has named its phase, so no phase passes unseen."""
    api = listen.api
    made = tunings.submit(api, tune={"runs": 2, "batch": 2, "confirm": 1, "fresh": 1})
    node, stream, phases = api.worker(), listen(f"/experiments/{made['id']}/events"), []
    while (found := stream.next())[1] == "changed":
        phases.append(found[2]["phase"])
        now = api.get(f"/experiments/{made['id']}")
        if now["by_state"].get("queued") and now["tuning"]["phase"] == phases[-1]:
            tunings.run_block(node, make_result, 1)
    assert list(dict.fromkeys(phases)) == ["explore", "confirm", "fresh", "ended"]
    assert found[1] == "ended"


def test_who_comes_again_hears_what_is_new_and_nothing_twice(listen):
    api = listen.api
    api.submit()
    known, _, _ = listen("/runs/1/events").next()
    again = listen("/runs/1/events", known)
    lease = api.worker().claim()
    assert again.next()[2]["state"] == "leased"  # not "queued", which the client knew already
    assert lease["attempt_no"] == 1
    late = listen("/runs/1/events", known)
    assert late.next()[2]["state"] == "leased"
    assert listen("/runs/1/events").next() == listen("/runs/1/events", "something else").next()


def test_what_has_ended_is_sent_and_ends(listen):
    api = listen.api
    api.submit()
    api.post("/runs/1/cancel")
    stream = listen("/runs/1/events")
    known, _, event = stream.next()
    assert event["state"] == "cancelled"
    assert [stream.next()[1], stream.next()] == ["ended", None]
    assert listen("/runs/1/events", known).next()[1] == "ended"


@pytest.mark.parametrize("path", ["/runs/7/events", "/experiments/7/events"])
def test_what_there_is_not_has_no_events(api, path):
    assert api.get(path, 404)["type"] == "/problems/not-found"


def test_streams_are_limited_and_make_room_when_they_end(start_server):
    api = start_server(events_every_s=0.02, max_streams=1)
    api.submit(axes={"seed": [1, 2]})
    first = Stream(api, "/runs/1/events")
    first.next()
    refused = api.http.get("/api/v1/runs/2/events")
    assert (refused.status_code, refused.json()["type"]) == (429, "/problems/too-many-streams")
    assert refused.headers["retry-after"] == "5"
    api.post("/runs/1/cancel")
    while first.next() is not None:
        continue
    first.close()
    second = Stream(api, "/runs/2/events")
    assert second.next()[1] == "changed"
    second.close()


def test_streams_that_are_asked_for_at_the_same_moment_are_limited_too(start_server):
    api = start_server(events_every_s=0.02, max_streams=1)
    api.submit(axes={"seed": [1, 2, 3]})
    look, asked = api.reading.streams._look_at, threading.Barrier(3)
    waiting = iter(range(3))

    def look_together(lines):
        if next(waiting, None) is not None:
            asked.wait(DEADLINE_S)  # all three were accepted
        return look(lines)

    api.reading.streams._look_at = look_together

    def status(run_id):
        with api.http.stream("GET", f"/api/v1/runs/{run_id}/events") as answer:
            if answer.status_code == 429:
                refused.release()
                return 429
            assert refused.acquire(timeout=DEADLINE_S)  # open until the others are refused
            assert refused.acquire(timeout=DEADLINE_S)
            return answer.status_code

    refused = threading.Semaphore(0)
    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(status, (1, 2, 3))) == [200, 429, 429]


def test_a_server_that_leaves_ends_its_streams(listen):
    api = listen.api
    api.submit()
    stream = listen("/runs/1/events")
    stream.next()
    api.context.waiting.close_soon()
    assert stream.next() is None


def printed(node, lease, first, *lines, status=200):
    body = {"worker_id": node.worker_id, "attempt_no": lease["attempt_no"], "progress": {}}
    body["output"] = {"first": first, "lines": list(lines)}
    return node.api.post(f"/attempts/{lease['attempt_id']}/heartbeat", body, status)


def test_a_stream_tells_the_lines_and_goes_on_after_the_last_one_heard(listen, make_result):
    api = listen.api
    api.submit()
    node = api.worker()
    lease = node.claim()
    stream = listen("/runs/1/events")
    stream.next()
    printed(node, lease, 1, "one", "two")
    found = [stream.next() for _ in range(3)]
    assert [name for _, name, _ in found] == ["changed", "line", "line"]
    assert [data["text"] for _, _, data in found[1:]] == ["one", "two"]
    assert found[1][2] == {**found[1][2], "run_id": 1, "attempt_no": 1, "line_no": 1}
    again = listen("/runs/1/events", found[1][0])
    assert again.next()[2]["text"] == "two"  # the client knew the state
    printed(node, lease, 3, "three")
    assert (stream.next()[2]["text"], again.next()[2]["text"]) == ("three", "three")
    node.upload(lease, make_result())
    late = listen("/runs/1/events", found[2][0])
    assert [late.next()[1], late.next()[2]["text"], late.next()[1], late.next()] == ["changed", "three", "ended", None]


def test_lines_sent_twice_are_one_and_only_the_first_are_kept(start_server):
    api = start_server(max_output_lines=4)
    api.submit()
    node = api.worker()
    lease = node.claim()
    empty = api.get("/runs/1/log")
    assert empty["items"] == []
    printed(node, lease, 1, "one", "two")
    printed(node, lease, 2, "two", "th\0ree")
    printed(node, lease, 4, "four", "five")
    page = api.get("/runs/1/log", cursor=empty["cursor"])
    assert [(i["line_no"], i["text"]) for i in page["items"]] == [
        (1, "one"), (2, "two"), (3, "th\ufffdree"), (4, "(the lines after this one are not kept)"),
    ]  # fmt: skip
    assert api.get("/runs/1/log", cursor=page["cursor"]) == {"items": [], "cursor": page["cursor"]}
    assert [i["text"] for i in api.get("/runs/1/log", limit=1)["items"]] == ["one"]
    last = api.get("/runs/1/log", tail=2)
    assert [i["line_no"] for i in last["items"]] == [3, 4]
    assert last["cursor"] == page["cursor"]
    assert api.get("/runs/1/log", tail=5) == api.get("/runs/1/log")
    second = api.get("/runs/1/log", limit=2)["cursor"]
    assert [i["line_no"] for i in api.get("/runs/1/log", tail=3, cursor=second)["items"]] == [3, 4]
    api.get("/runs/1/log", 422, tail=0)
    assert api.get("/runs/1/log", 422, tail=10**6)["type"] == "/problems/page-too-large"
    assert printed(node, lease, 5, "x" * 2001, status=422)["errors"][0]["pointer"] == "/output/lines/0"
    api.get("/runs/9/log", 404)


def test_every_attempt_has_its_lines(api):
    api.submit()
    node = api.worker()
    lease = node.claim()
    printed(node, lease, 1, "first")
    api.let_lease_run_out(lease["attempt_id"])
    api.reap()
    second = node.claim()
    printed(node, lease, 2, "too late", status=409)
    printed(node, second, 1, "second")
    assert [(i["attempt_no"], i["text"]) for i in api.get("/runs/1/log")["items"]] == [(1, "first"), (2, "second")]


def test_nothing_is_looked_at_while_nothing_is_committed(listen, monkeypatch):
    monkeypatch.setattr(streams, "AT_LATEST_S", 3600.0)
    database = listen.api.context.database
    marks, asked = [], []
    real = database.mark
    reading = listen.api.reading.streams
    monkeypatch.setattr(reading, "_mark", lambda: marks.append(real()) or marks[-1])
    stream = listen("/events?topic=overview&topic=workers")
    assert {stream.next()[2]["topic"] for _ in range(2)} == {"overview", "workers"}
    event.listen(database.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))

    def nothing():
        """Whether the server read the mark twenty times and executed no other statement."""
        asked.clear()
        looked = len(marks)
        until(lambda: len(marks) > looked + 20, "twenty more marks")
        return all("pg_current_snapshot" in statement for statement in asked)

    until(nothing, "the looks to stop")
    listen.api.worker()
    assert stream.next()[2]["topic"] in ("overview", "workers")
