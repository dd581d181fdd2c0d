"""Paths that begin with ~: service managers, containers and `--option=~/folder` pass them on as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpt2core.spec.settings import NoHome, cache_folder
from taskloom.provisioner.preflight import default_state
from taskloom.server.errors import StartRefused
from taskloom.server.settings import Settings
from taskloom.worker.settings import parse

VARIABLES = {"TASKLOOM_CACHE_DIR": "~/cache", "TASKLOOM_ARTIFACT_ROOT": "~/artifacts", "TASKLOOM_ANSWER_ROOT": "~",
             "TASKLOOM_OIDC_CLIENT_SECRET_FILE": "~/secret", "XDG_STATE_HOME": "~/state"}  # fmt: skip


def test_they_lead_to_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == tmp_path / "cache"
    server = Settings.read("sqlite:///a.db")
    assert (server.artifact_folder, server.answer_folder) == (tmp_path / "artifacts", tmp_path)
    assert server.oidc_client_secret_file == tmp_path / "secret"
    assert default_state("a").parent == tmp_path / "state/taskloom"
    assert parse(["--worker-id", "w"], {}).spool == tmp_path / "state/taskloom/spool/w"
    worker = parse(["--spool=~/spool"], {"TASKLOOM_DATA_ROOT": "~"})
    assert (worker.spool, worker.data_root) == (tmp_path / "spool", tmp_path.resolve())


def test_a_home_that_nobody_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, read in (
        ("TASKLOOM_CACHE_DIR", cache_folder),
        ("TASKLOOM_SPOOL", lambda: parse(["--spool=~nobody-has-this-name/x"], {})),
    ):  # fmt: skip
        with monkeypatch.context() as context:
            context.setenv(name, "~nobody-has-this-name/x")
            with pytest.raises(NoHome, match=f"no home folder: set .*{name}"):
                read()
    monkeypatch.setenv("TASKLOOM_ARTIFACT_ROOT", "~nobody-has-this-name/x")
    with pytest.raises(StartRefused, match=r"TASKLOOM_ARTIFACT_ROOT = .*: no home folder: set a whole path"):
        Settings.read()


def test_a_folder_of_state_does_not_depend_on_where_a_process_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert default_state("a").parent == tmp_path / ".local/state/taskloom"
    assert parse(["--worker-id", "w"], {}).spool == tmp_path / ".local/state/taskloom/spool/w"
    monkeypatch.setenv("HOME", "home")
    with pytest.raises(NoHome, match="no home folder: set --state"):
        default_state("a")
