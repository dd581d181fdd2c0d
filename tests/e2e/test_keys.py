"""Creation and use of keys with the command line and a worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from tests.support.command_line import cli
from tests.support.patience import until
from tests.support.processes import House


def taskloom(home: House, *arguments: str, token: str = "", status: int = 0) -> str:
    """Standard output of the command, or its standard error if the command must fail."""
    done = cli(*arguments, server=home.url, token=token)
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


@pytest.fixture
def admin(home: House) -> str:
    return taskloom(home, "keys", "create", "--scope", "admin", "--name", "operator").strip()


@pytest.mark.slow
def test_keys_are_made_listed_and_revoked(home: House, admin: str) -> None:
    create = ("keys", "create", "--scope", "read", "--group", "vision", "--expires-in", "0.5", "--json")
    made: dict[str, Any] = json.loads(taskloom(home, *create, token=admin))
    assert made["expires_at"] is not None
    listed = json.loads(taskloom(home, "keys", "list", "--json", token=admin))
    shown = [(key["id"], key["scope"], key["name"], key["group"]) for key in listed]
    assert shown == [(1, "admin", "operator", None), (2, "read", "", "vision")]
    table = taskloom(home, "keys", "list", token=admin)
    assert all(word in table for word in ("operator", "group", "vision"))
    taskloom(home, "runs", "list", token=made["token"])
    assert "key 2 is revoked" in taskloom(home, "keys", "revoke", "2", token=admin)
    assert "was revoked" in taskloom(home, "runs", "list", token=made["token"], status=3)


def test_a_key_is_written_to_a_file_that_only_its_owner_can_read(home: House, admin: str, tmp_path: Path) -> None:
    create = ("keys", "create", "--scope", "submit", "-o", str(tmp_path / "ci.key"))
    assert taskloom(home, *create, token=admin) == f"key 2 of scope submit is in {tmp_path}/ci.key\n"
    assert oct((tmp_path / "ci.key").stat().st_mode)[-3:] == "600"
    token = (tmp_path / "ci.key").read_text()
    taskloom(home, "runs", "list", token=token.strip())
    assert "never overwritten" in taskloom(home, *create, token=admin, status=2)
    assert (tmp_path / "ci.key").read_text() == token
    assert len(json.loads(taskloom(home, "keys", "list", "--json", token=admin))) == 2  # no key was made in vain
    printed = taskloom(home, *create[:-1], str(tmp_path / "ci.json"), "--json", token=admin)
    assert json.loads(printed).keys() == json.loads((tmp_path / "ci.json").read_text()).keys() - {"token"}


def test_who_may_not_is_told_so_with_exit_code_3(home: House, admin: str) -> None:
    assert "set TASKLOOM_TOKEN" in taskloom(home, "runs", "list", status=3)
    reader = taskloom(home, "keys", "create", "--scope", "read", token=admin).strip()
    problem = json.loads(taskloom(home, "runs", "cancel", "1", "--json", token=reader, status=3))
    assert (problem["type"], problem["scopes"]) == ("/problems/forbidden", ["admin", "submit"])
    printed = taskloom(home, "keys", "create", "--scope", "read", "--name", "a;b", token=admin, status=2)
    assert "name = 'a;b' is not accepted" in printed


def test_a_worker_works_with_its_key_and_leaves_without_one(home: House, admin: str) -> None:
    key = taskloom(home, "keys", "create", "--scope", "worker", token=admin).strip()
    for wrong in ("", key[:-1] + ("0" if key[-1] != "0" else "1")):
        assert home.start_worker("quick", TASKLOOM_TOKEN=wrong).wait() == 3
    worker = home.start_worker("quick", "--once", TASKLOOM_TOKEN=key)
    with Client(home.url, token=admin) as client:
        made = client.submit(ExperimentRequest.model_validate({"base": {"model": "tiny", "steps": 4, "seq": 16}}))
        assert worker.wait() == 0
        until(lambda: client.experiment(made.id).by_state.get("succeeded") == 1, "the run's result")
    logs = "".join(path.read_text() for path in home.folder.glob("*.log")) + "".join(worker.lines)
    for token in (admin, key):
        assert token.rpartition("_")[2] not in logs
