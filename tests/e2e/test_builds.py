"""Stored trainer builds run in turn, independent of the installed one. Results name their build."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gpt2core.spec.sources import source_hash
from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.labels import build_label
from taskloom.worker import builds, commits
from tests.support.patience import until
from tests.support.processes import HERE, House
from tests.support.repository import Repository
from tests.support.runs import SMALL, succeeded

FAKE = (HERE / "fake_trainer.py").read_text().replace('{"pid": os.getpid()}', '{"core_hash": source_hash()}')
FAKE = FAKE.replace("import argparse", "import argparse\nfrom gpt2core.spec.sources import source_hash", 1)
READS = "config = TrainConfig.from_dict(json.loads(sys.stdin.read()))"
OLDER = """values = json.loads(sys.stdin.read())
    assert "grad_clip" not in values
    config = TrainConfig.from_dict(values)"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two stored builds of a trainer that trains nothing. The first is from before the setting `grad_clip`."""
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path))
    builds.keep()
    names = []
    for newer in (False, True):
        copy = tmp_path / "copy"
        shutil.copytree(builds.folder() / source_hash(), copy)
        (copy / "gpt2core/__main__.py").write_text(FAKE if newer else FAKE.replace(READS, OLDER))
        about = json.loads((copy / "build.json").read_text())
        about["settings"] = [name for name in about["settings"] if newer or name != "grad_clip"]
        (copy / "build.json").write_text(json.dumps(about))
        names.append(source_hash(root=copy / "gpt2core"))
        copy.rename(builds.folder() / names[-1])
    return names


@pytest.mark.slow
def test_kept_builds_run_in_turn(home: House, client: Client, tmp_path: Path, kept: list[str]) -> None:
    asked = {"base": SMALL, "builds": kept, "repetitions": 3}
    experiment = client.submit(ExperimentRequest.model_validate(asked))
    home.start_worker(None, TASKLOOM_CACHE_DIR=str(tmp_path))
    succeeded(client, experiment.id, 6)
    runs = sorted(client.runs(experiment.id), key=lambda run: run.id)
    assert [{run.variant["build"] for run in runs if run.block == block} for block in range(3)] == [{*kept}] * 3
    results = [client.result(run.id) for run in runs]
    assert [result["environment"]["core_hash"] for result in results] == [run.variant["build"] for run in runs]
    assert {result["config"]["grad_clip"] for result in results} == {0.0}


def test_a_build_that_is_stored_later_is_offered(
    home: House, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path / "cache"))
    worker = home.start_worker("quick", "--wait-s", "0.5")
    worker.event("registered")
    repository = Repository(tmp_path / "checkout")
    label = build_label(commits.keep(repository.folder, repository.trainer("a change", "a")))
    until(lambda: label in next(client.workers()).labels, "the label of the build")
    shutil.rmtree(builds.folder())
    until(lambda: label not in next(client.workers()).labels, "the end of the label")
