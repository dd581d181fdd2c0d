"""Objects that every route may use; the application holds them. read/context.py adds those of reading routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Path, Query, Request

from taskloom.contract.bodies import MOST_ID
from taskloom.server import paging
from taskloom.server.access.bodies import InFlight
from taskloom.server.access.proxies import Proxies
from taskloom.server.access.rates import Rates
from taskloom.server.access.turns import Turns
from taskloom.server.artifact_store import Store
from taskloom.server.db import Database
from taskloom.server.metrics import Metrics
from taskloom.server.readiness import Readiness
from taskloom.server.settings import Settings
from taskloom.server.threads import Threads
from taskloom.server.unread import Unread
from taskloom.server.waiting import WaitingRoom

if TYPE_CHECKING:
    from taskloom.server.access.oidc.sign_on import SignOn


@dataclass(frozen=True)
class Context:
    settings: Settings
    database: Database
    store: Store
    waiting: WaitingRoom
    proxies: Proxies
    sign_on: SignOn | None  # with an OpenID Connect provider
    rates: Rates
    in_flight: InFlight
    unread: Unread
    expanding: Threads  # one thread, because each expansion uses a core
    metrics: Metrics
    readiness: Readiness
    control: Threads  # for writing routes; readers use FastAPI's
    turns: Turns  # of readers
    ended: Callable[[], bool]  # called on any thread after attempts ended; returns whether something was queued
    judge: Callable[[int], Awaitable[None]]  # judges the newest runs of a series by its threshold
    public: bool  # whether other machines can reach the server


async def _context(request: Request) -> Context:
    context = request.app.state.context
    assert isinstance(context, Context)
    return context


Ctx = Annotated[Context, Depends(_context)]
Id = Annotated[int, Path(ge=1, le=MOST_ID, examples=[1])]
Cursor = Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the previous page")]
PageSize = Annotated[int, Query(ge=1, description="items of a page; page-too-large contains the limit")]


@dataclass(frozen=True)
class Page:
    """Requested page of a list."""

    cursor: str | None
    limit: int


async def _page(context: Ctx, cursor: Cursor = None, limit: PageSize = paging.DEFAULT_LIMIT) -> Page:
    paging.check_limit(limit, context.settings.max_page)
    return Page(cursor, limit)


Paged = Annotated[Page, Depends(_page)]
