"""/api/v1/events, /api/v1/runs/{run_id}/events and /api/v1/experiments/{experiment_id}/events"""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.responses import Response, StreamingResponse

from taskloom.contract.bodies import MOST_ID
from taskloom.contract.events import ExperimentEvent, RunEvent
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Id
from taskloom.server.errors import InvalidRequest, NotFound, TooManyStreams
from taskloom.server.read.context import Reads
from taskloom.server.read.events.stream import MEDIA_TYPE
from taskloom.server.read.events.topics import Topic
from taskloom.server.routing import Router

router = Router(tag="events")
LastEventId = Annotated[str | None, Header(max_length=100, description="`id` of the last event received")]


def _described(event: type[RunEvent] | type[ExperimentEvent]) -> dict[int | str, dict[str, Any]]:
    names = [event.__name__, "LogLine"] if event is RunEvent else [event.__name__]
    data = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}
    schema = {
        "type": "object",
        "description": "one event",
        "properties": {
            "id": {"type": "string"},
            "event": {"type": "string", "enum": ["changed", "line", "ended"]},
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": data},
        },
        "required": ["event", "data"],
    }
    return {200: {"description": "events, until it has ended", "content": {MEDIA_TYPE: {"schema": schema}}}}


@router.get(
    "/runs/{run_id}/events",
    READERS,
    errors=(NotFound, TooManyStreams),
    response_class=Response,
    responses=_described(RunEvent),
)
async def run(reading: Reads, run_id: Id, last_event_id: LastEventId = None) -> StreamingResponse:
    """Stream a run's state, progress and output.

    `changed` is sent at once and after each change, `line` for each line of output, `ended` at the end.
    """
    return await reading.streams.answer(Topic("run", run_id), last_event_id)


@router.get(
    "/experiments/{experiment_id}/events",
    READERS,
    errors=(NotFound, TooManyStreams),
    response_class=Response,
    responses=_described(ExperimentEvent),
)
async def experiment(reading: Reads, experiment_id: Id, last_event_id: LastEventId = None) -> StreamingResponse:
    """Stream an experiment's state and its running runs.

    `changed` is sent at once and after each change, `ended` at the end.
    """
    return await reading.streams.answer(Topic("experiment", experiment_id), last_event_id)


TOPIC = re.compile(r"(overview|workers)|(run|experiment):([1-9][0-9]{0,9})")
MOST_TOPICS = 20
TOLD = {
    "type": "object",
    "description": "one event",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string", "enum": ["changed", "line", "ended"]},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "type": "object",
                "properties": {
                    "topic": {"type": "string"},
                    "data": {
                        "anyOf": [
                            {"$ref": f"#/components/schemas/{name}"}
                            for name in ("Overview", "WorkerPage", "ExperimentEvent", "RunEvent", "LogLine")
                        ]
                    },
                },
                "required": ["topic", "data"],
            },
        },
    },
    "required": ["event", "data"],
}


@router.get(
    "/events",
    READERS,
    errors=(InvalidRequest, NotFound, TooManyStreams),
    response_class=Response,
    responses={200: {"description": "events, until all topics have ended", "content": {MEDIA_TYPE: {"schema": TOLD}}}},
)
async def stream(
    reading: Reads,
    topic: Annotated[
        list[str],
        Query(
            min_length=1,
            max_length=MOST_TOPICS,
            description="overview, workers, run:ID or experiment:ID; may be given several times",
            examples=[["overview"]],
        ),
    ],
    last_event_id: Annotated[str | None, Header(max_length=4000, description="`id` of the last event received")] = None,
) -> StreamingResponse:
    """Stream several topics.

    An event's `data` is an object with its `topic` and, as `data`, the topic's complete state. `changed` is sent at
    once and after each change, `line` for each line of a trainer's output, `ended` at a topic's end.
    """
    return await reading.streams.answer_all([_topic(text) for text in topic], last_event_id)


def _topic(text: str) -> Topic:
    """Raises InvalidRequest."""
    found = TOPIC.fullmatch(text)
    if found is None or (found[3] is not None and int(found[3]) > MOST_ID):
        accepted = "overview, workers, run:ID or experiment:ID"
        raise InvalidRequest([{"pointer": "#query/topic", "field": "topic", "value": text, "accepted": accepted}])
    return Topic(found[1]) if found[1] else Topic(found[2], int(found[3]))
