"""Tunings by real processes: from the command to the file of the winner, and with servers that are killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from taskloom import Client
from tests.support.command_line import cli, json_of, taskloom
from tests.support.patience import until
from tests.support.processes import House, house

pytestmark = pytest.mark.slow
PROBLEM = ("--model", "tiny", "--batch", "2", "--seq", "32", "--steps", "4", "--batch-slice", "1")
SPACE = ("--scheduler", "fork-join,task", "--space", "sync=step,none", "--space", "token_slice=16,32")


def test_a_tuning_from_the_command_to_the_file_of_the_winner(home: House, client: Client, tmp_path: Path) -> None:
    home.start_worker(None, "--cores", "0").event("registered")
    plan = json_of(cli("tune", *PROBLEM, *SPACE, "--dry-run", "--json", server=home.url))["tuning"]
    assert (plan["valid"], plan["combinations"]) == (6, 8)
    file = tmp_path / "best.yaml"
    counts = ("--runs", "3", "--block", "3", "--confirm", "6", "--fresh", "2")
    done = taskloom("tune", *PROBLEM, *SPACE, *counts, "--wait", "--export", str(file), "--json", server=home.url)
    found = json_of(done)
    assert (found["phase"], found["reason"], found["missing"]) == ("ended", "complete", [])
    assert found["sentence"].endswith("drawn at random after it was chosen).")
    assert found["confirmed"]["pairs"] == 6
    assert [trial["state"] for trial in found["trials"]] == ["measured"] * 3
    assert found["share"]["drawn"] == 2
    assert yaml.safe_load(file.read_text()) == {"base": found["base"]}
    again = json_of(cli("submit", str(file), "--repetitions", "1", "--json", server=home.url))
    assert json.loads(json.dumps(again["request"]["base"])) == found["base"]
    until(lambda: client.experiment(again["id"]).state == "finished", "the winner's run")
    assert client.experiment(again["id"]).by_state == {"succeeded": 1}


def decisions(client: Client, experiment_id: int) -> list[tuple[int, int, str]]:
    """What was decided: block, position and settings of each run, in the order of their ids."""
    runs = sorted(client.runs(experiment_id), key=lambda run: run.id)
    return [(run.block, run.position, json.dumps(run.variant)) for run in runs]


def restart(home: House, **environment: str) -> None:
    home.server.popen.kill()
    home.server.wait()
    home.start_server(**environment)


def test_servers_killed_between_any_two_blocks_decide_what_one_server_decides(
    tmp_path: Path, database_url: str
) -> None:
    """Each server decides once, when it starts, and is killed after the next block. 12 runs of explore include some
    that the estimator chose."""
    base = {"model": "tiny", "steps": 4, "seq": 16, "threads": 1, "batch_slice": 1, "token_slice": 16}
    space = {"scheduler": ["fork-join", "task"], "sync": ["phase", "step", "none"],
             "policy": ["breadth-first", "critical-path"], "fusion": ["none", "rows", "all"]}  # fmt: skip
    terms = {"runs": 12, "batch": 10, "confirm": 2, "fresh": 1, "seed": 1}
    settings = {"poll_s": 3600.0, "lease_s": 600.0, "analysis_processes": 0}
    with house(tmp_path, database_url, **settings) as home, Client(home.url, timeout_s=240.0) as client:
        killed = client.tune(base, space, requires={"cores": 1}, **terms).id
        home.start_worker("varied")

        def shown() -> tuple[str, int, int]:
            experiment = client.experiment(killed)
            return experiment.state, experiment.runs, experiment.by_state.get("succeeded", 0)

        while shown()[0] == "active":
            until(lambda: len(set(shown()[1:])) == 1, "the end of the block")
            before = shown()
            restart(home)
            until(lambda: shown() != before, "the server's decision")  # noqa: B023 (called at once)
        restart(home, TASKLOOM_POLL_S="0.05")
        alone = client.tune(base, space, requires={"cores": 1}, **terms).id
        until(lambda: client.experiment(alone).state == "finished", "the tuning by one server")
        assert decisions(client, killed) == decisions(client, alone)
        found, other = client.tuning(killed), client.tuning(alone)
        assert (found.reason, len(found.trials), len(found.pairs), found.m) == ("complete", 12, 2, 1)
        assert len({trial.ratio for trial in found.trials}) > 7
        assert found.sentence == other.sentence
