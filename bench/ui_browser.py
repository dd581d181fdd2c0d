"""Measurements of bench.ui in a browser: pages, lists, traces, changes, an idle tab."""

from __future__ import annotations

import gzip
import json
import random
import time
from collections.abc import Callable
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, Route

from bench.server_store import Served
from taskloom.server.read.dashboard import files

# Pause after a window is opened: Chromium then loads hundreds of modules of its own, on the cores that are measured.
WINDOW_MS = 1500
# Records when a page shows its data, in the frame after its last skeleton has disappeared.
WATCHED = """(() => {
  let shown = null;
  const complete = () => document.querySelector('main h1') && !document.querySelector('main .skeleton');
  new MutationObserver(() => {
    if (!complete()) shown = null;
    else if (shown === null) {
      shown = NaN;
      requestAnimationFrame(() => setTimeout(() => { if (Number.isNaN(shown)) shown = performance.now(); }));
    }
  }).observe(document, { childList: true, subtree: true });
  window.shownAt = async (patienceS) => {
    const end = performance.now() + 1000 * patienceS;
    while (!shown) {
      if (performance.now() > end) throw new Error(`a skeleton was left after ${patienceS} s`);
      await new Promise(requestAnimationFrame);
    }
    return shown;
  };
})()"""
PAINT = """() => new Promise((done) => {
  const observer = new PerformanceObserver((list) => {
    const found = list.getEntriesByName('first-contentful-paint')[0];
    if (found) { observer.disconnect(); done(found.startTime); }
  });
  observer.observe({ type: 'paint', buffered: true });
})"""
UNTIL = """const until = async (condition) => {
  const end = performance.now() + 60_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error('nothing came within 60 s');
    await new Promise(requestAnimationFrame);
  }
};"""
# The main thread's work for a frame: the event, and from the frame's begin until it is drawn. Waiting for the
# screen between them is not work, but `late` includes it: from the event until the frame is drawn.
FRAMES = f"""async () => {{
  {UNTIL}
  const canvas = document.querySelector('canvas[data-painted]');
  const drawn = new MessageChannel();
  const frame = () => new Promise((done) => requestAnimationFrame(() => {{
    const began = performance.now();
    drawn.port1.onmessage = () => done([began, performance.now()]);
    drawn.port2.postMessage(0);
  }}));
  canvas.focus();
  const work = [];
  const late = [];
  for (let i = 0; i < 60; i += 1) {{
    const before = canvas.dataset.painted;
    const pressed = performance.now();
    canvas.dispatchEvent(new KeyboardEvent('keydown', {{ key: i % 2 ? '-' : '+', bubbles: true }}));
    const next = frame();
    await null;
    const handled = performance.now();
    const [began, ended] = await next;
    work.push(handled - pressed + ended - began);
    late.push(ended - pressed);
    if (canvas.dataset.painted === before) throw new Error('the frame after an event did not show it');
  }}
  return {{ frame_ms: work, input_to_picture_ms: late }};
}}"""
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
NEXT = f"""async () => {{
  {UNTIL}
  const first = () => document.querySelector('tr[data-row] a')?.href; // rows may have equal names
  const before = first();
  const began = performance.now();
  [...document.querySelectorAll('.more button')].find((each) => each.textContent === 'Next page').click();
  await until(() => first() !== before);
  return performance.now() - began;
}}"""
# The first sentence of Now, which counts the remaining runs, and the moment of its change.
SENTENCE = "document.querySelector('main h1').textContent"
CHANGED = f"""async (before) => {{
  {UNTIL}
  await until(() => {SENTENCE} !== before);
  return Date.now();
}}"""
OPENED = f"""async () => {{
  {UNTIL}
  const began = performance.now();
  [...document.querySelectorAll('.tabs a')].find((each) => each.textContent === 'Timeline').click();
  await until(() => document.querySelector('canvas[data-painted]'));
  return performance.now() - began;
}}"""
HIDE = """Object.defineProperty(document, 'hidden', { value: true, configurable: true });
document.dispatchEvent(new Event('visibilitychange'))"""
CODE = """() => performance.getEntriesByType('resource').filter((each) => /[.](js|css)$/.test(each.name))
  .reduce((sum, each) => sum + each.encodedBodySize, 0)"""


def trace_of(spans: int) -> bytes:
    """A trace with this number of spans on four threads, as a trainer writes it."""
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
        "tasks": {"op": kinds, "layer": [None] * tasks, "label": [""] * tasks, "mean_s": [50e-6] * tasks},
        "calls": {"task": list(range(tasks)), "op": kinds}, "cores": [0, 1, 2, 3], "first_step": 0,
        "step_end_ns": [end * (i + 1) // 20 for i in range(20)], "threads": threads, "complete": True,
        "nodes": list(range(tasks)), "edges": [[i, i + 1] for i in range(tasks - 1)], "crossing": [],
    }).encode())  # fmt: skip


