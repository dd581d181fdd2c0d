"""The Slurm job of a worker: its end, its share of the node, and the time between SIGTERM and SIGKILL."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from gpt2core.spec.errors import ConfigError
from taskloom.contract.logs import plain

ANSWER_S = 10.0  # a slower controller is treated as unreachable
NO_LIMIT = ("NONE", "UNLIMITED", "N/A")
END = re.compile("[0-9]{1,15}")  # seconds since 1970
CUSTOMISING = ("SQUEUE_", "SCONTROL_")  # options of the user's own calls
KILL_WAIT = re.compile(r"^KillWait\s*=\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class SlurmJob:
    """A worker's Slurm job.

    ends_at: seconds since 1970; None if the job has no limit or its end is unknown. unknown: the reason why its end is
    unknown. kill_wait_s: seconds from SIGTERM to SIGKILL. cpus, memory_bytes: the job's share of this node. nodes: on
    which this process may start ranks. None: Slurm does not provide the number.
    """

    job_id: str
    ends_at: float | None
    unknown: str | None = None
    kill_wait_s: float | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    nodes: int = 1


def job(environment: Mapping[str, str]) -> SlurmJob | None:
    """The job this process runs in, or None outside of Slurm.

    Only Slurm 23.02 and later set SLURM_JOB_END_TIME; `squeue` gives the end in every version.
    Raises ConfigError if the variable is not a time.
    """
    job_id = environment.get("SLURM_JOB_ID")
    given = environment.get("SLURM_JOB_END_TIME")
    if not job_id and not given:
        return None
    ends_at, unknown = None, None
    if given:
        if not END.fullmatch(given):
            raise ConfigError("SLURM_JOB_END_TIME", given, "seconds since 1970")
        ends_at = float(given)
    elif job_id:
        ends_at, unknown = _end_from_queue(job_id, environment)
    kill_wait_s = _kill_wait_s(environment) if job_id else None
    cpus = _number(environment, "SLURM_CPUS_ON_NODE")
    memory_bytes = _memory_bytes(environment, cpus)
    return SlurmJob(job_id or "", ends_at, unknown, kill_wait_s, cpus, memory_bytes, _nodes(environment))


def _number(environment: Mapping[str, str], name: str) -> int | None:
    """A positive number, or None; 0 stands for "all" or "not limited"."""
    text = environment.get(name, "")
    return int(text) or None if re.fullmatch("[0-9]{1,15}", text) else None


def _nodes(environment: Mapping[str, str]) -> int:
    """Nodes of the job; 1 in a step, since every node of a step may have a worker."""
    if environment.get("SLURM_STEP_ID"):
        return 1
    return _number(environment, "SLURM_JOB_NUM_NODES") or _number(environment, "SLURM_NNODES") or 1


def _memory_bytes(environment: Mapping[str, str], cpus: int | None) -> int | None:
    per_node, per_cpu = _number(environment, "SLURM_MEM_PER_NODE"), _number(environment, "SLURM_MEM_PER_CPU")
    megabytes = per_node or (per_cpu * cpus if per_cpu and cpus else None)
    return None if megabytes is None else megabytes << 20


def _end_from_queue(job_id: str, environment: Mapping[str, str]) -> tuple[float | None, str | None]:
    # %s: seconds since 1970, in any time zone
    text, problem = _asked(["squeue", "-h", "-j", job_id, "-o", "%e"], {**environment, "SLURM_TIME_FORMAT": "%s"})
    if problem is not None:
        return None, problem
    # A site's messages may surround the answer.
    said = [line for line in map(str.strip, text.splitlines()) if line in NO_LIMIT or END.fullmatch(line)]
    if not said:
        return None, f"squeue says that job {job_id} ends at {text[:200]!r}"
    return None if said[-1] in NO_LIMIT else float(said[-1]), None


def _kill_wait_s(environment: Mapping[str, str]) -> float | None:
    text, problem = _asked(["scontrol", "show", "config"], environment)
    found = None if problem else KILL_WAIT.search(text)
    return float(found.group(1)) if found else None


def _asked(command: list[str], environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Run a Slurm command. Returns its output and None, or "" and the reason of its failure."""
    given = {**os.environ, **environment}
    try:
        done = subprocess.run(
            command, env={name: value for name, value in given.items() if not name.startswith(CUSTOMISING)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=ANSWER_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "", f"{command[0]} did not answer within {ANSWER_S:g} s"
    except OSError as error:
        return "", f"{command[0]}: {error.strerror}"
    if done.returncode != 0:
        return "", f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}"
    return plain(done.stdout).strip(), None
