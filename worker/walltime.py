"""Remaining lifetime of this worker, from its option or from Slurm, which kills it at the end of its job."""

from __future__ import annotations

import re
import time

from gpt2core.spec.errors import ConfigError
from taskloom.worker.slurm import SlurmJob

RESERVE_S = 30.0  # end of the walltime, reserved to stop a trainer and deliver its result
ACCEPTED = "a time such as 2h, 90m, 1h30m, 3600s, or in Slurm's form: 1-12:00:00, 02:00:00; at most ten years"
SLACK_S = 5.0  # part of the reserve for the answer to a claim
UNITS = re.compile(r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?")
SLURM = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9}):([0-9]{1,9}):([0-9]{1,9})")
MOST_S = 10 * 366 * 86400  # timers of Python and of servers end somewhere
SECONDS = (86400, 3600, 60, 1)


def parse_s(text: str, field: str = "walltime") -> float:
    """Seconds of a time in one of the forms of ACCEPTED. Raises ConfigError, which names the field."""
    found = UNITS.fullmatch(text) or SLURM.fullmatch(text)
    total_s = sum(int(part or 0) * unit for part, unit in zip(found.groups(), SECONDS, strict=True)) if found else 0
    if not 0 < total_s <= MOST_S:
        raise ConfigError(field, text, ACCEPTED)
    return float(total_s)


class Walltime:
    """Remaining walltime, counted down from its creation. limit_s: seconds; None: no limit."""

    def __init__(self, limit_s: float | None) -> None:
        self._ends = None if limit_s is None else time.monotonic() + limit_s - RESERVE_S

    @classmethod
    def of(cls, text: str | None, job: SlurmJob | None) -> Walltime:
        """The earlier of the requested end and the end of the Slurm job. Raises ConfigError."""
        limits_s = [] if text is None else [parse_s(text)]
        if job is not None and job.ends_at is not None:
            limits_s.append(job.ends_at - time.time())
        return cls(min(limits_s, default=None))

    def remaining_s(self) -> float | None:
        """Seconds that remain for runs; 0 once the reserve has begun, None without a limit."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    def fits(self, duration_s: float) -> bool:
        """Whether a claimed run can end in time."""
        remaining_s = self.remaining_s()
        return remaining_s is None or duration_s <= remaining_s + SLACK_S
