"""/api/v1/analysis"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from starlette.responses import Response

from gpt2core.spec.config import NAMES
from taskloom.analysis.calibration import CalibrationList
from taskloom.analysis.causes import EfficiencyTable, RooflineTable
from taskloom.analysis.compared import Comparison
from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.analysis.history import SeriesList
from taskloom.analysis.memory import MemoryTable
from taskloom.analysis.outlook import Outlook
from taskloom.analysis.report import Report, ReportCard
from taskloom.analysis.scaling import ScalingTable
from taskloom.analysis.sweep import Sweep
from taskloom.contract.analysis import AlertPage, AlertState
from taskloom.contract.bodies import MOST_ID
from taskloom.contract.experiments import ExperimentDetail
from taskloom.server.access.auth import Who
from taskloom.server.access.scopes import READERS, SUBMITTERS
from taskloom.server.context import Ctx, Id, Paged
from taskloom.server.errors import NotFound, NothingToCompare, QueueFull, QuotaUsed
from taskloom.server.read.analysis import alerts as raised
from taskloom.server.read.analysis.answers import (
    COMPUTED,
    Asks,
    of_calibrations,
    of_experiments,
    of_history,
    of_report,
    of_selections,
    of_series_of,
)
from taskloom.server.read.analysis.selection import SYNTAX, parse
from taskloom.server.read.context import Reads
from taskloom.server.routing import Router

router = Router("/analysis", tag="analysis")
Side = Annotated[str, Query(min_length=1, max_length=2500, description=SYNTAX)]
ExperimentId = Annotated[int, Query(ge=1, le=MOST_ID)]
NoiseFloor = Annotated[
    float, Query(gt=0, lt=1, description="relative difference that counts as equal, declared before the comparison")
]
Latest = Annotated[int, Query(ge=1, le=2000, description="how many of the latest runs to search")]
CORES = "^[1-9][0-9]{0,2}(,[1-9][0-9]{0,2}){0,31}$"


@router.get("/compare", READERS, errors=(*COMPUTED, NotFound, NothingToCompare), response_model=Comparison)
async def compare(
    ask: Asks,
    a: Side,
    b: Side,
    noise_floor: NoiseFloor = NOISE_FLOOR,
    flagged: Annotated[
        Literal["count", "leave-out"], Query(description="whether steps that the trainer flagged are included")
    ] = "count",
) -> Response:
    """Compare B with A. Each side is a list of runs, or a selection of an experiment's runs, of one configuration.

    The verdict is `refused`, with the reason, if losses or weights disagree. Differences between the machines are
    listed.
    """
    made_from = of_selections(parse(a, "a"), parse(b, "b"))
    return await ask("compare", a, b, noise_floor, flagged == "leave-out", made_from=made_from)


@router.get("/scaling", READERS, errors=(*COMPUTED, NotFound), response_model=ScalingTable)
async def scaling(ask: Asks, experiment_id: ExperimentId) -> Response:
    """Step time, throughput, speedup and efficiency of every variant of an experiment.

    Only runs that have succeeded so far are included.
    """
    return await ask("scaling", experiment_id, made_from=of_experiments(experiment_id))


@router.get("/sweep", READERS, errors=(*COMPUTED, NotFound), response_model=Sweep)
async def sweep(
    ask: Asks,
    experiment_id: ExperimentId,
    axis: Annotated[
        str | None,
        Query(
            description="the setting to compare; default: the scheduler, or the first setting that varies",
            json_schema_extra={"enum": list(NAMES)},
        ),
    ] = None,
    noise_floor: NoiseFloor = NOISE_FLOOR,
) -> Response:
    """Compare the values of one axis with everything else equal; p-values are adjusted for multiple comparisons."""
    return await ask("sweep", experiment_id, axis, noise_floor, made_from=of_experiments(experiment_id))


@router.get("/efficiency", READERS, errors=(*COMPUTED, NotFound), response_model=EfficiencyTable)
async def efficiency(ask: Asks, experiment_id: ExperimentId) -> Response:
    """Efficiency of every variant: parallel efficiency and its factors, waiting, computation scalability, bounds."""
    return await ask("efficiency", experiment_id, made_from=of_experiments(experiment_id))


@router.get("/roofline", READERS, errors=(*COMPUTED, NotFound), response_model=RooflineTable)
async def roofline(ask: Asks, experiment_id: ExperimentId) -> Response:
    """Each op's share of the node's peaks, and whether forward and backward are memory-bound."""
    return await ask("roofline", experiment_id, made_from=of_experiments(experiment_id))


@router.get("/forecast", READERS, errors=(*COMPUTED, NotFound), response_model=Outlook)
async def forecast(
    ask: Asks,
    experiment_id: ExperimentId,
    cores: Annotated[
        str, Query(pattern=CORES, description="up to 32 numbers of cores below 1000, such as 1,2,4")
    ] = "1,2,4,8,16,32,64,128",
) -> Response:
    """Forecast the step time on more cores than the node has, under fork-join and task, and with more ranks.

    The answer contains the error of the forecast at each measured number of threads and of ranks.
    """
    numbers = tuple(int(n) for n in cores.split(","))
    return await ask("forecast", experiment_id, numbers, made_from=of_experiments(experiment_id))


@router.get("/memory", READERS, errors=(*COMPUTED, NotFound), response_model=MemoryTable)
async def memory(ask: Asks, experiment_id: ExperimentId) -> Response:
    """Each variant's memory: its parts, its growth with batch and sequence, and the parts of its peak."""
    return await ask("memory", experiment_id, made_from=of_experiments(experiment_id))


