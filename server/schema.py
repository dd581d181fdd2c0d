"""Every table in one place, for migrations and for the test that both agree."""

from __future__ import annotations

from sqlalchemy import MetaData

from taskloom.server.access.keys import models as keys
from taskloom.server.alerts import models as alerts
from taskloom.server.db import Base
from taskloom.server.queue.tables import artifacts, attempts, demand, experiments, runs, workers
from taskloom.server.read.tuning import models as tunings
from taskloom.server.webhooks import models as webhooks

__all__ = [
    "METADATA",
    "alerts",
    "artifacts",
    "attempts",
    "demand",
    "experiments",
    "keys",
    "runs",
    "tunings",
    "webhooks",
    "workers",
]

METADATA: MetaData = Base.metadata
