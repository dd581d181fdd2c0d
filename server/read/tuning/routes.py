"""GET /api/v1/experiments/{experiment_id}/tuning"""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from starlette.responses import Response

from taskloom.analysis.tuning.answer import Tuning
from taskloom.contract.tuned import TunedSettingPage
from taskloom.server import queries
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx, Id, Paged
from taskloom.server.errors import NotFound
from taskloom.server.read.analysis.answers import COMPUTED, Asks, of_experiments
from taskloom.server.read.tuning import kept
from taskloom.server.routing import Router

router = Router("/experiments", tag="experiments")
kept_router = Router("/tuned", tag="experiments")


async def _settings(
    request: Request,
    base: Annotated[
        str | None,
        Query(max_length=4000, description="settings of a run as JSON: only those of its network and shape"),
    ] = None,
) -> Any:
    if base is None:
        return None
    try:
        found = json.loads(base)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        queries.refuse(request, [queries.entry("base", base, "a JSON object of settings")])
    return found


@kept_router.get("", READERS)
def tuned(context: Ctx, page: Paged, base: Annotated[Any, Depends(_settings)]) -> TunedSettingPage:
    """List the settings that tunings have confirmed, newest first; one for each problem and machine."""
    return kept.page(context.database, base, page.cursor, page.limit)


@router.get("/{experiment_id}/tuning", READERS, errors=(*COMPUTED, NotFound), response_model=Tuning)
async def tuning(ask: Asks, experiment_id: Id) -> Response:
    """Show the answer of a tuning so far.

    It has the phase, the trials, the best setting, its ratio to the default, the share of the space that it beats, and
    all of that in a sentence.
    """
    return await ask("tuning", experiment_id, made_from=of_experiments(experiment_id))
