from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from gpt2core.spec.errors import ConfigError
from taskloom.worker import settings
from taskloom.worker.settings import core_ranges, parse


def test_options_come_before_the_environment_and_that_before_the_defaults() -> None:
    environment = {"TASKLOOM_SERVER": "http://env:1/", "TASKLOOM_DRAIN": "release", "TASKLOOM_LABELS": "a=b,c=d"}
    given = parse(["--server", "http://option:2"], environment)
    assert (given.server, given.drain, given.labels) == ("http://option:2", "release", {"a": "b", "c": "d"})
    assert parse([], environment).server == "http://env:1"
    assert parse(["--label", "x=y"], environment).labels == {"x": "y"}
    assert parse([], {}).server == "http://127.0.0.1:8321"


def test_the_token_comes_from_the_environment_only_and_is_never_shown() -> None:
    settings = parse([], {"TASKLOOM_TOKEN": "s3cret"})
    assert settings.token == "s3cret"
    assert "s3cret" not in repr(settings)
    with pytest.raises(SystemExit):
        parse(["--token", "s3cret"], {})
    with pytest.raises(ConfigError, match="token") as raised:
        parse([], {"TASKLOOM_TOKEN": "sécret"})
    assert "sécret" not in str(raised.value)


def test_a_worker_has_a_name_that_says_where_it_is() -> None:
    settings = parse([], {})
    assert re.fullmatch(r"[\w.-]+:[\d.-]+", settings.worker_id)
    assert settings.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert core_ranges([8, 0, 1, 2, 3, 10]) == "0-3.8.10"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--server", "nonsense"], "server"),
        (["--server", "ftp://a"], "server"),
        (["--server", "http://"], "server"),
        (["--cores", "4000"], "cores"),
        (["--cores", "zero"], "cores"),
        (["--label", "nonsense"], "label"),
        (["--worker-id", "a b"], "worker_id"),
        (["--worker-id", "../.."], "worker_id"),
        (["--worker-id", ".."], "worker_id"),
        (["--data-root", "/nowhere/at/all"], "data_root"),
        (["--wait-s", "26"], "wait_s"),
        (["--nodes", "0"], "nodes"),
        (["--nodes", "4097"], "nodes"),
        (["--nodes", "two"], "nodes"),
        (["--launcher", " "], "launcher"),
        (["--launcher", "srun '"], "launcher"),
        (["--launcher", "mpiexec -n {ranks} -hosts {hosts}"], "launcher"),
        (["--launcher", "mpiexec -n {ranks} {}"], "launcher"),
        (["--launcher", "mpiexec -n {ranks} {nodes.real.x}"], "launcher"),
    ],
)
def test_bad_settings_are_named(arguments: list[str], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(arguments, {})
    assert raised.value.field == field


def test_a_bad_value_in_the_environment_is_named_too() -> None:
    for name, value in (("DRAIN", "explode"), ("WAIT_S", "long"), ("PEAKS", "always")):
        with pytest.raises(ConfigError) as raised:
            parse([], {f"TASKLOOM_{name}": value})
        assert raised.value.field == name.lower()


def test_each_worker_of_a_node_has_its_own_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    spools = {parse(["--worker-id", name], {}).spool for name in ("one", "two")}
    assert len(spools) == 2
    assert all(spool.is_relative_to(tmp_path) for spool in spools)


def test_many_cores_with_gaps_have_a_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a node whose second threads of each core are offline."""
    monkeypatch.setattr(settings, "allowed_cores", lambda: list(range(0, 512, 2)))
    one, again = parse([], {}).worker_id, parse([], {}).worker_id
    assert one == again
    assert len(one) <= settings.MOST_CHARS
    assert "256-cores-" in one
    monkeypatch.setattr(settings, "allowed_cores", lambda: list(range(0, 514, 2)))
    assert parse([], {}).worker_id != one


@pytest.mark.parametrize(("arguments", "field"), [
    (["--label", "a=" + 5000 * "x"], "label"), (["--label", "a=\x1b[31m"], "label"), (["--label", "a=\udcff"], "label"),
    ([f"--label=a{n}=b" for n in range(60)], "label"), (["--idle-exit", "1" + 400 * "0" + "s"], "idle_exit"),
    (["--grace", 5000 * "9" + "s"], "grace"), (["--walltime", "99999999d"], "walltime"),
    (["--nodes", 5000 * "9"], "nodes"), (["--label", "a=b", "--label", "a=c"], "label"),
])  # fmt: skip
def test_what_no_server_or_timer_takes_is_named(arguments: list[str], field: str) -> None:
    with pytest.raises(ConfigError, match=f"^{field} = ") as raised:
        parse(arguments, {})
    assert len(str(raised.value)) < 1000


def test_labels_of_the_environment_may_have_spaces_between() -> None:
    assert parse([], {"TASKLOOM_LABELS": " a=b , c=d,"}).labels == {"a": "b", "c": "d"}
