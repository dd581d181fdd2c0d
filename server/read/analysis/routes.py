"""/api/v1/analysis"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query

from taskloom.analysis.calibration import Calibration
from taskloom.analysis.causes import EfficiencyRow, RooflineRow
from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.analysis.history import Series
from taskloom.analysis.memory import MemoryRow
from taskloom.analysis.outlook import Outlook
from taskloom.analysis.sweep import Sweep
from taskloom.contract.analysis import AlertPage, AlertState, Comparison, ScalingTable
from taskloom.contract.experiments import ExperimentDetail
from taskloom.contract.runs import MOST_ID
from taskloom.server import paging
from taskloom.server.access.auth import Who
from taskloom.server.access.keys.service import Caller
from taskloom.server.context import Context, Ctx, Cursor, Id, PageSize
from taskloom.server.errors import BadCursor, InvalidRequest, NotFound, NothingToCompare, PageTooLarge, QueueFull
from taskloom.server.problems import responses
from taskloom.server.read.analysis import alerts, service
from taskloom.server.read.analysis.answers import content
from taskloom.server.read.analysis.selection import SETTINGS, SYNTAX, parse
from taskloom.server.read.context import Reading, Reads

router = APIRouter(prefix="/analysis", tags=["analysis"])
Side = Annotated[str, Query(min_length=1, max_length=2500, description=SYNTAX)]


@router.get("/compare", responses=responses(InvalidRequest, NotFound, NothingToCompare))
def compare(
    context: Ctx,
    a: Side,
    b: Side,
    noise_floor: Annotated[float, Query(gt=0, lt=1, description="declared beforehand, relative")] = NOISE_FLOOR,
    flagged: Annotated[
        Literal["count", "leave-out"], Query(description="whether steps that the trainer flagged count")
    ] = "count",
) -> Comparison:
    """Is B faster than A? Each is runs, or a selection of an experiment's runs, that have one configuration.

    Refused, with the reason, where losses or weights disagree; what differs between the machines is listed.
    """
    return service.compare(context.database, parse(a, "a"), parse(b, "b"), noise_floor, flagged == "leave-out")


ExperimentId = Annotated[int, Query(ge=1, le=MOST_ID)]
NoiseFloor = Annotated[float, Query(gt=0, lt=1, description="declared beforehand, relative")]
T = TypeVar("T")
CORES = "^[1-9][0-9]{0,2}(,[1-9][0-9]{0,2}){0,31}$"


def _kept(context: Context, reading: Reading, asked: tuple[str, int, *tuple[Any, ...]], make: Callable[[], T]) -> T:
    """The answer about an experiment (name, id, ...), made anew only where its results are others."""
    return reading.answers.of(asked, content(context.database, [asked[1]]), make)


@router.get("/scaling", responses=responses(InvalidRequest, NotFound))
def scaling(context: Ctx, reading: Reads, experiment_id: ExperimentId) -> ScalingTable:
    """Step time, throughput, speedup and efficiency of every variant of an experiment, from the runs done so far."""
    return _kept(context, reading, ("scaling", experiment_id), lambda: service.scaling(context.database, experiment_id))


@router.get("/sweep", responses=responses(InvalidRequest, NotFound))
def sweep(
    context: Ctx,
    reading: Reads,
    experiment_id: ExperimentId,
    axis: Annotated[
        str | None,
        Query(
            description="the setting to compare; without it the scheduler, or the first that varies",
            json_schema_extra={"enum": list(SETTINGS)},
        ),
    ] = None,
    noise_floor: NoiseFloor = NOISE_FLOOR,
) -> Sweep:
    """One axis with everything else equal, wherever it stands in the sweep; p-values corrected for being several."""
    return _kept(context, reading, ("sweep", experiment_id, axis, noise_floor),
        lambda: service.sweep(context.database, experiment_id, axis, noise_floor),
    )  # fmt: skip


@router.get("/efficiency", responses=responses(InvalidRequest, NotFound))
def efficiency(context: Ctx, reading: Reads, experiment_id: ExperimentId) -> list[EfficiencyRow]:
    """Where the threads' time went: parallel efficiency and its factors, waiting, computation scalability, bounds."""
    return _kept(
        context, reading, ("efficiency", experiment_id), lambda: service.efficiency(context.database, experiment_id)
    )


