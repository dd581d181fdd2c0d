"""Runs Slurm's commands with an argument list and a time limit, never through a shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from taskloom.contract.logs import plain
from taskloom.provisioner.pools import Pool, Pools

ANSWER_S = 30.0
# Options of the user's own calls, such as SQUEUE_STATES, and facts of a job from which this process was started: sbatch
# would pass them on, and srun refuses two kinds of memory.
CUSTOMISING = ("SQUEUE_", "SBATCH_", "SCANCEL_", "SLURM_")
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_SACK_KEY")  # which Slurm to ask
HEADER = ["JOBID", "NAME", "STATE", "REASON"]
JOB_ID = r"^[ \t]*(?:Submitted batch job )?(\d+)(?:;\S+| on cluster \S+)?[ \t]*$"  # front ends may drop --parsable
COLUMNS = "%i|%j|%T|%r"  # id, name, state, reason; names of the provisioner's jobs contain no "|"


class SlurmFailed(Exception):
    """Slurm refused a command, which had no effect, or the command cannot be run. The message says why."""


class SlurmUnknown(Exception):
    """A command timed out, or its output is not as expected. It may have taken effect."""


@dataclass(frozen=True)
class QueuedJob:
    """A job as `squeue` lists it."""

    job_id: str
    name: str
    state: str
    reason: str


def queue() -> list[QueuedJob]:
    """This user's jobs that have not ended. Raises SlurmFailed or SlurmUnknown."""
    printed = _run(["squeue", "--user", str(os.getuid()), "--format", COLUMNS])
    jobs, others, headed = [], [], False
    for line in filter(None, map(str.strip, printed.splitlines())):
        parts = list(map(str.strip, line.split("|", 3)))
        if len(parts) == 4 and re.match(r"\d", parts[0]):
            jobs.append(QueuedJob(*parts))
        elif parts == HEADER:
            headed = True
        else:
            others.append(line)
    # Lines without columns may be a site's messages, but only beside a list: else it is unknown which jobs there are.
    wrong = [line for line in others if "|" in line or not (headed or jobs)]
    if wrong:
        raise SlurmUnknown(f"squeue printed {wrong[0][:200]!r}")
    return jobs


def submit(command: Sequence[str], script: str, **variables: str) -> str:
    """Submit a job with further variables, and return its id. Raises SlurmFailed if Slurm refused it, SlurmUnknown if
    it may exist."""
    printed = _run(command, script, **variables).strip()
    found = re.findall(JOB_ID, printed, re.MULTILINE)  # a site's messages may surround it
    if not found:
        raise SlurmUnknown(f"sbatch printed {printed[:200]!r}")
    return str(found[-1])


def cancel(job_id: str) -> None:
    """Cancel a job that still waits. Raises SlurmFailed or SlurmUnknown."""
    _run(["scancel", "--state=PENDING", job_id])


def log_path(pools: Pools, job_name: str) -> Path:
    """Path of a job's log."""
    return pools.log_folder.expanduser().absolute() / f"{job_name}.log"


def submission(pools: Pools, pool: Pool, job_name: str) -> tuple[list[str], str]:
    """Argument list and script of a job that starts one worker."""
    minutes = -(-int(pool.walltime.total_seconds()) // 60)
    command = [
        "sbatch", "--parsable", f"--job-name={job_name}", f"--nodes={pool.nodes}", f"--ntasks={pool.nodes}",
        f"--cpus-per-task={pool.cores}", f"--mem={-(-int(pool.memory) // (1 << 20))}M", f"--time={minutes}",
        # The provisioner replaces a lost job by a new one, while Slurm lets a requeued job wait for two minutes.
        "--no-requeue", "--open-mode=append", f"--output={log_path(pools, job_name)}", "--signal=B:TERM@60",
    ]  # fmt: skip
    for option in ("partition", "constraint", "account", "qos"):
        value = getattr(pool, option)
        if value is not None:
            command.append(f"--{option}={value}")
    if pool.exclusive:
        command.append("--exclusive")
    return [*command, *pool.sbatch_options], _script(pools, pool)


def _script(pools: Pools, pool: Pool) -> str:
    # The prelude is foreign code that runs as in a plain job script, and may leave traps of its own: nothing is
    # set for the lines after it either. The empty line ends a prelude that ends with a backslash.
    lines = ["#!/bin/bash", *([pool.prelude, ""] if pool.prelude else [])]
    if pools.token_file is not None:
        # Slurm stores arguments and scripts, so neither may contain the key.
        lines.append(f"export TASKLOOM_TOKEN_FILE={shlex.quote(str(_absolute(pools.token_file)))}")
    # Without it the worker would ask another server.
    lines += [f': "${{{name}:?is missing: sbatch must pass it on}}"' for name in pools.secrets]
    server = [] if pools.secrets else ["--server", pools.server]
    arguments = [
        "taskloom", "worker", *server, "--drain", "release",
        "--idle-exit", f"{int(pool.idle_exit.total_seconds())}s", "--peaks", pool.peaks,
    ]  # fmt: skip
    for key, value in pool.worker_labels.items():
        arguments += ["--label", f"{key}={value}"]
    lines.append(f'exec {shlex.join(arguments)} --label "slurm_job=$SLURM_JOB_ID"')
    return "\n".join(lines) + "\n"


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


def _run(command: Sequence[str], given: str = "", **variables: str) -> str:
    passed = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(CUSTOMISING)}
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, errors="replace", timeout=ANSWER_S, check=False,
            env=passed | variables,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise SlurmUnknown(f"{command[0]} did not answer within {ANSWER_S:g} s") from error
    except OSError as error:
        raise SlurmFailed(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise SlurmFailed(f"{command[0]}: {' '.join(done.stderr.split()) or f'exit code {done.returncode}'}"[:500])
    return plain(done.stdout)
