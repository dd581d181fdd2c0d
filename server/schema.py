"""Every table in one place, for migrations and for the test that both agree."""

from __future__ import annotations

from sqlalchemy import MetaData

from taskloom.server.access.keys import models as keys
from taskloom.server.db import Base
from taskloom.server.queue.artifacts import models as artifacts
from taskloom.server.queue.attempts import models as attempts
from taskloom.server.queue.demand import models as demand
from taskloom.server.queue.experiments import models as experiments
from taskloom.server.queue.runs import models as runs
from taskloom.server.queue.workers import models as workers
from taskloom.server.read.analysis import models as analysis
from taskloom.server.read.tuning import models as tunings
from taskloom.server.webhooks import models as webhooks

__all__ = [
    "METADATA",
    "analysis",
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
