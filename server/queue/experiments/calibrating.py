"""Calibrations that the server queues itself: one A/A experiment for each node in each interval."""

from __future__ import annotations

import logging

from sqlalchemy import select

from taskloom.contract.experiments import ExperimentRequest
from taskloom.server.db import Database, now
from taskloom.server.errors import InvalidRequest, QueueFull
from taskloom.server.queue.experiments.submission import submit
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.settings import Settings

log = logging.getLogger("taskloom.server")
OWNER = "calibrations"  # owner of the idempotency keys, so that several servers queue only one in an interval
LABEL = "node"  # of the workers that are calibrated
HOUR_S = 3600.0
REPETITIONS = 20


def look(database: Database, settings: Settings) -> bool:
    """Queue the calibrations of this interval that are not yet queued, of the nodes whose workers are present and have
    a label `node`; return whether there were any."""
    if settings.calibrate_every_h is None:
        return False
    with database.read() as session:
        at = now(session)
        present = select(Worker).where(Worker.left_at.is_(None), Worker.seen_at > at - settings.lease_s)
        nodes = {worker.labels[LABEL] for worker in session.scalars(present) if LABEL in worker.labels}
    interval = int(at / (settings.calibrate_every_h * HOUR_S))
    queued = False
    for node in sorted(nodes):
        body = {"name": "A/A", "calibrates": True, "repetitions": REPETITIONS, "requires": {"labels": {LABEL: node}}}
        request = ExperimentRequest.model_validate({"base": {"model": "tiny"}, **body})
        try:
            _, new = submit(database, settings, request, OWNER, f"calibrate {node} {interval}")
        except (InvalidRequest, QueueFull) as error:
            log.warning("no calibration of node %s was queued: %s", node, error)
            continue
        queued = queued or new
    return queued
