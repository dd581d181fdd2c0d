"""A process that compiles beside this one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def compiling_beside(cores: Sequence[int], command: Sequence[str]) -> Iterator[None]:
    """Let another process run a `loop_command` on these cores, if there are two. It has ended at the end of the block.
    This process compiles what that one could not when it first uses it.
    """
    if len(set(cores)) < 2:
        yield
        return
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr) as other:
        with contextlib.suppress(OSError):  # it has ended, or a sandbox forbids it
            os.sched_setaffinity(other.pid, cores)
        try:
            yield
        except BaseException:
            other.kill()
            raise
