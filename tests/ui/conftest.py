from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))  # for processes.py, which has all real processes

from browser import ARGUMENTS, Tab, executable, open_tab
from patience import until
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright
from processes import House, house

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest

expect.set_options(timeout=30_000)  # pages find a restarted server within 8 s

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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = executable()
    assert path is not None, "no Chromium is installed (Debian: chromium)"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()


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


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with made(tmp_path_factory.mktemp("world")) as found:
        yield found


OPENED = pytest.StashKey[list[tuple[BrowserContext, Tab]]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call" and report.failed:
        for _, tab in item.stash.get(OPENED, []):
            report.sections.append(("page", tab.told()))
    return report


@pytest.fixture
def new_tab(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Tab]]:
    """Open tabs. After the test, none of them may have an error."""
    opened = request.node.stash[OPENED] = []

    def start(url: str, **options: Any) -> Tab:
        context, tab = open_tab(browser, url, **options)
        opened.append((context, tab))
        return tab

    yield start
    for context, tab in opened:
        try:
            tab.sound()
        finally:
            context.close()


@pytest.fixture
def tab(world: World, new_tab: Callable[..., Tab]) -> Tab:
    return new_tab(world.home.url)
