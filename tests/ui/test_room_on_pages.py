"""Long tables scroll in themselves, equal rows of the queue are one, labels stay apart, and a plan stays in view."""

from __future__ import annotations

import csv
import io
import itertools
import re

import pytest
from playwright.sync_api import expect

from tests.support.browser import saved

pytestmark = pytest.mark.ui

SPEC = {"model": "tiny", "token_slice": 64, "batch_slice": 1, "steps": 3, "warmup": 1}


def test_tables_of_400_steps_scroll_in_themselves(api, make_result, new_tab):
    api.submit(base={**SPEC, "steps": 400})
    node = api.worker()
    node.upload(node.claim(), make_result([0.5] * 400, [5.0] * 400))
    tab = new_tab(api.url, viewport={"width": 1400, "height": 900})
    for view, caption in (("steps", "Steps"), ("validity", "Evidence")):
        page = tab.open(f"run?id=1&view={view}")
        table = page.get_by_role("region", name=caption, exact=True)
        expect(table.locator("tbody tr")).to_have_count(400)
        assert table.bounding_box()["height"] <= 0.6 * 900
        assert page.evaluate("document.scrollingElement.scrollHeight") < 3 * 900


def test_ops_begin_with_the_costliest_and_have_the_unit_that_fits(api, make_result, new_tab):
    api.submit(base=SPEC)
    node = api.worker()
    given = (("qkv", 1e-6), ("fc", 0.3), ("gelu", 0.02))
    ops = [{"op": op, "phase": "forward", "calls": 1, "time_s": s, "flop": 1000, "bytes": 1000} for op, s in given]
    node.upload(node.claim(), {**make_result([9.0, 0.5, 0.5]), "ops": ops})
    rows = new_tab(api.url).open("run?id=1&view=ops").get_by_role("region", name="Ops", exact=True)
    expect(rows.locator("td:first-child")).to_have_text(["fc", "gelu", "qkv"])
    expect(rows.locator("td:nth-child(4)")).to_have_text(["300 ms", "20.0 ms", "1.00 µs"])


def test_cores_of_a_worker_show_its_run(api, new_tab):
    api.submit(base=SPEC)
    node = api.worker(cores=[0, 1, 4])
    page = new_tab(api.url).open("fleet")
    expect(page.get_by_role("img", name="cores 0–1, 4: idle", exact=True)).to_be_visible()
    run = node.claim()["run_id"]
    expect(page.get_by_role("img", name=f"cores 0–1, 4: run {run}", exact=True)).to_be_visible()
    expect(page.get_by_title(f"core 4: run {run}", exact=True)).to_be_visible()


def test_equal_reasons_of_the_queue_are_one_row_with_their_number(api, new_tab):
    api.submit(base=SPEC, repetitions=28, requires={"labels": {"cpu": "nowhere"}})
    row = new_tab(api.url).open("fleet").get_by_role("region", name="Queue", exact=True).locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("1–28")
    expect(row).to_contain_text("28 runs")


def test_labels_of_a_roofline_do_not_overlap(api, make_result, new_tab):
    made = api.submit(base=SPEC)["id"]
    node = api.worker()
    node.upload(node.claim(), make_result([9.0, 0.5, 0.5]))
    ops = [
        {"op": f"projection_{i}", "phase": "forward", "time_share": 0.08, "intensity": 5 + i / 100, "bound": "memory",
         "achieved_gflop_per_s": 40 + i / 10, "achieved_gb_per_s": 8, "share": 0.8}
        for i in range(12)
    ]  # fmt: skip
    row = {"variant": {"variant": {"scheduler": "task"}, "scheduler": "task", "threads": 1}, "ops": ops, "phases": [],
           "peaks": {"threads": 1, "gflop_per_s": 100, "triad_gb_per_s": 10}, "mfu": 0.5, "missing": []}  # fmt: skip
    tab = new_tab(api.url)
    tab.page.route("**/api/v1/analysis/roofline?*", lambda route: route.fulfill(json={"rows": [row]}))
    plot = tab.open(f"experiment?id={made}&view=roofs").locator("figure.plot")
    labels = plot.locator("svg.drawn text", has_text="projection_")
    expect(labels.first).to_be_visible()
    boxes = [label.bounding_box() for label in labels.all()]
    assert 1 < len(boxes) < len(ops)  # the others have no room
    for a, b in itertools.combinations(boxes, 2):
        across = min(a["x"] + a["width"], b["x"] + b["width"]) - max(a["x"], b["x"])
        down = min(a["y"] + a["height"], b["y"] + b["height"]) - max(a["y"], b["y"])
        assert across <= 1 or down <= 3, (a, b)  # a line is a little higher than its letters
    plot.get_by_role("button", name="Table").click()
    expect(plot.locator("tr[data-row]")).to_have_count(len(ops))


