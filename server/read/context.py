"""Objects that only reading routes use, in addition to those of server/context.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from taskloom.server.read.analysis.answers import Answers
from taskloom.server.read.dashboard.files import Files
from taskloom.server.read.events.stream import Streams
from taskloom.server.read.experiments.eta import Etas
from taskloom.server.read.exports.streams import Exports
from taskloom.server.read.overview.overviews import Overviews
from taskloom.server.read.watchers.alerts import Alerts


@dataclass(frozen=True)
class Reading:
    streams: Streams
    alerts: Alerts
    answers: Answers
    dashboard: Files
    overviews: Overviews
    etas: Etas
    exports: Exports


async def _reading(request: Request) -> Reading:
    reading = request.app.state.reading
    assert isinstance(reading, Reading)
    return reading


Reads = Annotated[Reading, Depends(_reading)]
