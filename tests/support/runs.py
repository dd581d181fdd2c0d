"""Helpers to submit and watch runs, and the final check of all runs, attempts and results."""

from __future__ import annotations

from sqlalchemy import text

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.runs import RunDetail
from taskloom.server.db import Database
from tests.support.patience import until
from tests.support.processes import House

SMALL = {"model": "tiny", "steps": 4, "seq": 16}


def submit(client: Client, **settings: object) -> int:
    """Submit one run and return its id."""
    experiment = client.submit(ExperimentRequest.model_validate({"base": {**SMALL, **settings}}))
    return next(iter(client.runs(experiment.id))).id


def submit_many(client: Client, runs: int) -> int:
    """Submit runs that any worker may execute, and return the experiment's id."""
    body = {"base": {**SMALL, "threads": 1}, "axes": {"seed": list(range(runs))}, "order": "sequential"}
    return client.submit(ExperimentRequest.model_validate(body)).id


def ended(client: Client, run_id: int) -> RunDetail:
    def look() -> RunDetail | None:
        run = client.run(run_id)
        return run if run.finished_at is not None else None

    return until(look, f"the end of run {run_id}")


def training(client: Client, run_id: int, attempts: int = 1) -> RunDetail:
    """Wait until the run has this many attempts and the newest attempt trains, and return the run."""

    def look() -> RunDetail | None:
        run = client.run(run_id)
        progress = run.history[-1].progress if len(run.history) >= attempts else None
        return run if progress is not None and progress.stage == "training" else None

    return until(look, f"run {run_id} to train")


def succeeded(client: Client, experiment_id: int, runs: int) -> None:
    """Wait until this many runs of the experiment have succeeded."""
    until(lambda: client.experiment(experiment_id).by_state.get("succeeded", 0) >= runs, f"{runs} runs to succeed")


def check_books(home: House, runs: int) -> None:
    """Check that every run exists once and has one succeeded attempt with one result."""
    expected = {
        "SELECT count(*) FROM run": runs,
        "SELECT count(*) FROM run WHERE state = 'succeeded'": runs,
        "SELECT count(*) FROM attempt WHERE state IN ('leased', 'running', 'succeeded')": runs,
        "SELECT count(DISTINCT run_id) FROM attempt WHERE state = 'succeeded'": runs,
        "SELECT count(*) FROM result WHERE canonical": runs,
        "SELECT count(*) FROM result JOIN attempt ON attempt.id = attempt_id AND attempt.run_id = result.run_id "
        "WHERE canonical AND outcome = 'succeeded' AND state = 'succeeded'": runs,
        "SELECT count(*) FROM result JOIN attempt ON attempt.id = attempt_id "
        "WHERE canonical <> (state = 'succeeded')": 0,
        "SELECT count(*) FROM run WHERE attempts <> (SELECT count(*) FROM attempt WHERE run_id = run.id)": 0,
    }
    database = Database(home.database_url)
    with database.read() as session:
        found = {query: session.execute(text(query)).scalar_one() for query in expected}
    database.close()
    assert found == expected
