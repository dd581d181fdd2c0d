"""Cells of `control`, the int64 line through which a run's threads agree on when to leave their loops.

The layout is the same for every scheduler, so that a run can be stopped without knowing its scheduler.
"""

from __future__ import annotations

STOP = 0  # set from outside: leave at the end of a step
STEPS_DONE = 1  # written by the scheduler: steps that are complete
LAST = 2  # the number of steps after which all threads leave, once one thread has decided it; 0 until then
FINISHED = 3  # set: all work is done
FIRST = 4  # the step at which this call of the loop began
ASKED = 5  # set from outside a run of several ranks, which agree on STOP
CELLS = 8  # one cache line
