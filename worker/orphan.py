"""A trainer that outlived its worker: recorded on disk, and killed before the next worker claims a run.

A trainer normally ends with its worker (gpt2core.process.child). This module handles a trainer that cannot, because it
is stopped or in a system call that does not return.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import psutil

from gpt2core.spec import files

NAME = "trainer"
ENDED_S = 10.0


def remember(spool: Path, pid: int) -> None:
    """Record the running trainer. A disk error is ignored: the record is only a precaution."""
    with contextlib.suppress(OSError, psutil.NoSuchProcess):
        files.write_text(spool / NAME, json.dumps({"pid": pid, "created_at_s": psutil.Process(pid).create_time()}))


def forget(spool: Path) -> None:
    """Delete the record: there is no trainer."""
    with contextlib.suppress(OSError):
        (spool / NAME).unlink()


def end(spool: Path) -> int | None:
    """Kill the trainer of an earlier worker with this spool if it still runs; return its process id, or None."""
    try:
        noted = json.loads((spool / NAME).read_text())
        process = psutil.Process(int(noted["pid"]))
        ours = process.create_time() == noted["created_at_s"]
    except (OSError, ValueError, KeyError, TypeError, psutil.NoSuchProcess):
        forget(spool)
        return None
    if ours:  # and not another process with the same id
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(ENDED_S)
    forget(spool)
    return process.pid if ours else None
