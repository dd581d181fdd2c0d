"""How many of this machine's cores other processes keep busy. Standard library only."""

from __future__ import annotations

import os
import time

from gpt2core.node import host

LOOK_S = 0.5  # the kernel counts in ticks of 10 ms
MOST_BUSY_CORES = 0.25  # on the whole machine; peaks measured under a higher load are too low to keep


class Others:
    """Measures, from now on, how many cores other processes keep busy."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._before_s = _used_s()

    def busy_cores(self) -> float:
        """Mean number of busy cores since then, over at least LOOK_S; 0 if the system does not report it."""
        time.sleep(max(0.0, self._begun + LOOK_S - time.monotonic()))
        after_s = _used_s()
        if self._before_s is None or after_s is None:
            return 0.0
        return max(0.0, (after_s - self._before_s) / (time.monotonic() - self._begun))


def _used_s() -> float | None:
    """Core seconds used by other processes."""
    ticks = host.cpu_times_ticks()  # of all cores: the numbers of those online may have gaps
    return sum(ticks[name] for name in host.BUSY) / os.sysconf("SC_CLK_TCK") - time.process_time() if ticks else None
