from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from tests.support.browser import ARGUMENTS, Tab, executable, open_tab
from tests.support.caller import Caller
from tests.support.processes import house
from tests.support.world import World, made

expect.set_options(timeout=30_000)  # pages find a restarted server within 8 s


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = executable()
    assert path is not None, "no Chromium is installed (Debian: chromium)"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with made(tmp_path_factory.mktemp("world")) as found:
        yield found


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Caller]:
    """A server of its own, without a worker."""
    with (
        house(tmp_path, f"sqlite:///{tmp_path / 'own.db'}", analysis_processes=0) as home,
        httpx.Client(base_url=home.url, timeout=60) as http,
    ):
        yield Caller(http)


OPENED = pytest.StashKey[list[tuple[BrowserContext, Tab]]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call" and report.failed:
        for _, tab in item.stash.get(OPENED, []):
            report.sections.append(("page", tab.report()))
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
