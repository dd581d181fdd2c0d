"""Pages about prepared results: a confirmed alert, and the differences that a calibrated node can detect."""

from __future__ import annotations

import csv
import io
import math
import re
from statistics import median
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from gpt2core.spec.latency import latency
from tests.support.browser import saved
from tests.support.caller import Caller
from tests.support.patience import until
from tests.support.present import present
from tests.support.processes import house

pytestmark = pytest.mark.ui

SPEC = {"model": "tiny", "token_slice": 64, "batch_slice": 1, "steps": 3, "warmup": 1}
COMMITS = "https://example.org/{from}...{to}"
NOISE = (1.0, 1.004, 0.996, 1.002, 0.998, 1.006)


@pytest.fixture
def api(tmp_path):
    """A server of its own, which confirms alerts only on request."""
    url = f"sqlite:///{tmp_path / 'measured.db'}"
    with (
        house(tmp_path, url, confirm_alerts=False, poll_s=0.2, analysis_processes=0, commits_url=COMMITS) as home,
        httpx.Client(base_url=home.url, timeout=60) as http,
    ):
        yield Caller(http)


def run_all(node, make_result, step_s, core_hash):
    """Execute the queued runs with one version of the core. The median step of each run is the next value of step_s."""
    for s in step_s:
        lease = node.claim()
        environment = {"core_hash": core_hash}
        result = make_result([9, s, s], scheduler=lease["spec"]["scheduler"], environment=environment)
        result["canary"] = {"sha256": "c" * 64, "times_s": [0.02, 0.02]}
        node.upload(lease, result)


