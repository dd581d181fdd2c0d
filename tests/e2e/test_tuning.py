"""A tuning of a tiny model by a real worker, from the command to the file of the winner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from command_line import cli, taskloom, told
from patience import until
from processes import House

from taskloom import Client

pytestmark = pytest.mark.slow
PROBLEM = ("--model", "tiny", "--batch", "2", "--seq", "32", "--steps", "4", "--batch-slice", "1")
SPACE = ("--scheduler", "fork-join,task", "--space", "sync=step,none", "--space", "token_slice=16,32")


def test_a_tuning_from_the_command_to_the_file_of_the_winner(home: House, client: Client, tmp_path: Path) -> None:
    home.start_worker(None, "--cores", "0").event("registered")
    plan = told(cli("tune", *PROBLEM, *SPACE, "--dry-run", "--json", server=home.url))["tuning"]
    assert (plan["valid"], plan["combinations"]) == (6, 8)
    file = tmp_path / "best.yaml"
    counts = ("--runs", "3", "--block", "3", "--confirm", "6", "--fresh", "2")
    done = taskloom("tune", *PROBLEM, *SPACE, *counts, "--wait", "--export", str(file), "--json", server=home.url)
    found = told(done)
    assert (found["phase"], found["reason"], found["missing"]) == ("ended", "complete", [])
    assert found["sentence"].endswith("drawn at random after it was chosen).")
    assert found["confirmed"]["pairs"] == 6
    assert [trial["state"] for trial in found["trials"]] == ["measured"] * 3
    assert found["share"]["drawn"] == 2
    assert yaml.safe_load(file.read_text()) == {"base": found["base"]}
    again = told(cli("submit", str(file), "--repetitions", "1", "--json", server=home.url))
    assert json.loads(json.dumps(again["request"]["base"])) == found["base"]
    until(lambda: client.experiment(again["id"]).state == "finished", "the winner's run")
    assert client.experiment(again["id"]).by_state == {"succeeded": 1}
