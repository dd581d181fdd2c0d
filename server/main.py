"""The application, and how it is served."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import uvicorn
from anyio import to_thread
from fastapi import FastAPI
from sqlalchemy.exc import DBAPIError

from gpt2core.node.files import check_output
from gpt2core.process import streams
from gpt2core.spec.version import version
from taskloom.contract.options import DEFAULT_HOST, DEFAULT_PORT
from taskloom.server import background, extension, logs, migrate, openapi, problems, replicas, submissions
from taskloom.server.access import browsers
from taskloom.server.access.bodies import InFlight
from taskloom.server.access.headers import Head, SecurityHeaders
from taskloom.server.access.keys import keyring
from taskloom.server.access.keys.routes import router as keys
from taskloom.server.access.keys.routes import who
from taskloom.server.access.oidc import configured
from taskloom.server.access.proxies import Proxies
from taskloom.server.access.rates import Rates
from taskloom.server.access.turns import Turns
from taskloom.server.alerts.routes import router as thresholds
from taskloom.server.artifact_store import Store
from taskloom.server.connections import Connection
from taskloom.server.context import Context
from taskloom.server.db import Database, unusable
from taskloom.server.errors import StartRefused
from taskloom.server.listening import bind, notify_systemd, resolve, write_port
from taskloom.server.metrics import Metrics
from taskloom.server.neighbours import Neighbours
from taskloom.server.observing import Observing
from taskloom.server.queue.artifacts.routes import router as artifacts_put
from taskloom.server.queue.attempts.routes import router as attempts
from taskloom.server.queue.demand.routes import router as demand
from taskloom.server.queue.experiments.routes import router as experiments
from taskloom.server.queue.retention.routes import router as retention
from taskloom.server.queue.runs.routes import router as runs
from taskloom.server.queue.transitions import ends
from taskloom.server.queue.workers.routes import router as workers
from taskloom.server.read.analysis.answers import Answers
from taskloom.server.read.analysis.routes import router as analysis
from taskloom.server.read.artifacts.routes import router as artifacts
from taskloom.server.read.context import Reading
from taskloom.server.read.dashboard import files as dashboard_files
from taskloom.server.read.dashboard.routes import router as dashboard
from taskloom.server.read.events.routes import router as events
from taskloom.server.read.events.stream import Streams
from taskloom.server.read.events.topics import look_at_all
from taskloom.server.read.experiments.eta import Etas
from taskloom.server.read.experiments.routes import badges_router as badges
from taskloom.server.read.experiments.routes import router as experiments_read
from taskloom.server.read.exports.routes import router as exports
from taskloom.server.read.exports.streams import Exports
from taskloom.server.read.fleet.routes import of_queue, of_workers
from taskloom.server.read.history.routes import router as history
from taskloom.server.read.lists.routes import router as filters
from taskloom.server.read.overview.overviews import Overviews
from taskloom.server.read.overview.routes import router as overview
from taskloom.server.read.pages.routes import router as pages
from taskloom.server.read.pages.sign_in import router as sign_in
from taskloom.server.read.pool import Pool
from taskloom.server.read.runs.routes import router as runs_read
from taskloom.server.read.samples.routes import router as samples
from taskloom.server.read.sources import Sources
from taskloom.server.read.traces.routes import router as traces
from taskloom.server.read.tuning.routes import kept_router as tuned
from taskloom.server.read.tuning.routes import router as tuning
from taskloom.server.read.watchers import stopping
from taskloom.server.read.watchers.alerts import Alerts
from taskloom.server.readiness import Readiness
from taskloom.server.routing import operations
from taskloom.server.settings import Settings
from taskloom.server.threads import Threads
from taskloom.server.unread import Unread
from taskloom.server.waiting import WaitingRoom
from taskloom.server.webhooks.deliveries import Deliveries
from taskloom.server.webhooks.routes import router as webhooks

log = logging.getLogger("taskloom.server")
READER_TURN_S = 0.1  # a reader that takes longer is not using the event loop, so it no longer counts

ROUTERS = (
    submissions.router,
    overview,
    experiments_read,
    badges,
    filters,
    tuning,
    tuned,
    experiments,
    runs_read,
    runs,
    samples,
    exports,
    demand,
    of_queue,
    workers,
    of_workers,
    attempts,
    artifacts_put,
    artifacts,
    traces,
    analysis,
    history,
    thresholds,
    events,
    retention,
    webhooks,
    keys,
    who,
    pages,
    sign_in,
    dashboard,
)


def create_app(settings: Settings, public: bool = False) -> FastAPI:
    """The whole server as an ASGI app. It opens and migrates its database when it starts.

    public: whether other machines can reach the server; if so, pages also need a key.
    """
    sign_on = configured.sign_on(settings)
    database = Database(settings.database_url, settings.busy_timeout_s)
    neighbours = Neighbours(database)
    waiting = WaitingRoom(tell_others=neighbours.tell)
    store = Store(settings.artifact_folder)
    pool = Pool(Sources(database, store, settings))
    control = Threads(settings.control_threads, functools.partial(extension.settle, database, settings))
    etas = Etas(settings)
    overviews = Overviews(database, settings, etas)
    look = functools.partial(look_at_all, database, settings, overviews)
    reading = Reading(
        streams=Streams(look, database.mark, waiting, settings),
        alerts=Alerts(database, settings, pool, control),
        answers=Answers(settings, database, pool),
        dashboard=dashboard_files.read(sign_in=sign_on is not None),
        overviews=overviews,
        etas=etas,
        exports=Exports(database, settings),
    )

    def ended() -> bool:
        added = stopping.look(database)
        ends.close(database)
        return added

    context = Context(
        settings=settings,
        database=database,
        store=store,
        waiting=waiting,
        proxies=Proxies.of(settings),
        sign_on=sign_on,
        rates=Rates(settings.rate_per_s),
        in_flight=InFlight(settings.max_bytes_in_flight),
        unread=Unread(settings.send_timeout_s, settings.max_bytes_unread),
        expanding=Threads(1),
        metrics=Metrics(database, settings.lease_s),
        readiness=Readiness(database, store),
        control=control,
        turns=Turns(settings.readers_at_once, READER_TURN_S),
        ended=ended,
        judge=reading.alerts.judge,
        public=public,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await to_thread.run_sync(migrate.upgrade, context.database)
        to_thread.current_default_thread_limiter().total_tokens = settings.reader_threads
        await to_thread.run_sync(extension.begin, context.database, settings)
        context.waiting.open()
        stopping = asyncio.Event()
        deliveries = Deliveries(database, settings)
        loops = background.started(context, reading, pool, deliveries, stopping)
        listening = asyncio.create_task(neighbours.listen(context.waiting.wake))
        listening.add_done_callback(background.log_end)
        try:
            yield
        finally:
            context.waiting.close()
            reading.answers.pool.close()
            stopping.set()
            deliveries.close()
            listening.cancel()
            await asyncio.gather(*loops)  # not cancelled: a running query would outlive its database
            await reading.answers.ended()
            await reading.streams.ended()
            await asyncio.wait([listening])
            context.database.close()

    app = FastAPI(
        title="Taskloom",
        version=version(),
        summary="Controlled experiments on how to parallelise the training of neural networks on CPUs.",
        lifespan=lifespan,
        openapi_url=None,  # pages/ has it, under the rules of its routes
        docs_url=None,  # FastAPI's page loads scripts from other sites; pages/ has one without scripts
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context, app.state.reading = context, reading
    for router in ROUTERS:  # FastAPI's include_router would build every route again, which takes 0.25 s
        app.router.routes.extend(router.api.routes)
    problems.install(app)
    openapi.install(app, operations(app), public, settings.root_path)
    app.add_middleware(problems.Unexpected)
    browsers.install(app, settings.cors_origins)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Observing, metrics=context.metrics)
    app.add_middleware(browsers.Below, root_path=settings.root_path)
    app.add_middleware(Head)
    return app


class _Server(uvicorn.Server):
    """Uvicorn's server, which also reports when it listens, and answers waiting workers before it stops."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._app, self._listening = app, listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            gc.collect()
            gc.freeze()  # a collection that scans all loaded objects delays heartbeats by 0.2 s
            self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.context.waiting.close()
        self._app.state.reading.answers.pool.close()
        await super().shutdown(sockets)


