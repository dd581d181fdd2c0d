from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpt2core.node import host
from gpt2core.process.child import GRACE_S
from gpt2core.spec.errors import ConfigError
from taskloom.worker import node, slurm
from taskloom.worker.settings import parse

CONFIG = "KillOnBadExit           = 0\nKillWait                = 6 sec\n"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first folder in PATH, for Slurm's commands."""
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


def test_an_end_that_a_front_end_colours(commands: Path) -> None:
    program(commands, "squeue", r"printf '\033[1;32m\033[K1795334187\033[m\033[K\n'")
    job = slurm.job({"SLURM_JOB_ID": "7"})
    assert job is not None
    assert job.ends_at == 1795334187.0


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


@pytest.mark.parametrize(
    ("said", "cpus", "memory_bytes"),
    [
        ({}, None, None),
        ({"SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_NODE": "2048"}, 4, 2 << 30),
        ({"SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_CPU": "512"}, 4, 2 << 30),
        ({"SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_NODE": "0"}, 4, None),  # 0: all of it
        ({"SLURM_MEM_PER_CPU": "512"}, None, None),
    ],
)
def test_a_jobs_share_of_its_node(
    commands: Path, said: dict[str, str], cpus: int | None, memory_bytes: int | None
) -> None:
    program(commands, "squeue", "echo NONE")
    job = slurm.job({"SLURM_JOB_ID": "7", **said})
    assert job is not None
    assert (job.cpus, job.memory_bytes) == (cpus, memory_bytes)


@pytest.mark.parametrize(
    ("said", "nodes"),
    [
        ({}, 1),
        ({"SLURM_JOB_NUM_NODES": "4"}, 4),
        ({"SLURM_NNODES": "3"}, 3),
        ({"SLURM_JOB_NUM_NODES": "4", "SLURM_STEP_ID": "0"}, 1),  # every node of the step may have a worker
    ],
)
def test_a_worker_has_the_nodes_of_its_job(commands: Path, said: dict[str, str], nodes: int) -> None:
    program(commands, "squeue", "echo NONE")
    assert parse([], {"SLURM_JOB_ID": "7", **said}).nodes == nodes
    assert parse(["--nodes", "2"], {"SLURM_JOB_ID": "7", **said}).nodes == 2


def test_a_worker_registers_its_jobs_memory(commands: Path) -> None:
    program(commands, "squeue", "echo NONE")
    for megabytes, expected in ((64, 64 << 20), (1 << 40, host.usable_memory_bytes())):
        settings = parse([], {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": str(megabytes)})
        assert node.registration(settings, node.new_life(), "spool").memory_bytes == expected


def test_a_worker_takes_no_more_cores_than_its_job_has(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(commands, "squeue", "echo NONE")
    monkeypatch.setattr("taskloom.worker.settings.allowed_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr("gpt2core.node.host.smt_siblings", lambda core: f"{core % 2},{core % 2 + 2}")  # 2 physical
    one, two = ({"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": count} for count in ("1", "2"))
    with pytest.raises(ConfigError, match="at most the number of cores of Slurm job 7, 1; Slurm"):
        parse([], one)
    assert parse([], two).cores == (0, 1, 2, 3)  # Slurm counts cores there, and binds whole ones
    assert parse(["--cores", "1"], one).cores == (1,)


@pytest.mark.parametrize("banner", ["Welcome to the Example Supercomputer", r"Gr\374\337e", "2 jobs"])
def test_a_sites_messages_may_surround_the_end(commands: Path, banner: str) -> None:
    program(commands, "squeue", f"printf '{banner}\\n'; echo 1795334187; printf '{banner}\\n'")
    assert slurm.job({"SLURM_JOB_ID": "7"}) == slurm.SlurmJob("7", 1795334187.0, None, 6.0)


def test_the_users_own_options_are_left_out(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT2", "jobid")
    program(commands, "squeue", 'test -z "$SQUEUE_FORMAT2" && echo 1795334187')
    assert slurm.job({"SLURM_JOB_ID": "7"}) == slurm.SlurmJob("7", 1795334187.0, None, 6.0)
