"""A server with a worker and experiments in every state, for tests of the dashboard and for pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from tests.support.patience import until
from tests.support.processes import House, house

HOSTILE = """<img src=x onerror="alert(1)">'"`{{7*7}}</script><b>&amp;"""
PROBLEM = {"model": "tiny", "batch": 2, "seq": 32, "steps": 6}


@dataclass(frozen=True)
class World:
    """A server with a worker and its real trainer, and experiments in every state."""

    home: House
    client: Client
    compared: int  # experiment of 2 schedulers with 3 repetitions; the first is traced
    failed_run: int
    waiting_run: int
    hostile: int

    @property
    def runs(self) -> list[Any]:
        return list(self.client.runs(self.compared))


def submit(client: Client, **request: Any) -> int:
    return client.submit(ExperimentRequest.model_validate(request)).id


def address(world: World, page: str) -> str:
    """The address of a page, with the world's numbers for its words."""
    found = page.replace("COMPARED", str(world.compared)).replace("RUN", str(world.runs[0].id))
    if "SERIES" in page:
        found = found.replace("SERIES", str(next(iter(world.client.series())).id))
    return found.replace("FAILED", str(world.failed_run)).replace("WAITING", str(world.waiting_run))


@contextlib.contextmanager
def made(folder: Path) -> Iterator[World]:
    with house(folder, f"sqlite:///{folder / 'world.db'}", heartbeat_s=0.3) as home, Client(home.url) as client:
        home.start_worker(None, "--cores", "0-1").event("registered")
        home.start_worker("crash", "--cores", "0", "--label", "trainer=broken", "--spool", str(folder / "broken"))
        threads = {**PROBLEM, "threads": 2, "batch_slice": 1, "token_slice": 32}
        compared = submit(
            client, name="fork-join or tasks?", base=threads, axes={"scheduler": ["fork-join", "task"]},
            repetitions=3, trace="first",
        )  # fmt: skip
        broken = submit(client, name="melts", base=PROBLEM, requires={"labels": {"trainer": "broken"}})
        waiting = submit(client, name="waits", base=PROBLEM, requires={"labels": {"cpu": "nowhere"}})
        hostile = submit(client, name=HOSTILE, base=PROBLEM, requires={"labels": {"cpu": "nowhere"}})
        until(lambda: client.experiment(compared).state == "finished", "the comparison", 600)
        until(lambda: client.experiment(broken).state == "finished", "the failure")
        assert [(run.state, run.error) for run in client.runs(compared)] == [("succeeded", None)] * 6
        first = {each: next(iter(client.runs(each))).id for each in (broken, waiting)}
        yield World(home, client, compared, first[broken], first[waiting], hostile)
