"""What every route needs, held by the app and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Query, Request

from contract.runs import MOST_ID
from server.analysis.alerts import Alerts
from server.analysis.answers import Answers
from server.artifacts.store import Store
from server.attempts.waiting import WaitingRoom
from server.db import Database
from server.events.stream import Streams
from server.metrics import Metrics
from server.rates import Rates
from server.settings import Settings


@dataclass(frozen=True)
class Context:
    settings: Settings
    database: Database
    store: Store
    waiting: WaitingRoom
    streams: Streams
    rates: Rates
    metrics: Metrics
    alerts: Alerts
    answers: Answers
    public: bool  # whether other machines can reach the server


def _context(request: Request) -> Context:
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


Ctx = Annotated[Context, Depends(_context)]
Id = Annotated[int, Path(ge=1, le=MOST_ID, examples=[1])]
Cursor = Annotated[str | None, Query(max_length=200, description="`next_cursor` of the page before")]
PageSize = Annotated[int, Query(ge=1, description="items a page; the server's limit is in the problem page-too-large")]
