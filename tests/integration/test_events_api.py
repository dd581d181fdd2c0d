import json

import pytest

pytestmark = pytest.mark.both_databases


class Stream:
    """The events of an address, read as they come."""

    def __init__(self, api, path, last_event_id=None):
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        self._context = api.http.stream("GET", f"/api/v1{path}", headers=headers, timeout=20)
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
    """A server whose streams look often, and a way to listen to it; what is open is closed at the end."""
    streams = []
    api = start_server(events_every_s=0.02)

    def listen(path, last_event_id=None):
        streams.append(Stream(api, path, last_event_id))
        return streams[-1]

    listen.api = api
    yield listen
    for stream in streams:
        stream.close()


def test_a_run_tells_its_states_and_progress_and_its_end(listen, make_result):
    api = listen.api
    api.submit()
    stream = listen("/runs/1/events")
    told = {"run_id": 1, "state": "queued", "attempt_no": 0, "progress": None}
    assert stream.next()[1:] == ("changed", told)
    node = api.worker()
    lease = node.claim()
    assert stream.next()[2]["state"] == "leased"
    node.beat(lease, stage="training", step=3, steps=9, loss=2.5)
    event = stream.next()[2]
    assert (event["state"], event["progress"]["step"], event["progress"]["loss"]) == ("running", 3, 2.5)
    node.upload(lease, make_result())
    assert stream.next()[2] == {"run_id": 1, "state": "succeeded", "attempt_no": 1, "progress": None}
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


def test_who_comes_again_hears_what_is_new_and_nothing_twice(listen):
    api = listen.api
    api.submit()
    known, _, _ = listen("/runs/1/events").next()
    again = listen("/runs/1/events", known)
    lease = api.worker().claim()
    assert again.next()[2]["state"] == "leased"  # and not "queued", which was known
    assert lease["attempt_no"] == 1
    late = listen("/runs/1/events", known)
    assert late.next()[2]["state"] == "leased"
    assert listen("/runs/1/events").next() == listen("/runs/1/events", "something else").next()


def test_what_has_ended_is_told_and_ends(listen):
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


def test_a_server_that_leaves_ends_its_streams(listen):
    api = listen.api
    api.submit()
    stream = listen("/runs/1/events")
    stream.next()
    api.context.waiting.close_soon()
    assert stream.next() is None
