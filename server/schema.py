"""Every table in one place, for migrations and for the test that both agree."""

from __future__ import annotations

from sqlalchemy import MetaData

from server.artifacts import models as artifacts
from server.attempts import models as attempts
from server.db import Base
from server.experiments import models as experiments
from server.keys import models as keys
from server.runs import models as runs
from server.workers import models as workers

__all__ = ["METADATA", "artifacts", "attempts", "experiments", "keys", "runs", "workers"]

METADATA: MetaData = Base.metadata
