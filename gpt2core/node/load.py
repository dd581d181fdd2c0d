"""How many of this machine's cores other processes keep busy. Standard library only."""

from __future__ import annotations

import os
import time

from gpt2core.node import host

LOOK_S = 0.5  # the kernel counts in ticks of 10 ms
MOST_BUSY_CORES = 0.25  # of the whole machine: what is measured beside more is too low to be kept for good


class Others:
    """What other processes use of the machine's cores from now on."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._before_s = _used_s()

    def busy_cores(self) -> float:
        """Cores kept busy since, as a mean over LOOK_S at least; 0 where the system does not say."""
        time.sleep(max(0.0, self._begun + LOOK_S - time.monotonic()))
        after_s = _used_s()
        if self._before_s is None or after_s is None:
            return 0.0
        return max(0.0, (after_s - self._before_s) / (time.monotonic() - self._begun))


def _used_s() -> float | None:
    """Seconds of all cores that were used by others than this process."""
    busy_s = host.core_times_s(range(os.cpu_count() or 1))[0]
    return None if busy_s is None else busy_s - time.process_time()
