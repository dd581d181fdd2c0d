"""Lists filtered by expressions."""

from __future__ import annotations

import csv
import io
import json
import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import saved
from tests.support.patience import until

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made


def runs(world, text):
    answer = httpx.get(f"{world.home.url}/api/v1/runs", params={"filter": text, "limit": 500}, timeout=60)
    return answer.raise_for_status().json()["items"]


def test_a_list_is_filtered_by_an_expression_which_is_completed(world, tab):
    page = tab.open("experiments?view=runs")
    box = page.get_by_label("Filter")
    for typed, offered in (
        ("med", "median_step_s"),
        ("scheduler ", "scheduler in ("),
        ("scheduler = ta", "scheduler = task"),
        ("threads in (2) ", "threads in (2) and"),
        ("node = ", None),
    ):
        box.fill(typed)
        wanted = offered or f"node = {runs(world, 'median_step_s != null')[0]['node']}"
        expect(page.locator(f"#filter-next option[value={json.dumps(wanted)}]")).to_have_count(1)
    text = "scheduler = task and median_step_s < 100"
    box.fill(text)
    box.press("Enter")
    expect(page).to_have_url(re.compile("filter=scheduler"))
    found = runs(world, text)
    assert found
    expect(page.locator("tr[data-row]")).to_have_count(len(found))
    expect(page.get_by_label("Filter")).to_have_value(text)
    tab.refusals.add(422)
    box.fill("medain_step_s < 1")
    box.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("did you mean 'median_step_s'")


def test_the_runs_of_a_filter_are_had_as_csv(world, tab, tmp_path):
    text = "scheduler = task and state = succeeded"
    page = tab.open(f"experiments?view=runs&filter={text}")
    rows = csv.DictReader(io.StringIO(saved(page, page.get_by_role("button", name="CSV", exact=True).click, tmp_path)))
    assert [int(row["run_id"]) for row in rows] == sorted((run["id"] for run in runs(world, text)), reverse=True)


def test_experiments_and_points_of_series_are_had_as_csv(world, tab, tmp_path):
    def had(address):
        page = tab.open(address)
        press = page.get_by_role("button", name="CSV", exact=True).click
        return list(csv.DictReader(io.StringIO(saved(page, press, tmp_path))))

    query: dict[str, str | int] = {"filter": "threads = 2", "sort": "-runs", "limit": 500}
    answer = httpx.get(f"{world.home.url}/api/v1/experiments", params=query, timeout=60).raise_for_status()
    rows = had("experiments?filter=threads = 2&sort=-runs")
    assert [int(row["experiment_id"]) for row in rows] == [item["id"] for item in answer.json()["items"]]
    assert {row["name"] for row in rows} == {item["name"] for item in answer.json()["items"]}
    points = had("history?filter=scheduler = task")
    assert points
    assert {row["scheduler"] for row in points} == {"task"}


def test_experiments_and_series_have_the_same_box(world, tab):
    page = tab.open("experiments?filter=" + "scheduler = fork-join and threads = 2")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    page.goto(f"{world.home.url}/ui/history?filter=scheduler = fork-join")
    expect(page.locator("tr[data-row]").first).to_be_visible()
    expect(page.get_by_label("Filter")).to_have_value("scheduler = fork-join")


def test_columns_of_a_list_are_hidden_and_the_address_keeps_it(world, tab):
    page = tab.open("experiments?view=runs")
    heads = page.get_by_role("table", name="Runs").locator("th")
    before = heads.count()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Node", exact=True).last.uncheck()
    expect(page).to_have_url(re.compile("hide=Node"))
    page.get_by_label("Duration", exact=True).uncheck()
    expect(heads).to_have_count(before - 2)
    expect(heads.filter(has_text="Node")).to_have_count(0)
    assert page.locator("tr[data-row]").first.locator("td").count() == before - 2
    page.reload()
    expect(heads).to_have_count(before - 2)
    assert tab.violations() == []
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Duration", exact=True).check()
    expect(heads.filter(has_text="Duration")).to_have_count(1)
    page.goto(f"{world.home.url}/ui/experiments")
    expect(page.get_by_role("table", name="Experiments").locator("th")).to_have_count(6)


