"""Speed of the dashboard with a long history: `make bench-ui`.

A real server on PostgreSQL or SQLite, Debian's Chromium on the same machine. Each time is by the browser's own clock:
first paint, data shown (no skeleton is left), the next page of a list, a letter typed to the next paint; what was
submitted to its place on the screen; a trace of many spans from its click to its picture, and frames while it is
zoomed. Besides: bytes of code as sent, and the server's CPU beside an idle tab, seen and hidden, and beside none.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, Route, sync_playwright

from bench import record
from bench.server_store import Served, database, fill, serve
from taskloom.server.read.dashboard import files

NAMES = ("chromium", "chromium-browser", "google-chrome")
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
FRAMES = """async () => {
  const canvas = document.querySelector('canvas[data-painted]');
  canvas.focus();
  const times = [];
  for (let i = 0; i < 60; i += 1) {
    const before = canvas.dataset.painted;
    const began = performance.now();
    canvas.dispatchEvent(new KeyboardEvent('keydown', { key: i % 2 ? '-' : '+', bubbles: true }));
    while (canvas.dataset.painted === before) await new Promise(requestAnimationFrame);
    times.push(performance.now() - began);
  }
  return times;
}"""
TYPED = """async () => {
  const input = document.querySelector('[data-find]');
  const times = [];
  for (let i = 0; i < 20; i += 1) {
    const began = performance.now();
    input.value = 'x'.repeat(i % 3);
    input.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise(requestAnimationFrame);
    await new Promise((done) => setTimeout(done, 0));
    times.push(performance.now() - began);
  }
  return times;
}"""
NEXT = """async () => {
  const first = () => document.querySelector('tr[data-row] a')?.textContent;
  const before = first();
  const began = performance.now();
  [...document.querySelectorAll('.more button')].at(-1).click();
  while (first() === before) await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""
APPEARED = """async (name) => {
  const there = () => [...document.querySelectorAll('main a')].some((a) => a.textContent === name);
  while (!there()) await new Promise(requestAnimationFrame);
  return Date.now();
}"""
HIDE = """Object.defineProperty(document, 'hidden', { value: true, configurable: true });
document.dispatchEvent(new Event('visibilitychange'))"""


def p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(0.95 * len(values)))]


