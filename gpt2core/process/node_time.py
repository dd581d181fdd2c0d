"""Split of a node's time into consecutive parts without gaps, which add up to all of it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from gpt2core.spec.result import NODE_TIME


class NodeTime:
    """The parts of one run's time, in seconds, up to the instant `until_s` of the monotonic clock."""

    def __init__(self, since_s: float | None = None) -> None:
        """Begin now, or at an instant of the monotonic clock."""
        self.parts: dict[str, float] = {}
        self.until_s = time.monotonic() if since_s is None else since_s

    def went_to(self, part: str, until_s: float | None = None) -> None:
        """Add all time since the last call, or up to an instant, to a part. Raises KeyError for an unknown one."""
        if part not in NODE_TIME:
            raise KeyError(part)
        until_s = time.monotonic() if until_s is None else until_s
        self.parts[part] = self.parts.get(part, 0.0) + until_s - self.until_s
        self.until_s = until_s

    def went_to_parts(self, reported: Mapping[str, float], until_s: float) -> None:
        """Add the parts that a process reported; the rest of the time up to an instant is the end of the process."""
        rest_s = until_s - self.until_s
        for part in NODE_TIME:
            if f"{part}_s" in reported:
                self.parts[part] = self.parts.get(part, 0.0) + reported[f"{part}_s"]
                rest_s -= reported[f"{part}_s"]
        self.parts["finishing"] = max(0.0, self.parts.get("finishing", 0.0) + rest_s)
        self.until_s = until_s

    def to_dict(self) -> dict[str, float]:
        """The parts with the names of a result: `planning_s` and so on."""
        return {f"{part}_s": self.parts[part] for part in NODE_TIME if part in self.parts}


def process_started_s() -> float:
    """When this process started, on the monotonic clock, to a hundredth of a second."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # since the machine started
    return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
