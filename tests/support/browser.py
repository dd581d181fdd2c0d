"""Tabs of a browser that record everything that a page must not do."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response

PATIENCE_MS = 60_000
NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--force-color-profile=srgb"]


def executable() -> str | None:
    """The system's Chromium; None where it is not installed (Debian: chromium)."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Tab:
    """A page and its errors. `refusals`: statuses that this test provokes."""

    page: Page
    url: str
    refusals: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)  # requests that failed on their way

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._request)
        self.page.on("response", self._response)
        self.page.on("requestfailed", lambda request: self.unanswered.append(f"{request.failure}: {request.url}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.wrong.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)
        parts = urlsplit(request.url)
        if parts.scheme != "blob" and parts.netloc != urlsplit(self.url).netloc:
            self.wrong.append(f"elsewhere: {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.refusals:
            self.wrong.append(f"{response.status}: {response.url}")

    def open(self, address: str) -> Page:
        """Go to a page of the dashboard, and wait until its content is shown."""
        self.page.goto(f"{self.url}/ui/{address}")
        return self.settle()

    def settle(self) -> Page:
        self.page.locator("main h1").first.wait_for()
        self.page.locator("main .skeleton").first.wait_for(state="detached")
        return self.page

    def violations(self, *rules: str) -> list[str]:
        """Violations of WCAG 2.2 AA and good practice, or of some of axe's rules, that axe finds."""
        options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
        found = Axe().run(self.page, options=options).response["violations"]
        return [f"{each['id']}: {node['html'][:160]} {node['failureSummary']}" for each in found
                for node in each["nodes"]]  # fmt: skip

    def report(self) -> str:
        """What the page shows and its errors, for the report of a failed test."""
        shown = self.page.locator("body").inner_text()
        return "\n".join([self.page.url, *self.wrong, *self.unanswered, "", shown])

    def sound(self) -> None:
        """Check that there was no error, and that the browser stores nothing that other sites or ports could read."""
        assert self.wrong == [], self.wrong
        assert self.page.context.cookies() == []


def open_tab(browser: Browser, url: str, **options: Any) -> tuple[BrowserContext, Tab]:
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "accept_downloads": True, **options})
    return context, Tab(context.new_page(), url)


def saved(page: Page, press: Any, folder: Path) -> str:
    """The text of the file that a click saves."""
    return saved_bytes(page, press, folder).decode()


def saved_bytes(page: Page, press: Any, folder: Path) -> bytes:
    with page.expect_download() as download:
        press()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path.read_bytes()


def hide(page: Page, hidden: bool = True) -> None:
    """Hide the page, as if another tab were in front of it."""
    value = str(hidden).lower()
    page.evaluate(f"Object.defineProperty(document, 'hidden', {{value: {value}, configurable: true}})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
