from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpt2core.process.child import GRACE_S
from gpt2core.spec.errors import ConfigError
from taskloom.worker import slurm
from taskloom.worker.settings import parse

CONFIG = "KillOnBadExit           = 0\nKillWait                = 6 sec\n"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands first in PATH, for Slurm's commands."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    program(tmp_path, "scontrol", f"cat <<'end'\n{CONFIG}end")
    return tmp_path


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_outside_of_slurm_there_is_no_job() -> None:
    assert slurm.job({}) is None


def test_the_variable_of_newer_versions_says_when_the_job_ends(commands: Path) -> None:
    program(commands, "squeue", "echo squeue must not be asked >&2; exit 1")
    assert slurm.job({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1795334187"}) == slurm.SlurmJob(
        "7", 1795334187.0, None, 6.0
    )
    with pytest.raises(ConfigError, match="SLURM_JOB_END_TIME"):
        slurm.job({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "tomorrow"})


def test_else_the_queue_says_it(commands: Path) -> None:
    program(commands, "squeue", 'test "$*" = "-h -j 7 -o %e" && test "$SLURM_TIME_FORMAT" = %s && echo 1795334187')
    assert slurm.job({"SLURM_JOB_ID": "7"}) == slurm.SlurmJob("7", 1795334187.0, None, 6.0)


@pytest.mark.parametrize("said", ["NONE", "UNLIMITED", "N/A"])
def test_a_job_without_a_limit_has_no_end(commands: Path, said: str) -> None:
    program(commands, "squeue", f"echo {said}")
    assert slurm.job({"SLURM_JOB_ID": "7"}) == slurm.SlurmJob("7", None, None, 6.0)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 2026-11-22T07:56:27", "'2026-11-22T07:56:27'"),
        ("echo slurm_load_jobs error: Unable to contact slurm controller >&2; exit 1", "Unable to contact"),
        ("exit 3", "exit code 3"),
        ("exec sleep 60", "within 0.2 s"),
    ],
)
def test_an_end_that_nobody_says_is_unknown(
    commands: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr(slurm, "ANSWER_S", 0.2)
    program(commands, "squeue", script)
    job = slurm.job({"SLURM_JOB_ID": "7"})
    assert job is not None
    assert job.ends_at is None
    assert why in (job.unknown or "")


def test_without_slurms_commands_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    job = slurm.job({"SLURM_JOB_ID": "7"})
    assert job == slurm.SlurmJob("7", None, "squeue: No such file or directory", None)


def test_a_short_kill_wait_shortens_the_grace(commands: Path) -> None:
    program(commands, "squeue", "echo NONE")
    assert parse([], {}).grace_s == GRACE_S
    assert parse([], {"SLURM_JOB_ID": "7"}).grace_s == 2.0
    assert parse(["--grace", "4s"], {"SLURM_JOB_ID": "7"}).grace_s == 4.0
    with pytest.raises(ConfigError, match="grace"):
        parse(["--grace", "soon"], {})