@pytest.mark.parametrize(
    ("path", "address", "link", "headers"),
    [
        ("runs", "experiments?view=runs", "run?id=", {
            "Experiment": "experiment_id", "State": "state", "Median step": "median_step_s",
            "Tokens/s": "tokens_per_s", "Flagged": "flagged_steps", "Node": "node", "Duration": "duration_s",
            "Ended": "finished_at", "threads": "threads", "Run": "id", "Variant": "variant",
            "Final loss": "final_loss", "Commit": "commit", "Trainer": "trainer_commit",
        }),
        ("experiments", "experiments", "experiment?id=", {
            "Question and verdict": "name", "State": "state", "Runs": "runs", "Submitter": "submitter",
            "Submitted": "created_at", "Ended": "finished_at", "Ratio": "ratio",
        }),
        ("analysis/history/series", "history", "history?series=", {
            "Configuration": "name", "Node": "node", "Latest": "median_step_s", "Runs": "runs", "Newest": "last_at",
            "Alerts": "alerts",
        }),
    ],
)  # fmt: skip
def test_a_list_is_sorted_by_the_header_that_is_clicked(world, tab, path, address, link, headers):
    def shown():
        found = page.locator(f"tr[data-row] a[href^='{link}']")
        return found.evaluate_all(
            "(links, name) => links.map(each => Number(new URL(each.href).searchParams.get(name)))",
            link.rpartition("?")[2].removesuffix("="),
        )

    def listed(sort):
        query = {"sort": sort, "limit": 50}
        answer = httpx.get(f"{world.home.url}/api/v1/{path}", params=query, timeout=60).raise_for_status().json()
        return [item["id"] for item in answer["items"]]

    def check(sort):
        wanted = listed(sort)
        until(lambda: shown() == wanted, f"rows in the order of {sort}")

    page = tab.open(f"{address}{'&' if '?' in address else '?'}show=threads,Final loss,Commit,Trainer,Ratio")
    table = page.get_by_role("table").last
    for label, name in headers.items():
        for sort, state in ((f"-{name}", "descending"), (name, "ascending")):
            table.get_by_role("button", name=label, exact=True).click()
            expect(table.get_by_role("columnheader", name=label, exact=True)).to_have_attribute("aria-sort", state)
            expect(page).to_have_url(re.compile(rf"[?&]sort={sort}(&|$)"))
            tab.settle()
            check(sort)
    page.reload()
    tab.settle()
    last = list(headers)[-1]
    expect(table.get_by_role("columnheader", name=last, exact=True)).to_have_attribute("aria-sort", "ascending")
    check(headers[last])
    assert tab.violations() == []


def test_the_list_of_experiments_has_models_axes_nodes_and_ratios(world, tab):
    of = httpx.get(f"{world.home.url}/api/v1/experiments/{world.compared}", timeout=60).raise_for_status().json()
    page = tab.open("experiments?show=Model,Axes,Nodes,Ratio&filter=id = " + str(world.compared))
    row = page.locator("tr[data-row]")
    found = of["verdict"]
    for shown in ("tiny", "scheduler", *of["nodes"], f"{found['ratio']:.3f}"):
        expect(row).to_contain_text(shown)
    assert of["nodes"]
    page.goto(f"{world.home.url}/ui/experiments?view=runs&show=Commit,Trainer&filter=experiment_id = {world.compared}")
    (commit, *_) = {run["trainer_commit"] for run in runs(world, f"experiment_id = {world.compared}")}
    expect(row.first).to_contain_text((commit or "–")[:8])


def test_further_columns_are_chosen_and_the_address_keeps_them(world, tab):
    page = tab.open(f"experiment?id={world.compared}&view=runs&hide=Node")
    heads = page.get_by_role("table", name="Runs").get_by_role("columnheader")
    before = heads.count()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("scheduler", exact=True).check()
    expect(page).to_have_url(re.compile("show=scheduler"))
    expect(heads).to_have_count(before + 1)
    of_runs = {run.id: run.settings.scheduler for run in world.runs}
    page.get_by_role("button", name="scheduler", exact=True).click()
    expect(heads.filter(has_text="scheduler")).to_have_attribute("aria-sort", "descending")
    cells = page.locator("tr[data-row] td:last-child")
    expect(cells).to_have_text(sorted(of_runs.values(), reverse=True))
    page.reload()
    expect(heads).to_have_count(before + 1)
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("scheduler", exact=True).uncheck()
    expect(page).to_have_url(re.compile("hide=Node"))
    expect(heads).to_have_count(before)
