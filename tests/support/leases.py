"""Leases of no server."""

from __future__ import annotations

from datetime import UTC, datetime

from taskloom.contract.attempts import Lease


def lease(attempt_id: int = 1, **spec: object) -> Lease:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Lease(
        attempt_id=attempt_id, attempt_no=1, run_id=7, experiment_id=1, spec={"steps": 12, **spec}, lease_s=60,
        heartbeat_s=15, expires_at=at, deadline_at=at, deadline_s=3600,
    )  # fmt: skip
