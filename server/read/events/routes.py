"""/api/v1/runs/{run_id}/events and /api/v1/experiments/{experiment_id}/events"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header
from starlette.responses import Response, StreamingResponse

from taskloom.contract.events import ExperimentEvent, RunEvent
from taskloom.server.access.guard import GuardedRouter
from taskloom.server.context import Id
from taskloom.server.errors import InvalidRequest, NotFound, TooManyStreams
from taskloom.server.problems import responses
from taskloom.server.read.context import Reads
from taskloom.server.read.events.service import Topic
from taskloom.server.read.events.stream import MEDIA_TYPE

router = GuardedRouter(tags=["events"])
LastEventId = Annotated[str | None, Header(max_length=100, description="`id` of the last event that was heard")]


def _described(event: type[RunEvent] | type[ExperimentEvent]) -> dict[int | str, dict[str, Any]]:
    names = [event.__name__, "LogLine"] if event is RunEvent else [event.__name__]
    data = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}
    schema = {
        "type": "object",
        "description": "one event",
        "properties": {
            "id": {"type": "string"},
            "event": {"enum": ["changed", "line", "ended"]},
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": data},
        },
        "required": ["event", "data"],
    }
    told = {"description": "events, until it has ended", "content": {MEDIA_TYPE: {"schema": schema}}}
    return {200: told, **responses(NotFound, InvalidRequest, TooManyStreams)}


@router.get("/runs/{run_id}/events", response_class=Response, responses=_described(RunEvent))
async def run(reading: Reads, run_id: Id, last_event_id: LastEventId = None) -> StreamingResponse:
    """A run's state and progress: `changed` now and whenever it has changed, `ended` at its end; and each `line` that
    its trainer prints.
    """
    return await reading.streams.answer(Topic("run", run_id), last_event_id)


@router.get("/experiments/{experiment_id}/events", response_class=Response, responses=_described(ExperimentEvent))
async def experiment(reading: Reads, experiment_id: Id, last_event_id: LastEventId = None) -> StreamingResponse:
    """An experiment's state and the runs under way: `changed` now and whenever it has changed, `ended` at its end."""
    return await reading.streams.answer(Topic("experiment", experiment_id), last_event_id)
