"""Numbers on a page equal those of the API."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
from collections import Counter
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from taskloom.server.read.dashboard import files
from tests.support.browser import saved
from tests.support.present import present
from tests.support.trace_example import FOUND

COLUMNS = ("what", "gap_ns", "duration_ns")
SHARED = """async ([below, columns, views]) => {
  const { traceOf } = await import(`${below}timeline/trace.js`);
  const { shares } = await import(`${below}timeline/paint.js`);
  const config = { scheduler: 'task', sync: 'step', threads: 1, batch_slice: 1, token_slice: 64 };
  const trace = traceOf({
    schema: 'taskloom-trace-1', config, ops: [], call_ops: [['qkv', 'forward']],
    tasks: { op: [], layer: [], label: [] },
    calls: { op: [0], task: [0] }, cores: [0], first_step: 0, step_end_ns: [0], complete: true, threads: [columns],
    nodes: [], edges: [], crossing: [],
  });
  const { duration } = trace;
  return [duration, views.map(([from, to]) => {
    const view = { from: from * duration, to: to * duration };
    const busy = new Float64Array(1000);
    const { owner, wide } = shares({ view, perNs: 1000 / (view.to - view.from) }, trace.threads[0], busy);
    return { owner: [...owner], wide, busy: [...busy] };
  })];
}"""

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made


def asked(world, path, **params):
    return httpx.get(f"{world.home.url}/api/v1/{path}", params=params, timeout=60).raise_for_status()


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def plot(page, title):
    return page.locator("figure.plot", has=page.get_by_role("heading", name=title, exact=True))


def test_the_verdict_comes_first(world, tab):
    sweep = asked(world, "analysis/sweep", experiment_id=world.compared).json()
    row = sweep["rows"][0]
    page = tab.open(f"experiment?id={world.compared}")
    verdict = page.locator(".verdict").first
    expect(verdict).to_contain_text(f"{row['ratio']:.3f}")
    expect(verdict).to_contain_text(row["verdict"])
    assert "astest" not in verdict.inner_text()
    expect(verdict).to_contain_text(sweep["verdict"]["sentence"])


def test_medians_and_ratios_of_an_experiment(world, tab, tmp_path):
    scaling = asked(world, "analysis/scaling", experiment_id=world.compared).json()["rows"]
    page = tab.open(f"experiment?id={world.compared}")
    shown = rows_of(saved(page, plot(page, "Median step").get_by_role("button", name="CSV").click, tmp_path))
    assert [float(row["median_step_ms"]) for row in shown] == pytest.approx(
        [row["step_s"]["median"] * 1e3 for row in scaling], rel=1e-5
    )
    sweep = asked(world, "analysis/sweep", experiment_id=world.compared).json()["rows"]
    shown = rows_of(saved(page, plot(page, "task against fork-join").get_by_role("button", name="CSV").click, tmp_path))
    assert [float(row["ratio"]) for row in shown] == pytest.approx([row["ratio"] for row in sweep], rel=1e-5)
    assert {row["p_adjusted"] for row in shown} == {""}  # three repetitions decide nothing
    plot(page, "Median step").get_by_role("button", name="Table").click()
    expect(plot(page, "Median step").get_by_role("row")).to_have_count(len(scaling) + 1)
    svg = saved(page, plot(page, "task against fork-join").get_by_role("button", name="SVG").click, tmp_path)
    assert "fork-join time / task time" in svg
    assert "var(--" not in svg


def test_bars_of_phases_and_the_step_beside_them(world, tab, tmp_path):
    rows = asked(world, "analysis/scaling", experiment_id=world.compared).json()["rows"]
    figure = plot(tab.open(f"experiment?id={world.compared}&view=scaling"), "Phases of a step")
    shown = rows_of(saved(tab.page, figure.get_by_role("button", name="CSV").click, tmp_path))
    svg = saved(tab.page, figure.get_by_role("button", name="SVG").click, tmp_path)
    bars = [[*map(float, bar)] for bar in re.findall(r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)"', svg)]
    lines = [[*map(float, line)] for line in re.findall(r'<path d="M([\d.]+) (\d+)v', svg)]
    for row, said, (at, top) in zip(rows, shown, lines, strict=True):
        phases = {name: 1e3 * s for name, s in row["phase_s"].items() if s}
        step = 1e3 * row["step_s"]["median"]
        times_ms = {name: float(value) for name, value in said.items() if name != "variant" and value}
        assert times_ms == pytest.approx({**phases, "median step": step})
        own = [(x, x + width) for x, y, width in bars if y == top + 2]
        left, right = min(x for x, _ in own), max(x for _, x in own)
        assert (at - left) / (right - left) == pytest.approx(step / sum(phases.values()))


def test_node_time(world, tab, tmp_path):
    run = world.runs[0].id
    views = ((f"experiments/{world.compared}", f"experiment?id={world.compared}&view=causes"),
             (f"runs/{run}", f"run?id={run}&view=attempts"))  # fmt: skip
    for path, view in views:
        parts = asked(world, path).json()["node_time"]
        figure = plot(tab.open(view), "Node time")
        (shown,) = rows_of(saved(tab.page, figure.get_by_role("button", name="CSV").click, tmp_path))
        wanted = [seconds for seconds in parts.values() if seconds]
        assert [float(value) for name, value in shown.items() if name != "variant"] == pytest.approx(wanted)
        share = 100 * parts["timed_s"] / sum(parts.values())
        expect(figure).to_contain_text(f"Timed steps took {share:.1f} % of the node's time")


def test_a_comparison(world, tab, tmp_path):
    schedulers = (("a", "fork-join"), ("b", "task"))
    sides = {side: f"experiment_id={world.compared},scheduler={scheduler}" for side, scheduler in schedulers}
    found = asked(world, "analysis/compare", **sides).json()
    page = tab.open("compare?" + str(httpx.QueryParams(sides)))
    expect(page.locator(".verdict")).to_contain_text(found["reason"])
    shown = rows_of(saved(page, plot(page, "Ratio").get_by_role("button", name="CSV").click, tmp_path))[0]
    assert (shown["verdict"], float(shown["ratio"])) == (found["verdict"], found["ratio"])
    svg = saved(page, plot(page, "Ratio").get_by_role("button", name="SVG").click, tmp_path)
    band = present(re.search(r'<rect x="([\d.]+)" y="4" width="([\d.]+)"', svg))
    line = present(re.search(r'<path d="M([\d.]+) 4V[^>]*stroke-width="1\.4', svg))
    low, width, one = map(float, band.groups() + line.groups())
    assert low + width / 2 == pytest.approx(one, abs=1e-6)  # from 1 / (1 + floor) to 1 + floor, as the verdict's
    title = "Pairs" if found["paired"] else "Processes"
    pairs = rows_of(saved(page, plot(page, title).get_by_role("button", name="CSV").click, tmp_path))
    wanted = {run.id: run.median_step_s * 1e3 for run in world.runs}
    assert {int(row["run"]): float(row["median_step_ms"]) for row in pairs} == pytest.approx(wanted)


def test_a_history(world, tab, tmp_path):
    series = asked(world, "analysis/history/series", sort="-runs").json()["items"][0]
    points = asked(world, f"analysis/history/series/{series['id']}/points", sort="finished_at").json()["items"]
    page = tab.open(f"history?series={series['id']}")
    figure = page.locator("figure.plot").first
    shown = rows_of(saved(page, figure.get_by_role("button", name="CSV").click, tmp_path))
    assert len(shown) == series["runs"] > 0
    assert [(int(row["run"]), float(row["median_step_s"])) for row in shown] == [
        (point["run_id"], pytest.approx(point["median_step_s"])) for point in points
    ]


def test_memory_of_training_beside_inference(world, tab, tmp_path):
    growth = asked(world, "analysis/memory", experiment_id=world.compared).json()["growth"]
    page = tab.open(f"experiment?id={world.compared}&view=memory")
    for one in growth:
        figure = plot(page, f"Training beside inference by {one['axis']}")
        expect(figure.get_by_text(one["sentence"])).to_be_visible()
        shown = rows_of(saved(page, figure.get_by_role("button", name="CSV").click, tmp_path))
        assert [(int(row[one["axis"]]), float(row["train, MiB"]), float(row["infer, MiB"])) for row in shown] == [
            (point["size"], pytest.approx(point["train_bytes"] / 2**20), pytest.approx(point["infer_bytes"] / 2**20))
            for point in one["points"]
        ]


def test_a_trace(world, tab, tmp_path):
    run = next(run.id for run in world.runs if run.variant["scheduler"] == "task" and run.attempts > 1)
    raw = asked(world, f"runs/{run}/artifacts/trace.json.gz").content
    trace = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    wanted: Counter[str] = Counter()
    for thread in trace["threads"]:
        lost = dict(zip(thread["run_delay"]["span"], thread["run_delay"]["ns"], strict=True))
        for i, (what, duration) in enumerate(zip(thread["what"], thread["duration_ns"], strict=True)):
            if what >= 0:
                wanted[" ".join(trace["call_ops"][trace["calls"]["op"][what]])] += duration - lost.get(i, 0)
    page = tab.open(f"run?id={run}&view=timeline")
    page.locator("canvas[data-painted]").wait_for()
    shown = rows_of(saved(page, plot(page, "Timeline, as traced").get_by_role("button", name="CSV").click, tmp_path))
    times_ms = {f"{row['op']} {row['phase']}": float(row["time_ms"]) for row in shown if row["phase"] != "waiting"}
    assert times_ms == pytest.approx({name: ns / 1e6 for name, ns in wanted.items()}, rel=1e-5)


WIDE = 4  # a span of at least this many pixels is drawn by itself


def share(since, until, pixel):
    """Share of a pixel that a span covers."""
    return max(0.0, min(until, pixel + 1) - max(since, pixel))


def test_a_pixel_is_given_to_the_span_that_takes_most_of_it(world, tab):
    """Drawing from blocks gives the same picture as drawing span by span."""
    pick = random.Random(0)
    spans = 20_000
    columns: dict[str, Any] = {"what": [pick.choice([0, 0, 0, -1]) for _ in range(spans)], "step": [0] * spans,
               "gap_ns": [pick.randrange(500) for _ in range(spans)],
               "duration_ns": [int(pick.paretovariate(1.2) * 1000) for _ in range(spans)]}  # fmt: skip
    preempted = [i for i in range(0, spans, 7) if columns["what"][i] >= 0]
    lost = {i: pick.randrange(columns["duration_ns"][i]) for i in preempted}
    columns["run_delay"] = {"span": preempted, "ns": list(lost.values())}
    views = [(0, 1), (0.1, 0.95), (0.313, 0.577), (0.5, 0.501)]
    page = tab.open("")
    below = f"{world.home.url}/ui/{files.read().version}/"
    duration, found = page.evaluate(SHARED, [below, columns, views])
    for (first, last), shown in zip(views, found, strict=True):
        begin, end = first * duration, last * duration
        per_ns = 1000 / (end - begin)
        most, wide, busy, spans_at, at = [0.0] * 1000, [], [0.0] * 1000, {}, 0
        for i, (what, gap, took) in enumerate(zip(*(columns[name] for name in COLUMNS), strict=True)):
            at += gap + took
            since, ran, until = (
                (max(begin, min(each, end)) - begin) * per_ns for each in (at - took, at - lost.get(i, 0), at)
            )
            if since >= 1000 or until <= 0:
                continue
            spans_at[i] = (since, until)
            if until - since >= WIDE:
                wide.append(i)
            for pixel in range(int(since), min(1000, int(until) + 1)):
                takes = share(since, until, pixel)
                busy[pixel] += (what >= 0) * share(since, ran, pixel)
                if until - since < WIDE:
                    most[pixel] = max(most[pixel], takes)
        assert shown["wide"] == wide
        assert shown["busy"] == pytest.approx(busy, abs=1e-6)
        taken = [share(*spans_at.get(i, (0, 0)), pixel) for pixel, i in enumerate(shown["owner"])]
        assert taken == pytest.approx(most, abs=1e-9)


def test_why_a_task_ran_when_it_did(world, tab):
    run = next(run.id for run in world.runs if run.variant["scheduler"] == "task" and run.attempts > 1)
    page = tab.open(f"run?id={run}&view=timeline")
    canvas = page.locator("canvas[data-painted]")
    canvas.wait_for()
    canvas.focus()
    for _ in range(3):
        page.keyboard.press("n")
    expect(page.locator(".chosen")).to_contain_text("on thread 0")
    before = canvas.get_attribute("data-painted")
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    expect(canvas).not_to_have_attribute("data-painted", before or "")
    page.wait_for_url("**t=*")
    seen = canvas.get_attribute("data-painted")
    page.reload()
    expect(page.locator("canvas[data-painted]")).to_have_attribute("data-painted", seen or "", timeout=20_000)


SHOWN = """async ([below, found]) => {
  const { said, totals, traceOf, why } = await import(`${below}timeline/trace.js`);
  const trace = traceOf(found);
  const place = { thread: 0, index: 0 };
  return [trace.flagged, totals(trace), said(trace, place).name, why(trace, place)];
}"""


def test_a_preempted_task_is_no_useful_work(world, tab):
    first, second = FOUND["threads"]
    disturbed = {**FOUND, "flagged": [["run_delay"], []],
                 "threads": [{**first, "run_delay": {"span": [0], "ns": [3000]}}, second]}  # fmt: skip
    page = tab.open("")
    below = f"{world.home.url}/ui/{files.read().version}/"
    _, before, _, plain = page.evaluate(SHOWN, [below, FOUND])
    flagged, after, name, text = page.evaluate(SHOWN, [below, disturbed])
    assert flagged == [["run_delay"], []]
    ns = [{(row["name"], row["phase"]): row["ns"] for row in rows} for rows in (before, after)]
    assert ns[1].pop(("not running within a task", "waiting")) == 3000
    assert ns[0].pop(("qkv", "forward")) - ns[1].pop(("qkv", "forward")) == 3000
    assert ns[0] == ns[1]
    assert name == "qkv[0] s0"
    assert text == f"Another process had the core for 3 µs of this span; when within it is unknown. {plain}"


def test_a_run_shows_what_its_trainer_chose(world, tab):
    run = next(iter(world.client.runs(world.compared)))
    page = tab.open(f"run?id={run.id}&view=settings")
    for name, left_open in (("fusion", "default"), ("blas", "auto")):
        value = page.locator("dt", has_text=re.compile(f"^{name}$")).locator("+ dd")
        expect(value).to_have_text(f"{left_open} {getattr(run.resolved, name)}")
    assert None not in (run.resolved.fusion, run.resolved.blas)
    expect(page.locator("dt", has_text="token slice").locator("+ dd")).to_have_text(str(run.resolved.token_slice))