def test_a_slowdown_is_confirmed(api, make_result, new_tab):
    node = api.worker()
    for level, core_hash in ((1.0, "old"), (1.1, "new")):
        api.submit(name=core_hash, base=SPEC, repetitions=6)
        run_all(node, make_result, [s * level for s in NOISE], core_hash)
    (alert,) = until(lambda: api.get("/analysis/alerts", state="suspected")["items"], "the alert")
    tab = new_tab(str(api.http.base_url).rstrip("/"))
    page = tab.open("")
    expect(page.get_by_role("heading", level=1)).to_contain_text("1 suspected slowdown")
    page.get_by_role("link", name="History", exact=True).first.click()
    tab.settle()
    slowdown = page.get_by_role("table", name="Alerts").get_by_role("row").nth(1)
    expect(slowdown).to_contain_text("suspected")
    slowdown.get_by_role("button", name=f"Confirm with fresh runs of run {alert['run_id']}").click()
    expect(page.get_by_role("status").filter(has_text="Fresh runs are queued")).to_be_visible()
    expect(slowdown).to_contain_text("confirming")
    assert tab.violations() == []
    run_all(node, make_result, [s * 1.1 for s in NOISE], "new")
    expect(slowdown).to_contain_text("confirmed")  # without a reload
    page.get_by_role("link", name=re.compile("thread")).first.click()
    expect(page.get_by_role("table", name="Changes")).to_contain_text("core_hash")
    expect(page.get_by_role("table", name="Changes")).to_contain_text("confirmed")
    page.get_by_role("link", name="Now", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("1 confirmed slowdown")


def test_a_history_is_drawn_by_commit_and_any_metric(api, make_result, new_tab):
    node = api.worker()
    for level, commit, build in ((1.0, "a" * 40, "old"), (1.0, "b" * 40, "old"), (1.1, "c" * 40, "new")):
        api.submit(name=commit[:3], commit=commit, branch="main", base=SPEC, repetitions=4)
        run_all(node, make_result, [s * level for s in NOISE[:4]], build)
    tab = new_tab(str(api.http.base_url).rstrip("/"))
    page = tab.open("history?series=1")
    changes = page.get_by_role("table", name="Changes")
    link = changes.get_by_role("link", name="bbbbbbbb…cccccccc")
    expect(link).to_have_attribute("href", f"https://example.org/{'b' * 40}...{'c' * 40}")
    plot = page.locator("figure").first
    for shown in ("aaaaaaaa", "bbbbbbbb", "cccccccc", "milliseconds a step"):
        expect(plot).to_contain_text(shown)
    expect(page.get_by_text("the line is the median of each commit")).to_be_visible()
    page.get_by_label("Metric").select_option("canary_s")
    expect(plot).to_contain_text("milliseconds, canary")
    page.get_by_label("Metric").select_option("op qkv")
    expect(plot).to_contain_text("milliseconds of threads a step, qkv")
    page.get_by_label("Axis").select_option("dates")
    expect(plot).to_contain_text("end of the run, UTC")
    assert "op=qkv" in page.url
    assert tab.violations() == []
    api.submit(name="again", commit="a" * 40, branch="main", base=SPEC, repetitions=4)
    run_all(node, make_result, [s * 1.3 for s in NOISE[:4]], "newest")
    page.goto(page.url.partition("/ui/")[0] + "/ui/history?series=1")
    plot.get_by_role("button", name="Table").click()
    names = plot.get_by_role("columnheader").all_inner_texts()
    cells = [row.locator("td").all_inner_texts() for row in plot.locator("[data-row]").all()]
    rows = [dict(zip(names, texts, strict=True)) for texts in cells]
    assert [row["commit"][0] for row in rows] == list("aaaaaaaabbbbcccc")  # the first was measured again at the end
    levels = {row["commit"][0]: float(row["level"]) for row in rows}
    measured = {"a": [*NOISE[:4], *(s * 1.3 for s in NOISE[:4])], "b": NOISE[:4], "c": [s * 1.1 for s in NOISE[:4]]}
    assert levels == {name: pytest.approx(1e3 * median(of), rel=1e-4) for name, of in measured.items()}
    page.goto(page.url.partition("/ui/")[0] + "/ui/experiments?commit=bbbbbbb")
    rows = page.get_by_role("table", name="Experiments").get_by_role("row")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("bbbbbbbb main")


def test_the_new_page_says_what_could_be_told_apart_while_one_types(api, make_result, new_tab):
    node = api.worker()
    api.submit(name="A/A", base=SPEC, repetitions=20, calibrates=True)
    run_all(node, make_result, [s * (1 + 0.001 * i) for i in range(3) for s in NOISE] + [1.0, 1.001], "abc")
    page = new_tab(str(api.http.base_url).rstrip("/")).open("new")

    def least(repetitions):
        """The smallest detectable difference that the page names for a number of repetitions, in percent."""
        page.get_by_label("Repetitions").fill(str(repetitions))
        expect(page.locator(".verdict")).to_contain_text(f"{4 * repetitions} runs")
        text = page.locator(".verdict").inner_text()
        return float(present(re.search(r"detects differences of ([\d.]+) % or more", text)).group(1))

    few, many = least(8), least(100)
    assert many < few
    expect(page.locator(".verdict")).to_contain_text("n1: ")
    page.get_by_label("Repetitions").fill("2")
    expect(page.locator(".verdict")).to_contain_text("too few to detect a difference")


def run_each(api, make_result, axes):
    """Execute task with every combination of the axes once; each takes 1 ms a step more than the one before."""
    node, settings = api.worker(), {**SPEC, "scheduler": "task"}
    made = api.submit(base={name: value for name, value in settings.items() if name not in axes}, axes=axes)
    for ms in range(1, math.prod(map(len, axes.values())) + 1):
        lease = node.claim()
        varied = {name: lease["spec"][name] for name in axes}
        node.upload(lease, make_result([9, ms / 1e3, ms / 1e3], **{**settings, **varied, "steps": 3}))
    return made


def test_slices_have_a_map_for_each_variant_of_the_other_settings(api, make_result, new_tab):
    axes: dict[str, list[Any]] = {"sync": ["step", "none"], "token_slice": [32, 64]}
    experiment = run_each(api, make_result, axes)
    page = new_tab(str(api.http.base_url).rstrip("/")).open(f"experiment?id={experiment['id']}&view=scaling")
    slices = page.locator("figure.plot", has=page.get_by_role("heading", name="Slices", exact=True))
    for sync in axes["sync"]:
        expect(slices).to_contain_text(f"task, 1 thread, sync {sync}")
    cells = slices.locator("rect[fill='var(--task)']")
    expect(cells).to_have_count(4)
    places = [tuple(cell.get_attribute(name) for name in ("x", "y")) for cell in cells.all()]
    assert len(set(places)) == 4


def test_long_names_of_variants_stay_apart_in_a_plot(api, make_result, new_tab):
    axes = {"policy": ["breadth-first", "critical-path", "program-order"], "sync": ["step", "none"],
            "token_slice": [32, 64]}  # fmt: skip
    experiment = run_each(api, make_result, axes)
    page = new_tab(str(api.http.base_url).rstrip("/")).open(f"experiment?id={experiment['id']}")
    plot = page.locator("figure.plot", has=page.get_by_role("heading", name="Median step", exact=True))
    expect(plot.locator("svg text:has(title)").first).to_be_visible()
    rows: dict[str, Any] = {}
    for label in plot.locator("svg text:has(title)").all():
        rows.setdefault(label.locator("title").text_content(), []).append(label.evaluate("e => e.firstChild.data"))
    assert len(rows) == 12
    assert any(len(lines) == 2 for lines in rows.values())
    for name, lines in rows.items():
        assert " ".join(lines) == name


def lines_of(log):
    return [line for line in log.inner_text().splitlines() if line.startswith("line")]


def test_a_log_opens_with_its_last_lines_and_shows_the_earlier_ones_and_goes_on(api, new_tab):
    node = api.worker()
    api.submit(base=SPEC)
    lease = node.claim()

    def printed(first, count):
        output = {"first": first, "lines": [f"line {first + i}" for i in range(count)]}
        body = {"worker_id": "w1", "attempt_no": 1, "progress": {"stage": "training", "step": 1, "steps": 3}}
        api.post(f"/attempts/{lease['attempt_id']}/heartbeat", {**body, "output": output})

    for first in range(1, 700, 100):
        printed(first, 100)
    page = new_tab(str(api.http.base_url).rstrip("/")).open(f"run?id={lease['run_id']}&view=log")
    log = page.get_by_label("Log", exact=True)
    expect(log).to_contain_text("line 700")
    assert lines_of(log) == [f"line {i}" for i in range(201, 701)]
    assert log.evaluate("(log) => log.scrollHeight - log.clientHeight - log.scrollTop") < 5  # scrolled to its end
    page.get_by_role("button", name="Show earlier lines").click()
    until(lambda: lines_of(log) == [f"line {i}" for i in range(1, 701)], "all lines")
    printed(701, 1)
    expect(log).to_contain_text("line 701")


def test_steps_are_drawn_while_their_run_is_under_way(api, new_tab):
    node = api.worker()
    api.submit(base=SPEC)
    lease = node.claim()

    def done(first, *step_s):
        steps = {"first": first, "step_s": step_s, "loss": [5.0] * len(step_s)}
        progress = {"stage": "training", "step": first + len(step_s) - 1, "steps": 3}
        body = {"worker_id": "w1", "attempt_no": 1, "progress": progress, "steps": steps}
        api.post(f"/attempts/{lease['attempt_id']}/heartbeat", body)

    done(1, 1.0, 0.5)
    page = new_tab(str(api.http.base_url).rstrip("/")).open(f"run?id={lease['run_id']}")
    heading = page.get_by_role("heading", name="Step time so far", exact=True)
    figure = page.locator("figure.plot", has=heading)
    figure.get_by_role("button", name="Table").click()
    rows = figure.get_by_role("row")
    expect(rows).to_have_count(3)  # two rows and the heading
    done(3, 0.25)
    expect(rows).to_have_count(4)
    expect(rows.last).to_contain_text("250")


def test_the_accuracy_of_classes_is_drawn_beside_the_loss(api, new_tab):
    node = api.worker()
    api.submit(base={"model": "resnet14-cifar", "batch": 2, "steps": 3})
    lease = node.claim()

    def report(step, **steps):
        progress = {"stage": "training", "step": step, "steps": 3, "tokens_per_s": 64.0}
        body = {"worker_id": "w1", "attempt_no": 1, "progress": progress, "steps": steps}
        api.post(f"/attempts/{lease['attempt_id']}/heartbeat", body)

    report(2, first=1, step_s=[1.0, 0.5], loss=[2.5, 1.25], accuracy=[0.25, 0.75])
    page = new_tab(str(api.http.base_url).rstrip("/")).open(f"run?id={lease['run_id']}")
    expect(page.locator(".verdict")).to_contain_text("64 images/s")
    boxes = []
    for name, shown in (("Loss", "1.25"), ("Accuracy", "0.75")):
        figure = page.locator("figure.plot", has=page.get_by_role("heading", name=name, exact=True))
        boxes.append(figure.bounding_box())
        figure.get_by_role("button", name="Table").click()
        expect(figure.get_by_role("row").last).to_contain_text(shown)
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    expect(page.get_by_text("evaluation accuracy")).to_have_count(0)
    report(3, first=3, step_s=[0.5], loss=[1.0], accuracy=[0.875], evaluation_loss=[1.125], evaluation_accuracy=[0.625])
    for name, shown in (("Loss", "1.125"), ("Accuracy", "0.625")):  # while the run goes on
        figure = page.locator("figure.plot", has=page.get_by_role("heading", name=name, exact=True))
        expect(figure.get_by_role("row").last).to_contain_text(shown)
        expect(figure).to_contain_text("Points: all images of the evaluated split, after that step.")


def test_a_plot_of_many_runs_says_how_many_it_shows_and_its_intervals_rest_on_all(api, make_result, new_tab, tmp_path):
    node = api.worker()
    made = api.submit(base=SPEC, axes={"scheduler": ["fork-join", "task"]}, repetitions=251)["id"]
    run_all(node, make_result, [NOISE[i % 6] for i in range(502)], "abc")
    tab = new_tab(str(api.http.base_url).rstrip("/"))
    page = tab.open(f"experiment?id={made}")
    figure = page.locator("figure.plot", has=page.get_by_role("heading", name="Median step", exact=True))
    expect(figure).to_contain_text("500 of 502 runs shown")
    rows = list(csv.DictReader(io.StringIO(saved(page, figure.get_by_role("button", name="CSV").click, tmp_path))))
    assert [row["processes"] for row in rows] == ["251", "251"]
    sides = "&".join(
        f"{side}=experiment_id%3D{made}%2Cscheduler%3D{name}" for side, name in (("a", "fork-join"), ("b", "task"))
    )
    page = tab.open(f"compare?{sides}")
    expect(page.locator("figure.plot", has_text="Median of each process")).to_contain_text("500 of 502 runs shown.")
    expect(page.locator("main")).to_contain_text("251 runs")
    page = tab.open("run?id=1")
    expect(page.locator("p.verdict").first).to_contain_text("of 251 runs of its variant")
    page.route("**/api/v1/runs?*", lambda route: route.continue_(url=route.request.url.replace("=500", "=100")))
    page.reload()
    expect(page.locator("p.verdict").first).to_contain_text("compared with the first 100 runs")


INSTRUCTIONS = {"fork-join": 3.0e9, "task": 2.5e9}


def compared(api, make_result, counters_of):
    """Selections of the runs of two schedulers, eight pairs, with the given counters."""
    node = api.worker()
    made = api.submit(base=SPEC, axes={"scheduler": ["fork-join", "task"]}, repetitions=8)["id"]
    for i in range(16):
        lease = node.claim()
        scheduler = lease["spec"]["scheduler"]
        s = NOISE[i % 6] * (1.0 if scheduler == "fork-join" else 0.9)
        node.upload(lease, {**make_result([9, s, s], scheduler=scheduler), "counters": counters_of(scheduler, i)})
    return {side: f"experiment_id={made},scheduler={name}" for side, name in (("a", "fork-join"), ("b", "task"))}


def test_a_comparison_shows_instructions_beneath_the_time(api, make_result, new_tab, tmp_path):
    def counters(scheduler, i):
        counted = INSTRUCTIONS[scheduler] * (1 + 0.001 * i)
        return {"threads": [{"instructions": counted, "cycles": None}], "unavailable": {}}

    sides = compared(api, make_result, counters)
    wanted = api.get("/analysis/compare", **sides)
    assert wanted["instructions"]["ratio"] == pytest.approx(1.2, rel=0.01)
    tab = new_tab(str(api.http.base_url).rstrip("/"))
    page = tab.open("compare?" + str(httpx.QueryParams(sides)))
    plot = page.locator("figure.plot", has=page.get_by_role("heading", name="Ratio", exact=True))
    expect(plot.locator("svg.drawn text", has_text="instructions")).to_be_visible()
    rows = list(csv.DictReader(io.StringIO(saved(page, plot.get_by_role("button", name="CSV").click, tmp_path))))
    assert [row["metric"] for row in rows] == ["time", "instructions"]
    for row, found in zip(rows, (wanted, wanted["instructions"]), strict=True):
        shown = [float(row[name]) for name in ("ratio", "ratio_low", "ratio_high")]
        assert shown == [pytest.approx(found[name]) for name in ("ratio", "ratio_low", "ratio_high")]
    low, high = (f"{wanted['instructions'][name]:.3f}" for name in ("ratio_low", "ratio_high"))
    said = page.get_by_role("definition").filter(has_text=f"[{low}, {high}]")
    expect(said).to_have_text(f"{wanted['instructions']['ratio']:.3f} [{low}, {high}]")
    assert tab.violations() == []


def test_a_comparison_without_counters_says_why_instructions_are_not_known(api, make_result, new_tab):
    why = "perf_event_open: the kernel forbids it"
    nothing = {"threads": [{"instructions": None, "cycles": None}], "unavailable": {"instructions": why}}
    sides = compared(api, make_result, lambda *_: nothing)
    page = new_tab(str(api.http.base_url).rstrip("/")).open("compare?" + str(httpx.QueryParams(sides)))
    expect(page.get_by_role("definition").filter(has_text="not known")).to_have_text(f"not known: {why}")
    assert page.locator("svg.drawn text", has_text="instructions").count() == 0


def test_a_generation_has_its_tokens_and_its_rates(api, make_result, new_tab):
    settings = {"model": "tiny", "mode": "infer", "generate": 3, "prompt": [5, 7], "warmup": 0}
    made = api.submit(base={**settings, "batch_slice": 1, "token_slice": 1})
    node, step_s = api.worker(), [0.012, 0.008]
    lease = node.claim()
    result = make_result(step_s, **{**settings, "token_slice": 1})
    phases = {
        name: {phase: spans for phase, spans in result[name].items() if phase in ("data", "forward")}
        for name in ("phase_s", "phase_busy_s")
    }
    rates = {"tokens_per_s": 100.0, "weights_gb_per_s": 1.25, "triad_gb_per_s": 17.5}
    result |= {
        **phases, "losses": [], "weights_sha256": None, "outputs_sha256": "o", "outputs_sketch": [1.0] * 64,
        "latency": latency(step_s), "tokens": [11, 200, 4], "time_to_first_token_s": 0.07, "summary": rates,
    }  # fmt: skip
    node.upload(lease, result)
    (run,) = api.runs(made["id"])
    tab = new_tab(str(api.http.base_url).rstrip("/"))
    page = tab.open(f"run?id={run['id']}")
    panel = page.locator("section.panel", has=page.get_by_role("heading", name="Generation", exact=True))
    figures = dict(zip(panel.locator("dt").all_inner_texts(), panel.locator("dd").all_inner_texts(), strict=True))
    assert {name: " ".join(text.split()) for name, text in figures.items()} == {
        "Time to first token": "70.0 ms after 2 tokens of prompt",
        "Tokens/s": "100",
        "Weights read": "1.25 GB/s 7 % of the triad’s 17.5 GB/s",
    }
    expect(panel.get_by_role("heading", name="3 generated tokens")).to_be_visible()
    expect(panel.locator("code")).to_have_text("11, 200, 4")
    assert tab.violations() == []


def test_tables_of_threads_are_named_as_they_are_written(api, new_tab):
    tables = [None, "qkv*=1", {"fc[1]": 2, "logits": 1}]
    base = {"model": "tiny", "scheduler": "fork-join", "threads": 2}
    made = api.submit(base=base, axes={"op_threads": tables}, repetitions=1)
    names = {f"tiny, op threads {name}" for name in ("default", "qkv*=1", "fc[1]=2,logits=1")}
    tab = new_tab(str(api.http.base_url).rstrip("/"))
    pages = [tab.open(f"run?id={run['id']}") and tab.page.locator("h1").inner_text() for run in api.runs(made["id"])]
    assert {title.partition(": ")[2] for title in pages} == names


def test_a_history_shows_a_threshold_and_what_is_outside(api, make_result, new_tab):
    node = api.worker()
    api.submit(name="first", base=SPEC, repetitions=4)
    run_all(node, make_result, NOISE[:4], "old")
    api.put("/analysis/history/series/1/threshold", {"reference_s": 0.9, "upper": 5, "lower": -10})
    api.submit(name="second", base=SPEC, repetitions=4)
    run_all(node, make_result, NOISE[:4], "old")
    until(lambda: api.get("/analysis/alerts", state="above")["items"], "the alert")
    tab = new_tab(str(api.http.base_url).rstrip("/"))
    page = tab.open("")
    expect(page.get_by_text("times as long since run")).to_be_visible()
    page = tab.open("history?series=1")
    page.locator("#choice-alert").select_option("within")
    expect(page.locator("main")).to_contain_text("Nothing is in this state.")
    page.locator("#choice-alert").select_option("above")
    alert = page.get_by_role("table", name="Alerts").get_by_role("row").nth(1)
    expect(alert).to_contain_text("above its limits")
    plot = page.locator("figure").first
    for limit in ("reference 900", "5 % 945", "-10 % 810"):
        expect(plot).to_contain_text(limit)
    assert plot.locator("path[stroke-dasharray='6 4']").count() == 3
    assert tab.violations() == []
    page.get_by_label("Metric").select_option("tokens_per_s")
    expect(plot).not_to_contain_text("reference")