def serve(
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    database_url: str | None = None,
    port_file: Path | None = None,
    workers: int = 1,
    as_json: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT, in `workers` processes. Port 0: a free port. When ready, print the URL on standard
    output, as one line of JSON unless it is a terminal, and write the port to `port_file`. as_json: JSON also on a
    terminal. Raises StartRefused, ConfigError for a file that cannot be written.
    """
    logs.to_standard_error(as_json)
    if port_file is not None:
        check_output("port_file", port_file)
    settings = Settings.read(database_url)
    if workers > 1 and settings.database_url.startswith("sqlite"):
        raise StartRefused(f"--workers {workers} needs PostgreSQL: a SQLite file has one writer")
    _migrate(settings)
    endpoint = resolve(host, port)
    if endpoint.public:
        _check_keys(settings, host)
    listener = bind(endpoint)
    address = listener.getsockname()
    url = f"http://[{address[0]}]:{address[1]}" if ":" in address[0] else f"http://{address[0]}:{address[1]}"

    def listening() -> None:
        notify_systemd()
        if port_file is not None:
            write_port(port_file, address[1])
        event = json.dumps({"event": "listening", "url": url, "pid": os.getpid()})
        streams.say(f"the dashboard is at {url}/" if sys.stdout.isatty() and not as_json else event)

    with listener:
        if workers > 1:
            replicas.run(listener, workers, settings, endpoint.public, listening, as_json)
        else:
            _run(_server(settings, endpoint.public, listening), listener)


def serve_replica(listener_fd: int, public: bool, as_json: bool) -> None:
    """Serve as one of several processes on a bound socket. Raises StartRefused."""
    logs.to_standard_error(as_json)
    server = _server(Settings.read(), public, lambda: print(json.dumps({"event": "listening"}), flush=True))
    replicas.stop_with_parent(lambda: setattr(server, "should_exit", True))
    with socket.socket(fileno=listener_fd) as listener:
        _run(server, listener)


def _server(settings: Settings, public: bool, listening: Callable[[], None]) -> _Server:
    app = create_app(settings, public)
    return _Server(configuration(app), app, listening)


def configuration(app: FastAPI) -> uvicorn.Config:
    """Uvicorn's configuration of the server."""
    return uvicorn.Config(
        app, http=Connection, log_config=None, access_log=False, timeout_graceful_shutdown=20, lifespan="on",
        workers=1,  # otherwise WEB_CONCURRENCY
        proxy_headers=False,  # otherwise the address of a local proxy would be the one that the client claims
    )  # fmt: skip


def _run(server: _Server, listener: socket.socket) -> None:
    """Raises StartRefused."""
    threading.Thread(target=int).start()  # where none can start, a line says so; Uvicorn would log a traceback
    os.environ["PYTHONSAFEPATH"] = "1"  # processes of the analysis pool load no modules from the current folder
    # Uvicorn raises the signal again after it has stopped; a requested stop is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    server.run([listener])
    if not server.started:
        raise StartRefused("the server could not start; its log has the reason")


def _migrate(settings: Settings) -> None:
    """Migrate the database before the server starts, to report clearly if it cannot be used. Raises StartRefused."""
    database = Database(settings.database_url, settings.busy_timeout_s)
    try:
        migrate.upgrade(database)
        extension.begin(database, settings)  # the application does so again; here a full disk is reported in a line
    except DBAPIError as error:
        raise unusable(database, error) from None
    finally:
        database.close()


def _check_keys(settings: Settings, host: str) -> None:
    """Raises StartRefused if other machines can reach the server and there is no admin key."""
    database = Database(settings.database_url, settings.busy_timeout_s)
    try:
        if not keyring.has_admin(database):
            raise StartRefused(
                f"{host} can be reached from other machines, and there is no admin key; create one with "
                "`python -m taskloom.server keys create --scope admin`, or listen on 127.0.0.1"
            )
    finally:
        database.close()
