"""Charts whose axes one chooses."""

from __future__ import annotations

import math
import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from taskloom.contract.labels import KEPT, build_label
from tests.support.caller import Caller
from tests.support.present import present
from tests.support.processes import house

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


@pytest.fixture
def api(tmp_path):
    url = f"sqlite:///{tmp_path / 'charts.db'}"
    with house(tmp_path, url, analysis_processes=0) as home, httpx.Client(base_url=home.url, timeout=60) as http:
        yield Caller(http)


def chart_of(api, make_result, new_tab, axes, repetitions):
    """The chart of an experiment whose runs have succeeded."""
    settings: dict[str, Any] = {"token_slice": 64, "batch_slice": 1, "steps": 3, "warmup": 1, "scheduler": "task"}
    base = {name: value for name, value in settings.items() if name not in axes}
    made = api.submit(base={"model": "tiny", **base}, axes=axes, repetitions=repetitions)
    node = api.worker()
    for turn in range(math.prod(map(len, axes.values())) * repetitions):
        lease = node.claim()
        s = 0.5 + 0.001 * (turn % 7)
        node.upload(lease, make_result([9, s, s], **{**settings, **{name: lease["spec"][name] for name in axes}}))
    return new_tab(str(api.http.base_url).rstrip("/")).open(f"experiment?id={made['id']}&view=chart")


def test_a_sweep_of_four_axes_opens_as_parallel_coordinates(api, make_result, new_tab):
    axes = {"policy": ["breadth-first", "critical-path"], "sync": ["step", "none"], "token_slice": [32, 64],
            "seed": [1, 2]}  # fmt: skip
    page = chart_of(api, make_result, new_tab, axes, 1)
    expect(page.get_by_role("heading", name="median step by every setting")).to_be_visible()
    expect(page.locator("figure.plot svg.drawn path > title")).to_have_count(2**4)
    expect(page.get_by_label("Horizontal")).to_have_value("every setting")


def test_a_dot_has_an_interval_where_its_variant_has_enough_runs(api, make_result, new_tab):
    page = chart_of(api, make_result, new_tab, {"scheduler": ["fork-join", "task"]}, 8)
    bars = page.locator("figure.plot svg.drawn path[d*='h6m-3 0V']")
    expect(bars).to_have_count(2)
    page.get_by_label("Vertical").select_option("tokens_per_s")  # no interval of its median is known
    expect(bars).to_have_count(0)


def test_runs_of_two_builds_are_charted_by_their_commits(api, make_result, new_tab):
    builds, commits = ["a" * 64, "b" * 64], ["1" * 40, "2" * 40]
    base = {"model": "tiny", "token_slice": 64, "batch_slice": 1, "steps": 3, "warmup": 1}
    made = api.submit(base=base, axes={"policy": ["breadth-first", "critical-path"]}, builds=builds, repetitions=2)
    node = api.worker(labels={build_label(build): KEPT for build in builds})
    for _ in range(8):
        lease = node.claim()
        ran = {"core_hash": lease["build"], "core_commit": commits[builds.index(lease["build"])]}
        node.upload(lease, make_result([9, 0.5, 0.5], environment=ran, policy=lease["spec"]["policy"]))
    page = new_tab(str(api.http.base_url).rstrip("/")).open(f"experiment?id={made['id']}&view=chart&x=trainer_commit")
    figure = page.locator("figure.plot")
    expect(dots(page)).to_have_count(8)
    for shown in ("median step by trainer commit", "111111111111", "222222222222"):
        expect(figure).to_contain_text(shown)
    expect(figure).not_to_contain_text("1" * 13)
    page.get_by_label("Colour").select_option("build")
    page.get_by_label("Panels").select_option("policy")
    expect(figure).to_contain_text("policy critical-path")
    expect(figure).to_contain_text("bbbbbbbbbbbb")
    page.goto(f"{api.http.base_url}/ui/experiments?view=chart&filter=experiment_id = {made['id']}")
    page.get_by_label("Horizontal").select_option("policy")  # which is no main setting
    expect(dots(page)).to_have_count(8)
