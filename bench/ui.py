"""Speed of the dashboard with a long history: `make bench-ui`.

A real server on PostgreSQL or SQLite, Debian's Chromium on the same machine. Pages are opened in a window that has
finished its own start, with an empty cache. Each time is by the browser's own clock: first paint, data shown (no
skeleton is left), the next page of a list, a letter typed to the next paint; a submission until it is on the screen; a
trace of many spans from its click to its picture, and frames while it is zoomed. It also measures the bytes of code as
sent, and the server's CPU with a visible, a hidden and no idle tab.

A part that fails is recorded, and the others are still measured. The exit code is 1 if a part failed or a figure missed
its budget.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from bench import record, ui_browser
from bench.server_store import Served, database, fill, serve
from bench.ui_figures import Figure, figures

NAMES = ("chromium", "chromium-browser", "google-chrome")
# In addresses, {experiment} and {run} are those of the newest run that succeeded.
PAGES = {
    "Now": "", "Experiments": "experiments", "all runs": "experiments?view=runs", "New": "new",
    "an experiment of 1,000 runs": "experiment?id={experiment}", "a run": "run?id={run}",
    "History": "history", "Fleet": "fleet", "Access": "access",
}  # fmt: skip
LISTS = {"experiments": "experiments", "runs": "experiments?view=runs"}
ON_A_PAGE = {"experiments": 50_000, "runs": 50}  # runs on a page of each list
TRACES = (62_000, 1_000_000)
SETTLED_S = 120.0
IDLE_ROUNDS = 6


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Parts:
    """Measures part by part into a report; errors of parts are in `failed`."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report
        report["failed"] = {}

    def measure(self, name: str, part: Callable[[], Any]) -> Any:
        """Run `part` and return its result; None if it fails."""
        began = time.monotonic()
        found = None
        try:
            found = part()
        except Exception as error:  # any error: the other parts are still measured
            self.report["failed"][name] = f"{type(error).__name__}: {error}"
        ending = self.report["failed"].get(name, "done")
        say(f"{name}: {ending}, {time.monotonic() - began:.0f} s")
        return found


def settle(served: Served) -> None:
    """Return when the server has finished its work on a new history: verdicts, alerts."""
    begun = time.monotonic()
    used_s = served.cpu_s()
    while time.monotonic() - begun < SETTLED_S:
        time.sleep(2)
        before, used_s = used_s, served.cpu_s()
        if used_s - before < 0.1:
            break
        say(f"the server is busy: {(used_s - before) / 2:.0%} of a core")


def measure(parts: Parts, browser: Browser, served: Served, options: argparse.Namespace) -> None:
    report = parts.report
    url = f"http://127.0.0.1:{served.port}/ui/"
    run = served.sql("SELECT max(run_id) FROM attempt WHERE state = 'succeeded'")
    known = {"run": run, "experiment": served.sql(f"SELECT experiment_id FROM run WHERE id = {run}")}
    for name, address in PAGES.items():
        where = url + address.format(**known)
        report["pages"][name] = parts.measure(name, partial(ui_browser.loads, browser, where, options.rounds))
    for name, address in LISTS.items():
        presses = min(options.rounds, options.runs // ON_A_PAGE[name] - 1)
        report["lists"][name] = parts.measure(
            f"list of {name}", partial(ui_browser.lists, browser, url + address, presses)
        )
    for spans in TRACES:
        found = parts.measure(f"trace of {spans:,} spans", partial(ui_browser.opened, browser, url, run, spans))
        report["traces"][str(spans)] = found
    page = browser.new_page()
    page.goto(url)
    page.locator("main h1").first.wait_for()
    page.wait_for_timeout(2000)
    report["sizes_bytes"] = parts.measure("sizes", lambda: ui_browser.sizes(page))
    report["change_to_screen_ms"] = parts.measure("changes", lambda: ui_browser.changes(page, url, options.rounds))
    page.wait_for_timeout(2000)
    report["idle"] = parts.measure("idle tab", lambda: ui_browser.idle(served, page, options.idle_s, IDLE_ROUNDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--idle-s", type=float, default=180.0, help="measured of each: tab seen, hidden, none")
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="postgresql")
    parser.add_argument("--keep", type=Path, help="folder in which the database is kept and used again")
    parser.add_argument("--fill-only", action="store_true", help="fill the database of --keep, and measure nothing")
    record.out_option(parser, "ui")
    options = parser.parse_args()
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        parser.error("no Chromium is installed (Debian: chromium)")
    if options.fill_only and options.keep is None:
        parser.error("--fill-only needs --keep")
    on = record.machine()
    with database(options.database, options.keep) as database_url, serve(database_url) as served:
        fill(served, options.runs)
        if options.fill_only:
            return
        settle(served)
        report: dict[str, Any] = {
            **record.head("taskloom.bench.ui/6", on), "runs": options.runs, "database": options.database,
            "pages": {}, "lists": {}, "traces": {},
        }  # fmt: skip
        parts = Parts(report)
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
            parts.measure("everything", lambda: measure(parts, browser, served, options))
            browser.close()
    measured = list(figures(report))
    record.save(options.out, report, table(report, measured))
    if report["failed"] or any(figure.missed for figure in measured):
        raise SystemExit(1)


def table(report: dict[str, Any], found: list[Figure]) -> str:
    """The report as Markdown."""
    machine = report["machine"]
    failed = [f"- {name} failed: {why.splitlines()[0]}" for name, why in report["failed"].items()]
    return "\n".join([
        f"# The dashboard with {report['runs']:,} runs stored, on {report['database']}", "",
        f"{machine['cpu_model']}, {machine['cores']} cores, load {machine['load_average'][0]:.1f} at the start; "
        "browser, server and database share them.", "",
        "| figure | median | p95 | budget (p95) |", "| --- | --- | --- | --- |", *(each.row() for each in found), "",
        *failed, *([""] if failed else []),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