@router.get("/history", READERS, errors=(*COMPUTED, NotFound), response_model=SeriesList)
async def history(
    context: Ctx,
    ask: Asks,
    run_id: Annotated[int | None, Query(ge=1, le=MOST_ID, description="only the series of this run")] = None,
    noise_floor: NoiseFloor = NOISE_FLOOR,
    limit: Latest = 500,
) -> Response:
    """Step times of each configuration on each machine, with their changes and the alerts that fresh runs confirm."""
    made_from = of_history if run_id is None else of_series_of(run_id)
    return await ask("history", noise_floor, limit, run_id, context.settings.commits_url, made_from=made_from)


@router.get("/alerts", READERS)
def alerts(
    context: Ctx,
    page: Paged,
    state: Annotated[list[AlertState] | None, Query(max_length=20, description="may be given several times")] = None,
    mode: Annotated[Literal["train", "infer"] | None, Query(description="of runs in this mode")] = None,
) -> AlertPage:
    """List alerts, newest first: changes to slower steps, and the results of fresh runs."""
    return raised.page(context.database, state or [], mode, page.cursor, page.limit)


@router.post(
    "/history/{run_id}/confirm", SUBMITTERS, errors=(*COMPUTED, NotFound, QueueFull, QuotaUsed), status_code=201
)
async def confirm(context: Ctx, reading: Reads, caller: Who, run_id: Id) -> ExperimentDetail:
    """Queue fresh runs of the change at this run. Only fresh runs can confirm an alert as a regression.

    Idempotent: a repeated request returns the same experiment.
    """
    detail, new = await reading.alerts.confirm(run_id, caller)
    if new:
        context.waiting.changed()
    return detail


@router.get("/report", READERS, errors=(*COMPUTED, NotFound), response_model=Report)
async def report(
    ask: Asks,
    experiment_id: ExperimentId,
    disturbed: Annotated[
        Literal["count", "leave-out"], Query(description="whether runs that other processes disturbed are included")
    ] = "count",
) -> Response:
    """Report of an experiment as one document: answer, tables, report card. `/reports/{id}` is the same as a page."""
    return await ask("report", experiment_id, disturbed == "leave-out", made_from=of_report(experiment_id))


@router.get("/card", READERS, errors=(*COMPUTED, NotFound), response_model=ReportCard)
async def card(ask: Asks, experiment_id: ExperimentId) -> Response:
    """Report card of an experiment: the rules of measurement with their evidence, and the environment."""
    return await ask("card", experiment_id, made_from=of_report(experiment_id))


@router.get("/calibration", READERS, errors=COMPUTED, response_model=CalibrationList)
async def calibration(ask: Asks) -> Response:
    """Smallest difference that each node can detect, by its latest A/A experiment (`calibrates`)."""
    return await ask("calibration", made_from=of_calibrations)
