"""GET /api/v1/experiments/{experiment_id}/tuning"""

from __future__ import annotations

from starlette.responses import Response

from taskloom.analysis.tuning.answer import Tuning
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Id
from taskloom.server.errors import NotFound
from taskloom.server.read.analysis.answers import COMPUTED, Asks, of_experiments
from taskloom.server.routing import Router

router = Router("/experiments", tag="experiments")


@router.get("/{experiment_id}/tuning", READERS, errors=(*COMPUTED, NotFound), response_model=Tuning)
async def tuning(ask: Asks, experiment_id: Id) -> Response:
    """Show the answer of a tuning so far.

    It has the phase, the trials, the best setting, its ratio to the default, the share of the space that it beats, and
    all of that in a sentence.
    """
    return await ask("tuning", experiment_id, made_from=of_experiments(experiment_id))