def test_numbers_of_cores_are_whole(api, make_result, new_tab):
    made = api.submit(base=SPEC)["id"]
    node = api.worker()
    node.upload(node.claim(), make_result([9.0, 0.5, 0.5]))
    points = [{"cores": n, "step_s": 1 / n, "speedup": n, "measured_s": None, "error": None} for n in (1, 2)]
    curve = {"scheduler": "task", "bandwidth": "grows", "points": points}
    forecast = {
        "curves": [curve], "source": {"batch_slice": 1, "token_slice": 64, "variant": {}}, "source_run_id": 1,
        "source_run_ids": {"task": 1}, "given": True, "worst_error": None, "work_s": 1.0, "span_s": 0.5,
        "fork_join_span_s": 0.5, "tasks": 9, "assumptions": [],
    }  # fmt: skip
    tab = new_tab(api.url)
    answer = {"forecasts": [forecast], "missing": []}
    tab.page.route("**/api/v1/analysis/forecast?*", lambda route: route.fulfill(json=answer))
    plot = tab.open(f"experiment?id={made}&view=forecast").locator("figure.plot")
    expect(plot.locator("svg.drawn g").first.locator("text")).to_have_text(["1", "2", "cores"])


@pytest.mark.parametrize("width", [390, 1400])
def test_the_plan_and_its_button_stay_in_view_while_one_types(api, new_tab, width):
    """On a phone, where the whole plan would take the room that one types in, its time and number of runs stay."""
    tab = new_tab(api.url, viewport={"width": width, "height": 700})
    tab.refusals = {422}
    page = tab.open("new")
    page.locator("summary", has_text="More settings").click()
    page.get_by_label("Labels of the node").fill("cpu=zen4")
    expect(page.get_by_label("Labels of the node")).to_be_in_viewport()
    expect(page.get_by_role("button", name=re.compile("^Run [0-9]+ runs$"))).to_be_in_viewport(ratio=1)
    time = page.locator(".run-row span")
    expect(time).to_contain_text(re.compile("about|duration"))
    expect(page.locator(".verdict")).to_contain_text(time.text_content())
    if width > 900:
        expect(page.locator(".verdict")).to_be_in_viewport(ratio=1)
        expect(time).to_be_hidden()  # the plan has it
    else:
        expect(time).to_be_in_viewport(ratio=1)
        page.locator("#set-batch").fill("none")
        expect(page.locator(".run-row")).to_contain_text("This experiment cannot run as it is.")


@pytest.mark.parametrize(("width", "rows"), [(390, 3), (1400, 1)])
def test_speedups_of_a_step_and_its_passes_are_one_figure(api, make_result, new_tab, tmp_path, width, rows):
    made = api.submit(base=SPEC, axes={"scheduler": ["fork-join", "task"], "threads": [1, 2]})["id"]
    node = api.worker()
    for _ in range(4):
        lease = node.claim()
        threads = lease["spec"]["threads"]
        passes = {"forward": 0.3 / threads, "backward": 0.5, "update": 0.4 - 0.3 / threads}
        node.upload(lease, make_result([9.0, 1 / threads, 1 / threads], threads=threads, phase_share=passes))
    tab = new_tab(api.url, viewport={"width": width, "height": 900})
    page = tab.open(f"experiment?id={made}&view=scaling")
    figure = page.locator("figure.plot", has=page.get_by_role("heading", name="Speedup", exact=True))
    expect(figure).to_have_count(1)
    boxes = [figure.locator("svg text").get_by_text(part, exact=True).bounding_box()
             for part in ("step", "forward", "backward")]  # fmt: skip
    assert len({round(box["y"]) for box in boxes}) == rows
    expect(figure.locator("svg text").get_by_text("task", exact=True)).to_have_count(1)  # one legend
    ticks = [panel.locator("text").all_inner_texts()[1:] for panel in figure.locator("g[transform]").all()]
    assert ticks[0] == ticks[1] == ticks[2]  # one scale
    variants = api.get("/analysis/scaling", experiment_id=made)["rows"]
    shown = list(csv.DictReader(io.StringIO(saved(page, figure.get_by_role("button", name="CSV").click, tmp_path))))
    for part, end in (("step", ""), ("forward", "_forward"), ("backward", "_backward")):
        own = [float(row["speedup"]) for row in shown if row["part"] == part]
        assert own == pytest.approx([variant[f"speedup{end}"] for variant in variants])
    assert len({row["speedup"] for row in shown}) > 2
