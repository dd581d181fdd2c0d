"""Background loops of the server: lost attempts, queued runs, alerts, verdicts, tunings, calibrations, old runs and
webhook messages."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable

from anyio import to_thread

from gpt2core.spec.wording import counted
from taskloom.contract.retention import PruneRequest
from taskloom.server import logs
from taskloom.server.context import Context
from taskloom.server.queue.attempts import lifecycle
from taskloom.server.queue.attempts.claim import latest_queued_at
from taskloom.server.queue.experiments import calibrating
from taskloom.server.queue.retention import pruning
from taskloom.server.read.context import Reading
from taskloom.server.read.pool import Pool
from taskloom.server.read.tuning.decisions import Tunings
from taskloom.server.read.watchers.verdicts import Verdicts
from taskloom.server.webhooks.deliveries import Deliveries

log = logging.getLogger("taskloom.server")
DAY_S, PRUNE_EVERY_S = 86400.0, 3600.0


def started(
    context: Context, reading: Reading, pool: Pool, deliveries: Deliveries, stopping: asyncio.Event
) -> list[asyncio.Task[None]]:
    """One task for each loop; they end after `stopping`."""
    settings, database = context.settings, context.database
    tunings = Tunings(database, pool, context.control)
    reap = functools.partial(context.control.run, _reap, context)
    polled = (
        _watch_queue(context),
        functools.partial(_look_at_alerts, context, reading),
        Verdicts(database, settings, pool).look,
        functools.partial(_decide_tunings, context, tunings),
        deliveries.look,
    )
    loops = [_repeat(reap, settings.reap_after_s, settings.reap_every_s, stopping)]
    if settings.calibrate_every_h is not None:
        calibrate = functools.partial(context.control.run, _calibrate, context)
        loops.append(_repeat(calibrate, 0.0, settings.reap_every_s, stopping))
    if settings.prune_after_days is not None:
        prune = functools.partial(_prune, context, stopping, settings.prune_after_days * DAY_S)
        loops.append(_repeat(prune, 0.0, PRUNE_EVERY_S, stopping))
    loops += [_repeat(work, 0.0, settings.poll_s, stopping) for work in polled]
    return [asyncio.create_task(loop) for loop in loops]


def _reap(context: Context) -> None:
    """End lost and overdue attempts, and queue the next block of experiments whose server stopped before it did so."""
    requeued = lifecycle.reap(context.database, context.settings)
    if context.ended() or requeued:
        context.waiting.changed()


def _calibrate(context: Context) -> None:
    """Queue the calibrations that are due."""
    if calibrating.look(context.database, context.settings):
        context.waiting.changed()


async def _prune(context: Context, stopping: asyncio.Event, older_than_s: float) -> None:
    """Delete old runs."""
    request, more = PruneRequest(older_than_s=older_than_s), True
    while more and not stopping.is_set():
        report = await to_thread.run_sync(pruning.prune, context.database, context.store, request)
        more = report.more
        if report.runs:
            log.info("deleted %s that ended long ago", counted(report.runs, "run"))


async def _look_at_alerts(context: Context, reading: Reading) -> None:
    """Queue confirmations of slowdowns."""
    if await reading.alerts.look():
        context.waiting.changed()


async def _decide_tunings(context: Context, tunings: Tunings) -> None:
    """Queue the next blocks of tunings."""
    if await tunings.look():
        context.waiting.changed()


def _watch_queue(context: Context) -> Callable[[], Awaitable[None]]:
    """Wake waiting workers when another server on this database queued runs."""
    seen: float | None = None

    async def watch() -> None:
        nonlocal seen
        latest = await context.control.run(latest_queued_at, context.database)
        if latest is not None and latest != seen:
            context.waiting.wake()
        seen = latest

    return watch


async def _repeat(
    work: Callable[[], Awaitable[None]], first_after_s: float, every_s: float, stopping: asyncio.Event
) -> None:
    """Repeat the work until `stopping`; log exceptions and continue."""
    pause_s = first_after_s
    while not await _is_set_within(stopping, pause_s):
        try:
            await work()
        except Exception as error:
            logs.repeated(log, "background work", error)
        pause_s = every_s


def log_end(task: asyncio.Task[None]) -> None:
    """Log the defect that ended a loop; without notifications, polling finds queued runs."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a loop of this server has ended", exc_info=error)


async def _is_set_within(event: asyncio.Event, wait_s: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), wait_s)
    return event.is_set()
