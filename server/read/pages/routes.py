"""Pages for people, and health endpoints."""

from __future__ import annotations

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from gpt2core.spec.version import version
from taskloom.contract.health import Health, Readiness
from taskloom.contract.problems import ProblemType, ProblemTypeList
from taskloom.server.access.scopes import EVERYBODY, PAGE, READERS
from taskloom.server.context import Ctx, Id
from taskloom.server.errors import PROBLEM_TYPES, DatabaseUnavailable, NotFound, StoreUnavailable
from taskloom.server.problems import describe
from taskloom.server.read.analysis.answers import COMPUTED, Asks, of_report
from taskloom.server.read.pages.html import reference_page
from taskloom.server.routing import Router

router = Router(tag="server", below="", any_query=True)
PROMETHEUS = {"text/plain": {"schema": {"type": "string"}}}


@router.get("/docs", PAGE, include_in_schema=False, response_class=HTMLResponse)
def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(reference_page(request.app.openapi()))


@router.get("/openapi.json", PAGE, include_in_schema=False)
def document(request: Request) -> JSONResponse:
    return JSONResponse(request.app.openapi())


@router.get("/reports/{experiment_id}", READERS, errors=(*COMPUTED, NotFound), response_class=HTMLResponse)
async def report(ask: Asks, experiment_id: Id) -> Response:
    """Show an experiment's report as one self-contained page."""
    return await ask("page", experiment_id, made_from=of_report(experiment_id), media_type="text/html")


@router.get("/problems", PAGE)
def problem_types() -> ProblemTypeList:
    """List every problem type."""
    return ProblemTypeList(items=[describe(slug) for slug in sorted(PROBLEM_TYPES)])


@router.get("/problems/{slug}", PAGE, errors=(NotFound,))
def problem_type(slug: str) -> ProblemType:
    """Explain a problem type."""
    return describe(slug)


@router.get("/healthz", EVERYBODY, routine=True)
def health() -> Health:
    """Answer if the process is alive."""
    return Health(status="ok", version=version())


@router.get(
    "/metrics",
    READERS,
    routine=True,
    response_class=Response,
    responses={200: {"description": "Prometheus's text format", "content": PROMETHEUS}},
)
def metrics(context: Ctx) -> Response:
    """Metrics for Prometheus: queue, workers, requests and this process."""
    return Response(generate_latest(context.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/readyz", EVERYBODY, errors=(DatabaseUnavailable, StoreUnavailable), routine=True)
def ready(context: Ctx) -> Readiness:
    """Check that the database has this server's schema, and that database and artifact folder are writable."""
    context.readiness.check()
    return Readiness(status="ready")
