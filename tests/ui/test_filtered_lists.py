"""Lists filtered by expressions."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from playwright.sync_api import expect

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
