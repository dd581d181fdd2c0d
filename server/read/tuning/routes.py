"""GET /api/v1/experiments/{experiment_id}/tuning"""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from taskloom.analysis.tuning.answer import Tuning
from taskloom.contract.tuned import TunedSettingPage
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx, Id, Paged
from taskloom.server.errors import InvalidRequest, NotFound
from taskloom.server.read.analysis.answers import COMPUTED, Asks, of_experiments
from taskloom.server.read.tuning import kept
from taskloom.server.routing import Router

router = Router("/experiments", tag="experiments")
kept_router = Router("/tuned", tag="experiments")
Base = Annotated[
    str | None, Query(max_length=4000, description="settings of a run as JSON: only those of its network and shape")
]


@kept_router.get("", READERS, errors=(InvalidRequest,))
def tuned(context: Ctx, page: Paged, base: Base = None) -> TunedSettingPage:
    """List the settings that tunings have confirmed, newest first; one for each problem and machine."""
    found: Any = None
    if base is not None:
        try:
            found = json.loads(base)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            accepted = "a JSON object of settings"
            raise InvalidRequest([{"pointer": "#query/base", "field": "base", "value": base, "accepted": accepted}])
    return kept.page(context.database, found, page.cursor, page.limit)


@router.get("/{experiment_id}/tuning", READERS, errors=(*COMPUTED, NotFound), response_model=Tuning)
async def tuning(ask: Asks, experiment_id: Id) -> Response:
    """Show the answer of a tuning so far.

    It has the phase, the trials, the best setting, its ratio to the default, the share of the space that it beats, and
    all of that in a sentence.
    """
    return await ask("tuning", experiment_id, made_from=of_experiments(experiment_id))