def window(browser: Browser) -> Page:
    """A new window that has finished its own start."""
    page = browser.new_page()
    page.wait_for_timeout(WINDOW_MS)
    return page


def loads(browser: Browser, url: str, rounds: int) -> dict[str, Any]:
    """Times to paint and to data of a page that is opened with an empty cache, in an open window. The first
    time is separate, since it may wait for an analysis.
    """
    paints, shown = [], []
    for i in range(rounds + 1):
        page = window(browser)
        page.add_init_script(WATCHED)
        page.goto(url, wait_until="commit")
        shown.append(page.evaluate(f"shownAt({60 if i else 300})"))
        paints.append(page.evaluate(PAINT))
        page.close()
    return {"first_paint_ms": paints[1:], "data_shown_ms": shown[1:], "data_shown_first_ms": shown[0]}


def lists(browser: Browser, url: str, presses: int) -> dict[str, list[float]]:
    """Milliseconds from a click on Next page to its rows, repeatedly; then from a typed letter to the next paint."""
    page = window(browser)
    page.goto(url)
    page.locator("tr[data-row]").first.wait_for()
    took = [page.evaluate(NEXT) for _ in range(presses)]
    typed = page.evaluate(TYPED)
    page.close()
    return {"next_page_ms": took, "input_to_paint_ms": typed}


def changes(page: Page, url: str, rounds: int) -> list[float]:
    """Milliseconds from the answer to a submission until the open page Now shows one run more."""
    took = []
    body = {"name": "bench", "base": {"model": "tiny"}, "requires": {"labels": {"bench": "nowhere"}}}
    with httpx.Client(base_url=f"{url}../api/v1/", timeout=60) as client:
        for _ in range(rounds):
            before = page.evaluate(SENTENCE)
            made = client.post("experiments", json=body).raise_for_status().json()["id"]
            answered = time.time()
            took.append(page.evaluate(CHANGED, before) - 1e3 * answered)
            before = page.evaluate(SENTENCE)
            client.post(f"experiments/{made}/cancel").raise_for_status()
            page.evaluate(CHANGED, before)
    return took


def sizes(page: Page) -> dict[str, int]:
    """Bytes of scripts and styles as sent: of the open page, and of all files."""
    every = (file for name, file in files.read().by_path.items() if name.endswith((".js", ".css")))
    return {"first_page": page.evaluate(CODE), "everything": sum(len(file.compressed) for file in every)}


def opened(browser: Browser, url: str, run_id: int, spans: int, times: int = 5) -> dict[str, Any]:
    """Times from the click on Timeline to its picture; then frames while the whole timeline is zoomed."""
    body = trace_of(spans)

    def answer(route: Route) -> None:
        route.fulfill(body=body, content_type="application/gzip")

    took = []
    for i in range(times):
        page = window(browser)
        page.route("**/artifacts/trace.json.gz", answer)
        page.goto(f"{url}run?id={run_id}&view=attempts")
        page.locator("main .skeleton").first.wait_for(state="detached")
        took.append(page.evaluate(OPENED))
        if i < times - 1:
            page.close()
    page.get_by_role("button", name="All 20 steps").click()
    page.wait_for_timeout(500)
    frames = page.evaluate(FRAMES)
    page.close()
    return {"spans": spans, "open_ms": took, **frames}


def idle(served: Served, page: Page, seconds: float, rounds: int) -> dict[str, Any]:
    """The server's CPU time and the requests of a tab that shows Now without use: seen, hidden and none, in turns.

    A server without readers works by itself, and not evenly, so each round compares with the round's own turns.
    """
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    now = page.url
    steps: dict[str, Callable[[], Any]] = {
        "seen": lambda: page.goto(now),
        "hidden": lambda: page.evaluate(HIDE),
        "none": lambda: page.goto("about:blank"),
    }
    found: dict[str, dict[str, list[float]]] = {name: {"server_cpu_share": [], "requests": []} for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step()
            page.wait_for_timeout(2000)
            asked.clear()
            began, before_s = time.monotonic(), served.cpu_s()
            page.wait_for_timeout(seconds / rounds * 1000)
            used_s, took_s = served.cpu_s() - before_s, time.monotonic() - began
            found[name]["server_cpu_share"].append(used_s / took_s)
            found[name]["requests"].append(len(asked))
    page.context.close()
    return found