@router.get("/roofline", responses=responses(InvalidRequest, NotFound))
def roofline(context: Ctx, reading: Reads, experiment_id: ExperimentId) -> list[RooflineRow]:
    """What each op reached of what the node could, and whether forward and backward are memory bound."""
    return _kept(
        context, reading, ("roofline", experiment_id), lambda: service.roofline(context.database, experiment_id)
    )


@router.get("/forecast", responses=responses(InvalidRequest, NotFound))
def forecast(
    context: Ctx,
    reading: Reads,
    experiment_id: ExperimentId,
    cores: Annotated[
        str, Query(pattern=CORES, description="up to 32 numbers of cores below 1000, as 1,2,4")
    ] = "1,2,4,8,16,32,64,128",
) -> Outlook:
    """Steps on more cores than the node has, under either scheduler, with the error against what was measured."""
    return _kept(context, reading, ("forecast", experiment_id, cores),
        lambda: service.forecast(context.database, context.store, experiment_id, [int(n) for n in cores.split(",")]),
    )  # fmt: skip


@router.get("/memory", responses=responses(InvalidRequest, NotFound))
def memory(context: Ctx, reading: Reads, experiment_id: ExperimentId) -> list[MemoryRow]:
    """Each variant's memory: its split, how it grows with batch and sequence, and what the peak consists of."""
    return _kept(context, reading, ("memory", experiment_id), lambda: service.memory(context.database, experiment_id))


@router.get("/history", responses=responses(InvalidRequest, NotFound))
def history(
    context: Ctx,
    run_id: Annotated[int | None, Query(ge=1, le=MOST_ID, description="only the series of this run")] = None,
    noise_floor: NoiseFloor = NOISE_FLOOR,
    limit: Annotated[int, Query(ge=1, le=2000, description="how many of the latest runs to look at")] = 500,
) -> list[Series]:
    """Step times of each configuration on each machine: where they changed, and alerts that fresh runs confirm."""
    return service.history(context.database, noise_floor, limit, run_id)


@router.get("/alerts", responses=responses(InvalidRequest, BadCursor, PageTooLarge))
def alert_rows(
    context: Ctx,
    state: Annotated[list[AlertState] | None, Query(description="may be given several times")] = None,
    cursor: Cursor = None,
    limit: PageSize = paging.DEFAULT_LIMIT,
) -> AlertPage:
    """What became slower, and what fresh runs say of it, newest first."""
    paging.check_limit(limit, context.settings.max_page)
    return alerts.page(context.database, state or [], cursor, limit)


@router.post(
    "/history/{run_id}/confirm",
    status_code=201,
    responses=responses(InvalidRequest, NotFound, QueueFull),
)
async def confirm(context: Ctx, caller: Who, run_id: Id) -> ExperimentDetail:
    """Queue fresh runs of what changed at this run: an alert becomes a regression only when they confirm it.

    Asked again, the same experiment is answered.
    """
    return await context.control.run(_confirm, context, caller, run_id)


def _confirm(context: Context, caller: Caller, run_id: int) -> ExperimentDetail:
    detail, new = alerts.confirm(context.database, context.settings, run_id, caller.key_id)
    if new:
        context.waiting.changed()
    return detail


@router.get("/report", responses=responses(InvalidRequest, NotFound))
def report(
    context: Ctx,
    reading: Reads,
    experiment_id: ExperimentId,
    disturbed: Annotated[
        Literal["count", "leave-out"], Query(description="whether runs with foreign load beside them count")
    ] = "count",
) -> dict[str, Any]:
    """Everything about an experiment in one document: answer, tables, report card. `/reports/{id}` draws it."""
    return service.report(
        reading.answers, context.database, context.store, experiment_id, disturbed == "leave-out"
    )


@router.get("/calibration", responses=responses(InvalidRequest))
def calibration(context: Ctx) -> list[Calibration]:
    """What each node can tell apart, by its latest A/A experiment (`calibrates`)."""
    return service.calibrations(context.database)
