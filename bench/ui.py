"""How fast the dashboard is with a history of many runs: `make bench-ui`.

A real server on PostgreSQL, Debian's Chromium on the same machine. Each time is by the browser's own clock: first
paint, data shown (no skeleton is left), the next page of a list, a letter typed to the next paint; a trace of many
spans from its click to its picture, and frames while it is zoomed; the server's CPU beside an idle tab, seen and
hidden.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import statistics
import time
from typing import Any

from playwright.sync_api import Browser, Page, Route, sync_playwright

from bench import record
from bench.server_store import Served, database, fill, serve

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
    """Paint and data of a page that is opened afresh each time."""
    paints, shown = [], []
    for _ in range(rounds):
        page = browser.new_page()
        page.goto(url, wait_until="commit")
        page.locator("main h1").first.wait_for()
        page.locator("main .skeleton").first.wait_for(state="detached")
        shown.append(page.evaluate("performance.now()"))
        paints.append(page.evaluate(PAINT))
        page.close()
    return {"first_paint_ms": paints, "data_shown_ms": shown}


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
    """The server's CPU time and the requests of a tab that shows Now and is left alone, then hidden."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    def watch() -> dict[str, float]:
        asked.clear()
        before = served.process.cpu_times()
        time.sleep(0.2)
        page.wait_for_timeout(seconds * 1000)
        after = served.process.cpu_times()
        used = after.user + after.system - before.user - before.system
        return {"server_cpu_share": used / (seconds + 0.2), "requests": len(asked)}

    seen = watch()
    page.evaluate(HIDE)
    page.wait_for_timeout(1000)
    hidden = watch()
    page.close()
    page.context.close()
    return {"seen": seen, "hidden": hidden}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--idle-s", type=float, default=30.0)
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="postgresql")
    record.out_option(parser, "ui")
    options = parser.parse_args()
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        parser.error("no Chromium is installed (Debian: chromium)")
    on = record.machine()
    with database(options.database, None) as database_url, serve(database_url) as served, sync_playwright() as started:
        fill(served, options.runs)
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        url = f"http://127.0.0.1:{served.port}/ui/"
        pages = {"now": "", "experiments": "experiments", "runs": "experiments?view=runs", "fleet": "fleet"}
        report: dict[str, Any] = {**record.head("taskloom.bench.ui/1", on), "runs": options.runs}
        report["pages"] = {name: loads(browser, url + address, options.rounds) for name, address in pages.items()}
        page = browser.new_page()
        page.goto(f"{url}experiments?view=runs")
        page.locator("tr[data-row]").first.wait_for()
        report["next_page_ms"] = [page.evaluate(NEXT) for _ in range(options.rounds)]
        report["input_to_paint_ms"] = page.evaluate(TYPED)
        page.close()
        finished = served.sql("SELECT max(run_id) FROM attempt WHERE state = 'succeeded'")
        report["traces"] = [opened(browser, url, finished, spans) for spans in (62_000, 1_000_000)]
        page = browser.new_page()
        page.goto(url)
        page.locator("main h1").first.wait_for()
        page.wait_for_timeout(2000)
        report["idle"] = idle(served, page, options.idle_s)
        browser.close()
    record.save(options.out, report, table(report))


def table(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    rows = [("figure", "median", "p95", "goal (p95)"), ("---", "---", "---", "---")]

    def add(name: str, values: list[float], goal: str) -> None:
        rows.append((name, f"{statistics.median(values):.0f} ms", f"{p95(values):.0f} ms", goal))

    for name, found in report["pages"].items():
        add(f"{name}: first paint", found["first_paint_ms"], "300 ms")
        add(f"{name}: data shown", found["data_shown_ms"], "700 ms")
    add("next page of runs", report["next_page_ms"], "150 ms")
    add("a letter typed, to the next paint", report["input_to_paint_ms"], "100 ms")
    for found in report["traces"]:
        goal = "500 ms" if found["spans"] < 100_000 else "3 s"
        add(f"a trace of {found['spans']:,} spans, opened", [found["open_ms"]], goal)
        add(f"a frame of its zoom, all of {found['spans']:,} spans", found["frame_ms"], "16 ms")
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    seen, hidden = report["idle"]["seen"], report["idle"]["hidden"]
    machine = report["machine"]
    return "\n".join([
        f"# The dashboard with {report['runs']:,} runs stored", "",
        f"{machine['cpu_model']}, {machine['cores']} cores, load {machine['load_average'][0]:.1f} at the start; "
        "browser, server and PostgreSQL share them.", "", *lines, "",
        f"An idle tab that is seen: {seen['requests']} requests, the server's CPU {seen['server_cpu_share']:.2%} of a "
        f"core (goal 0.5 %); hidden: {hidden['requests']} requests, {hidden['server_cpu_share']:.2%}. The server's own "
        "work, which it does without any tab, is in both.", "",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
