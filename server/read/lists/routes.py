"""/api/v1/filters: the names that filters of lists accept."""

from __future__ import annotations

from collections.abc import Mapping

from taskloom.contract.filters import Filtered, FilterNames
from taskloom.server.access.scopes import READERS
from taskloom.server.context import Ctx
from taskloom.server.read.experiments.fields import EXPERIMENT_FIELDS
from taskloom.server.read.history.fields import SERIES_FIELDS
from taskloom.server.read.lists.fields import Fields, Stored
from taskloom.server.read.runs.fields import RUN_FIELDS
from taskloom.server.routing import Router

router = Router("/filters", tag="filters")
KNOWN: Mapping[Filtered, Fields] = {"runs": RUN_FIELDS, "experiments": EXPERIMENT_FIELDS, "series": SERIES_FIELDS}


@router.get("/{of}", READERS)
def names(context: Ctx, of: Filtered) -> FilterNames:
    """List the names that `filter` accepts in a list, with their operators and values."""
    with context.database.read() as session:
        stored = Stored(session)
        return FilterNames(items=[field.described(stored) for field in KNOWN[of].values()])
