"""Charts whose axes one chooses."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.present import present

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made

DOT = re.compile("^run ")


def runs(world, text):
    answer = httpx.get(f"{world.home.url}/api/v1/runs", params={"filter": text, "limit": 500}, timeout=60)
    return answer.raise_for_status().json()["items"]


def dots(page):
    return page.locator("figure.plot circle > title", has_text=DOT)


def test_a_chart_shows_the_runs_and_its_address_is_the_chart(world, tab):
    page = tab.open(f"experiment?id={world.compared}&view=chart")
    figure = page.locator("figure.plot")
    expect(figure.get_by_role("heading", name="median step by scheduler")).to_be_visible()
    expect(figure).to_contain_text("milliseconds a step")
    known = {run["id"]: run for run in runs(world, f"experiment_id = {world.compared}")}
    expect(dots(page)).to_have_count(len(known))
    for text in dots(page).all_text_contents():
        run_id, value = map(float, present(re.fullmatch(r"run (\d+): ([\d,.]+)", text)).groups())
        assert value == pytest.approx(known[int(run_id)]["median_step_s"] * 1e3, rel=1e-3)
    page.get_by_label("Vertical").select_option("parallel_efficiency")
    page.get_by_label("Panels").select_option("scheduler")
    expect(figure.get_by_text("scheduler fork-join")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Vertical")).to_have_value("parallel_efficiency")
    expect(figure.get_by_text("scheduler fork-join")).to_be_visible()
    figure.get_by_role("button", name="Table").click()
    expect(figure.locator("tr[data-row]")).to_have_count(len(known))
    figure.get_by_role("button", name="Plot").click()
    page.get_by_label("Horizontal").select_option("every setting")
    expect(figure.locator("svg.drawn path > title")).to_have_count(2)  # a line for each variant
    assert tab.violations() == []


def test_a_selection_of_runs_is_charted(world, tab):
    page = tab.open("experiments?view=chart")
    expect(page.get_by_text("A filter, or runs selected")).to_be_visible()
    page.get_by_label("Filter").fill("scheduler = task and state = succeeded")
    page.get_by_label("Filter").press("Enter")
    found = runs(world, "scheduler = task and state = succeeded")
    expect(dots(page)).to_have_count(len(found))
    tab.settle()
    page.goto(f"{world.home.url}/ui/experiments?view=runs&state=succeeded&marked={found[0]['id']}")
    page.locator("a.button", has_text="Chart").click()
    expect(dots(page)).to_have_count(1)
    assert "filter=state+%3D+succeeded" in page.url