def trace_of(spans: int) -> bytes:
    """A trace of so many spans on four threads, as a trainer writes it."""
    random.seed(0)
    each, tasks = spans // 4, 2000
    threads = []
    for _ in range(4):
        what = [random.randrange(tasks) for _ in range(each)]
        threads.append({"what": what, "step": [i * 20 // each for i in range(each)],
                        "gap_ns": [random.randrange(2000) for _ in range(each)],
                        "duration_ns": [random.randrange(1000, 90_000) for _ in range(each)]})  # fmt: skip
    end = max(sum(t["gap_ns"]) + sum(t["duration_ns"]) for t in threads)
    ops = [["qkv", "forward"], ["attention", "forward"], ["fc_dinp", "backward"], ["adamw", "update"]]
    kinds = [i % 4 for i in range(tasks)]
    config = {"scheduler": "task", "sync": "step", "threads": 4, "batch_slice": 1, "token_slice": 64}
    return gzip.compress(json.dumps({
        "schema": "taskloom-trace-1", "config": config, "ops": ops, "call_ops": ops,
        "tasks": {"op": kinds, "layer": [None] * tasks, "label": [""] * tasks},
        "calls": {"task": list(range(tasks)), "op": kinds}, "cores": [0, 1, 2, 3], "first_step": 0,
        "step_end_ns": [end * (i + 1) // 20 for i in range(20)], "threads": threads, "complete": True,
        "nodes": list(range(tasks)), "edges": [[i, i + 1] for i in range(tasks - 1)], "crossing": [],
    }).encode())  # fmt: skip


def loads(browser: Browser, url: str, rounds: int) -> dict[str, Any]:
    """Paint and data of a page that is opened afresh each time; the first time, which may wait for an analysis, apart.
    """
    paints, shown = [], []
    for _ in range(rounds + 1):
        page = browser.new_page()
        page.set_default_timeout(300_000)
        page.goto(url, wait_until="commit")
        page.locator("main h1").first.wait_for()
        page.locator("main .skeleton").first.wait_for(state="detached")
        shown.append(page.evaluate("performance.now()"))
        paints.append(page.evaluate(PAINT))
        page.close()
    return {"first_paint_ms": paints[1:], "data_shown_ms": shown[1:], "data_shown_first_ms": shown[0]}


def changes(page: Page, url: str, rounds: int) -> list[float]:
    """Milliseconds from the answer to a submission until the page Now, which is open, shows it."""
    took = []
    with httpx.Client(base_url=f"{url}../api/v1/", timeout=60) as client:
        for i in range(rounds):
            name = f"bench {i} {time.time_ns()}"
            body = {"name": name, "base": {"model": "tiny"}, "requires": {"labels": {"bench": "nowhere"}}}
            made = client.post("experiments", json=body).raise_for_status().json()["id"]
            answered = time.time()
            took.append(page.evaluate(APPEARED, name) - 1e3 * answered)
            client.post(f"experiments/{made}/cancel").raise_for_status()
    return took


def sizes(page: Page) -> dict[str, int]:
    """Bytes of scripts and styles as they are sent: of the page that is open, and of all there are."""
    code = """() => performance.getEntriesByType('resource').filter((each) => /[.](js|css)$/.test(each.name))
      .reduce((sum, each) => sum + each.encodedBodySize, 0)"""
    every = (file for name, file in files.read().by_path.items() if name.endswith((".js", ".css")))
    return {"first_page": page.evaluate(code), "everything": sum(len(file.compressed) for file in every)}


def opened(browser: Browser, url: str, run_id: int, spans: int) -> dict[str, Any]:
    """From the click on Timeline to its picture; then frames of a zoom."""
    body = trace_of(spans)

    def answer(route: Route) -> None:
        route.fulfill(body=body, content_type="application/gzip")

    page = browser.new_page()
    page.route("**/artifacts/trace.json.gz", answer)
    page.goto(f"{url}run?id={run_id}&view=attempts")
    page.locator("main .skeleton").first.wait_for(state="detached")
    waiting = """async () => {
      const began = performance.now();
      [...document.querySelectorAll('.tabs a')].find((a) => a.textContent === 'Timeline').click();
      while (!document.querySelector('canvas[data-painted]')) await new Promise(requestAnimationFrame);
      return performance.now() - began;
    }"""
    took = page.evaluate(waiting)
    page.get_by_role("button", name="All 20 steps").click()
    page.wait_for_timeout(500)
    frames = page.evaluate(FRAMES)
    page.close()
    return {"spans": spans, "open_ms": took, "frame_ms": frames}


def idle(served: Served, page: Page, seconds: float) -> dict[str, Any]:
    """The server's CPU time and the requests of a tab that shows Now and is left alone, then hidden, then closed."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    def watch(wait: Callable[[float], None]) -> dict[str, float]:
        asked.clear()
        began, before = time.monotonic(), served.process.cpu_times()
        wait(seconds)
        after, took_s = served.process.cpu_times(), time.monotonic() - began
        used_s = after.user + after.system - before.user - before.system
        return {"server_cpu_share": used_s / took_s, "requests": len(asked)}

    def in_the_page(wait_s: float) -> None:
        page.wait_for_timeout(wait_s * 1000)

    seen = watch(in_the_page)
    page.evaluate(HIDE)
    page.wait_for_timeout(1000)
    hidden = watch(in_the_page)
    page.context.close()
    return {"seen": seen, "hidden": hidden, "none": watch(time.sleep)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="postgresql")
    parser.add_argument("--keep", type=Path, help="a folder: the database is kept in it, and taken up from it")
    record.out_option(parser, "ui")
    options = parser.parse_args()
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        parser.error("no Chromium is installed (Debian: chromium)")
    on = record.machine()
    with (
        database(options.database, options.keep) as database_url,
        serve(database_url) as served,
        sync_playwright() as started,
    ):
        fill(served, options.runs)
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        url = f"http://127.0.0.1:{served.port}/ui/"
        report: dict[str, Any] = {
            **record.head("taskloom.bench.ui/2", on), "runs": options.runs, "database": options.database,
        }  # fmt: skip
        succeeded = served.sql("SELECT max(run_id) FROM attempt WHERE state = 'succeeded'")
        experiment = served.sql(f"SELECT experiment_id FROM run WHERE id = {succeeded}")
        pages = {
            "Now": "", "Experiments": "experiments", "all runs": "experiments?view=runs", "New": "new",
            "an experiment of 1,000 runs": f"experiment?id={experiment}", "a run": f"run?id={succeeded}",
            "History": "history", "Fleet": "fleet", "Access": "access",
        }  # fmt: skip
        report["pages"] = {name: loads(browser, url + address, options.rounds) for name, address in pages.items()}
        lists = {"experiments": "experiments", "runs": "experiments?view=runs"}
        report["next_page_ms"] = {}
        for name, address in lists.items():
            page = browser.new_page()
            page.goto(url + address)
            page.locator("tr[data-row]").first.wait_for()
            there = min(options.rounds, options.runs // (50_000 if name == "experiments" else 100) - 1)
            report["next_page_ms"][name] = [page.evaluate(NEXT) for _ in range(there)]
            report["input_to_paint_ms"] = page.evaluate(TYPED)
            page.close()
        report["traces"] = [opened(browser, url, succeeded, spans) for spans in (62_000, 1_000_000)]
        page = browser.new_page()
        page.goto(url)
        page.locator("main h1").first.wait_for()
        page.wait_for_timeout(2000)
        report["sizes_bytes"] = sizes(page)
        report["change_to_screen_ms"] = changes(page, url, options.rounds)
        page.wait_for_timeout(2000)
        report["idle"] = idle(served, page, options.idle_s)
        browser.close()
    record.save(options.out, report, table(report))


def table(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    rows = [("figure", "median", "p95", "goal (p95)"), ("---", "---", "---", "---")]

    def add(name: str, values: list[float], goal: str) -> None:
        if values:
            rows.append((name, f"{statistics.median(values):.0f} ms", f"{p95(values):.0f} ms", goal))

    for name, found in report["pages"].items():
        add(f"{name}: first paint", found["first_paint_ms"], "300 ms")
        add(f"{name}: data shown", found["data_shown_ms"], "700 ms")
        add(f"{name}: data shown, asked for the first time", [found["data_shown_first_ms"]], "")
    for name, found in report["next_page_ms"].items():
        add(f"next page of {name}", found, "150 ms")
    add("a letter typed, to the next paint", report["input_to_paint_ms"], "100 ms")
    add("submitted elsewhere, to the screen", report["change_to_screen_ms"], "1,000 ms")
    for found in report["traces"]:
        goal = "500 ms" if found["spans"] < 100_000 else "3,000 ms"
        add(f"a trace of {found['spans']:,} spans, opened", [found["open_ms"]], goal)
        add(f"a frame of its zoom, all of {found['spans']:,} spans", found["frame_ms"], "16 ms")
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    seen, hidden, none = (report["idle"][name] for name in ("seen", "hidden", "none"))
    machine, sent = report["machine"], report["sizes_bytes"]
    return "\n".join([
        f"# The dashboard with {report['runs']:,} runs stored, on {report['database']}", "",
        f"{machine['cpu_model']}, {machine['cores']} cores, load {machine['load_average'][0]:.1f} at the start; "
        "browser, server and database share them.", "", *lines, "",
        f"Scripts and styles as sent: the first page {sent['first_page'] / 1e3:.1f} kB (goal 45), everything "
        f"{sent['everything'] / 1e3:.1f} kB (goal 120).", "",
        f"Server's CPU beside an idle tab that is seen: {seen['server_cpu_share']:.2%} of a core ({seen['requests']} "
        f"requests); hidden: {hidden['server_cpu_share']:.2%} ({hidden['requests']} requests); without a tab: "
        f"{none['server_cpu_share']:.2%}. The tab's own cost is the difference: "
        f"{seen['server_cpu_share'] - none['server_cpu_share']:.2%} (goal 0.5 %).", "",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
