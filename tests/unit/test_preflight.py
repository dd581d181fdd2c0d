"""The list of checks before a process starts its work, and what `taskloom doctor` prints of it."""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path

import pytest

from gpt2core.spec import preflight, settings
from gpt2core.spec.errors import ConfigError, FileError, InputError
from gpt2core.spec.preflight import TRAINING, Check, examine, require
from taskloom.provisioner.pools import Pools
from taskloom.provisioner.preflight import SLURM, checks, checks_of


def refuses() -> str:
    raise ConfigError("NAME", "x", "another value")


def test_the_first_failure_ends_the_start_and_each_is_shown_once() -> None:
    checks = (Check("a", lambda: "fine"), Check("b", refuses), Check("c", refuses))
    with pytest.raises(ConfigError, match="NAME = 'x' is not accepted: another value"):
        require(checks)
    output = io.StringIO()
    preflight.tell(checks, output)
    found = preflight.read(output.getvalue())
    assert found == examine(checks)
    assert [(each.name, each.advice) for each in found] == [
        ("a", ""), ("b", "NAME = 'x' is not accepted: another value")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TASKLOOM_CLOCK", "sundial"), ("TASKLOOM_STALL_S", "nan"), ("TASKLOOM_STALL_S", "-1"),
        ("TASKLOOM_PROVE", "maybe"), ("TASKLOOM_STRESS", "inf"), ("TASKLOOM_STRESS", "1.5"),
        ("TASKLOOM_STRESS", str(1 << 63)), ("NUMBA_OPT", "fast"), ("NUMBA_BOUNDSCHECK", "yes"),
        ("NUMBA_DEBUGINFO", "true"), ("NUMBA_NUM_THREADS", "all"), ("TASKLOOM_CACHE_DIR", "/proc/1/x"),
        ("NUMBA_CACHE_DIR", "/etc/passwd"),
    ],
)  # fmt: skip
def test_a_variable_that_the_trainer_cannot_use_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as raised:
        require(TRAINING)
    assert (raised.value.field, raised.value.value) == (variable, value)


def test_empty_variables_are_not_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*settings.TRAINERS, "NUMBA_OPT", "NUMBA_BOUNDSCHECK", "NUMBA_CPU_NAME", "NUMBA_CACHE_DIR"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path))
    assert [each.advice for each in examine(TRAINING)] == [""] * len(TRAINING)
    assert settings.numba_settings() == []
    assert settings.numba_processor() == (None, None)


def test_numbas_own_file_of_settings_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    settings.NUMBA_FILE.write_text("boundscheck: 1\n")
    with pytest.raises(FileError, match=r"\.numba_config\.yaml: Numba would take settings from it"):
        require(TRAINING)


def test_no_temporary_folder_is_an_error_that_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/1"])
    with pytest.raises(ConfigError, match="TMPDIR"):
        settings.temporary_folder()


def test_a_path_without_slurms_commands_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="it lacks sbatch"):
        SLURM.look()
    for name in ("sbatch", "squeue", "scancel"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert SLURM.look().count(str(tmp_path)) == 3


def test_findings_are_json_with_three_values() -> None:
    output = io.StringIO()
    preflight.tell([Check("folder", lambda: os.fsdecode(b"/\xff"))], output)
    assert json.loads(output.getvalue()) == [{"name": "folder", "found": "/\udcff", "advice": ""}]


@pytest.mark.parametrize("mask", [0o777, 0o200])
def test_a_umask_that_takes_files_from_their_owner_is_named(mask: int) -> None:
    before = os.umask(mask)
    try:
        with pytest.raises(ConfigError, match=r"umask = '0[27][07][07]' is not accepted"):
            require(TRAINING)
    finally:
        assert os.umask(before) == mask


def test_a_provisioner_makes_no_folder_that_it_cannot_open(tmp_path: Path) -> None:
    pools = Pools.model_validate({"pools": [{"name": "a", "cores": 1, "memory": 1, "walltime": 60, "max_jobs": 1}]})
    before = os.umask(0o277)
    try:
        with pytest.raises(ConfigError, match="umask = '0277' is not accepted"):
            require(checks(pools, str(tmp_path / "state" / "a.json")))
    finally:
        os.umask(before)
    assert not (tmp_path / "state").exists()


POOLS = '[pools.a]\ncores = {cores}\nmemory = 1\nwalltime = 60\nmax_jobs = 1\n'


def test_a_pools_file_is_checked_with_all_that_its_provisioner_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "pools.toml"
    text = f'server = "http://127.0.0.1:1"\nlog_folder = "{tmp_path}/logs"\n{POOLS}'
    file.write_text(text.format(cores=1))
    found = {each.name: each for each in examine(checks_of(str(file)))}
    assert found["pools file"].found == f"{file}, with 1 pool"
    assert found["folders of the provisioner"].found == f"{tmp_path}/logs, {tmp_path}/state/taskloom"
    assert "http://127.0.0.1:1" in found["way of the provisioner to its server"].found
    file.write_text(text.format(cores=0))
    (wrong,) = (each for each in examine(checks_of(str(file))) if each.name == "pools file")
    assert wrong.advice == f"{file}: pools.a.cores is 0: Input should be greater than or equal to 1"
    (missing,) = (each for each in examine(checks_of(str(tmp_path / "x"))) if each.name == "pools file")
    assert missing.advice == f"{tmp_path}/x: No such file or directory"


def test_lines_of_preloaded_libraries_before_the_findings_are_skipped() -> None:
    output = io.StringIO()
    preflight.tell([Check("a", lambda: "fine")], output)
    assert [each.found for each in preflight.read("hello {from} a library\n" + output.getvalue())] == ["fine"]


@pytest.mark.parametrize("before", ["", "loading... ", "hello {from} [a] library "])
@pytest.mark.parametrize("after", ["", "saved a profile\n", "[]\n{}\n"])
def test_text_of_libraries_around_the_findings_is_skipped(before: str, after: str) -> None:
    output = io.StringIO()
    preflight.tell([Check("a", lambda: "fine")], output)
    assert [each.found for each in preflight.read(f"{before}{output.getvalue()}{after}")] == ["fine"]
