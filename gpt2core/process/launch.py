"""How to start the trainer as a child process, and the events that it prints. Standard library only: those who start a
trainer must not load Numba or a BLAS themselves.

The child is `python -m gpt2core --result FILE`: the run's settings (TrainConfig as JSON) on its standard input, one
JSON event a line on its standard output, notes for people on its standard error. Events, by `event`:

    started    pid, schema
    compiling  done, total, kernel            only when something has to be compiled
    measuring  done, total, product           only while a node's table of products is completed
    planned    memory_bytes, tasks, edges, batch_slice, token_slice, cores
    step       step (1-based), steps, loss, step_s, tokens_per_s; accuracy of a network with classes
    evaluation step (1-based), loss, accuracy; with evaluate_every
    warning    message
    error      slug, detail, exit_code, and the error's own fields
    result     path, sha256                   the last one of a run that succeeded

Exit codes: 0 done, 1 the work failed, 2 bad input, 130 cancelled by SIGTERM or SIGINT at a step's end.

If standard output takes no more events, the run ends at the end of its step: without a result, with exit code 1, and
with the reason on standard error.

If the environment names a LIFELINE, a pipe without writes, the child's process group is killed when it closes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpt2core.process.ranks import SURROUNDING, launcher, over_nodes
from gpt2core.spec import printed, settings

PROTOCOL = 1
EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_CANCELLED = 0, 1, 2, 130
LIFELINE = "TASKLOOM_LIFELINE_FD"

# Every BLAS call is made by a thread of the team; a library's own threads would compete for the cores.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MKL_THREADING_LAYER": "SEQUENTIAL",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}

# They choose other kernels of a library, which results would not name, or integers of another size, with which every
# product is wrong (MKL_INTERFACE_LAYER).
OTHER_KERNELS = (
    "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS", "MKL_INTERFACE_LAYER", "MKL_VERBOSE",
    "OPENBLAS_CORETYPE", "OPENBLAS_VERBOSE",
)  # fmt: skip


def command(
    result: Path, plan_only: bool = False, graph: Path | None = None, prove: bool = False, ranks: int = 1
) -> list[str]:
    """The child's argument list, without settings, which go to standard input. Of several ranks it is the launcher's,
    which passes standard input on to rank 0. Raises CoreError if this machine cannot start them.
    """
    if ranks > 1 and not plan_only:
        return of_ranks(command(result, graph=graph, prove=prove), ranks)
    extra = [option for option, given in (("--plan", plan_only), ("--prove", prove)) if given]
    if graph is not None:
        extra += ["--graph", str(graph)]
    return [sys.executable, "-P", "-m", "gpt2core", "--result", str(result), *extra]


def of_ranks(plain: list[str], ranks: int) -> list[str]:
    """The argument list that starts a child as several ranks. Raises CoreError if this machine cannot start them."""
    return [*launcher(ranks), *plain, "--ranks", str(ranks)]


def of_nodes(plain: list[str], command: Sequence[str], nodes: int, ranks: int, threads: int) -> list[str]:
    """The argument list that starts a child as several ranks on several nodes, by the operator's command. Raises
    ConfigError if the command is not accepted."""
    several = ["--ranks", str(ranks), "--nodes", str(nodes)]
    return [*over_nodes(command, nodes, ranks, threads), *plain, *several]


def metg_command(result: Path) -> list[str]:
    """The argument list of gpt2core.taskbench.metg."""
    return [sys.executable, "-P", "-m", "gpt2core.taskbench.metg", "--result", str(result)]


def loop_command(scheduler: str, runtime: str, kernels: Sequence[str] = ()) -> list[str]:
    """The argument list of gpt2core.taskbench.loop. kernels: each as MODULE:NAME:DTYPE,..."""
    return [sys.executable, "-P", "-m", "gpt2core.taskbench.loop", "--runtime", runtime, scheduler, *kernels]


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The child's environment: the base one, in which every library with its own threads is limited to one, without
    settings of other ranks and of a library's kernels."""
    given = os.environ if base is None else base
    kept = {
        name: value for name, value in given.items()
        if (value or not settings.unset_if_empty(name)) and not name.startswith(SURROUNDING)
        and name not in OTHER_KERNELS
    }  # fmt: skip
    return {**kept, **ONE_THREAD, "PYTHONUNBUFFERED": "1"}


def parse_event(line: str) -> dict[str, Any] | None:
    """The event on a line of the child's output, or None if the line has none."""
    try:
        event = printed.document(line, '{"event"')
    except (ValueError, RecursionError):
        return None
    return dict(event) if isinstance(event["event"], str) else None


def allowed_cores() -> Sequence[int]:
    """Cores this process may run on, ascending."""
    return sorted(os.sched_getaffinity(0))
