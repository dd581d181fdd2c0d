"""/api/v1/analysis"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from analysis.comparison import NOISE_FLOOR
from contract.analysis import Comparison, ScalingTable
from contract.runs import MOST_ID
from server.analysis import service
from server.analysis.selection import SYNTAX, parse
from server.context import Ctx
from server.errors import InvalidRequest, NotFound, NothingToCompare
from server.problems import responses

router = APIRouter(prefix="/analysis", tags=["analysis"])
Side = Annotated[str, Query(min_length=1, max_length=2500, description=SYNTAX)]


@router.get("/compare", responses=responses(InvalidRequest, NotFound, NothingToCompare))
def compare(
    context: Ctx,
    a: Side,
    b: Side,
    noise_floor: Annotated[float, Query(gt=0, lt=1, description="declared beforehand, relative")] = NOISE_FLOOR,
) -> Comparison:
    """Is B faster than A? Each is runs, or a selection of an experiment's runs, that have one configuration.

    Refused, with the reason, where losses or weights disagree; what differs between the machines is listed.
    """
    return service.compare(context.database, parse(a, "a"), parse(b, "b"), noise_floor)


@router.get("/scaling", responses=responses(InvalidRequest, NotFound))
def scaling(context: Ctx, experiment_id: Annotated[int, Query(ge=1, le=MOST_ID)]) -> ScalingTable:
    """Step time, throughput, speedup and efficiency of every variant of an experiment, from the runs done so far."""
    return service.scaling(context.database, experiment_id)
