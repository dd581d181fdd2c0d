"""Runs with a goal: the pages show what the way to it took, and its cost."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.caller import Caller
from tests.support.processes import house

pytestmark = pytest.mark.ui

PRICE, NODE_S = 7.2, {"starting_s": 1.0, "timed_s": 3.0}
GOAL = {"metric": "loss", "value": 4.75}


@pytest.fixture
def api(tmp_path):
    url = f"sqlite:///{tmp_path / 'goals.db'}"
    with (
        house(tmp_path, url, price_per_node_hour=PRICE, analysis_processes=0) as home,
        httpx.Client(base_url=home.url, timeout=60) as http,
    ):
        yield Caller(http)


def run(node, make_result, losses, **goal):
    """A run that took so many steps of 0.5 s; goal: what the way took."""
    lease = node.claim()
    result = make_result([0.5] * len(losses), losses, steps=6, stop_at={"loss": 4.75})
    node.upload(lease, {**result, "goal": {**GOAL, **goal}, "node_time": NODE_S})
    return lease["run_id"]


def test_the_way_to_the_goal_and_its_cost(api, make_result, new_tab):
    base = {"model": "tiny", "token_slice": 64, "batch_slice": 1, "steps": 6, "warmup": 1, "stop_at": "loss=4.75"}
    made = api.submit(base=base, repetitions=2)["id"]
    node = api.worker()
    reached = run(node, make_result, [5.0, 4.9, 4.8, 4.7], reached=True, steps=4, time_s=2.0, energy_j=6.5,
                  energy_missing=None)  # fmt: skip
    missed = run(node, make_result, [5.0] * 6, reached=False, steps=None, time_s=None, energy_j=None,
                 energy_missing="the goal was not reached")  # fmt: skip
    tab = new_tab(str(api.http.base_url).rstrip("/"))
    page = tab.open(f"run?id={reached}")
    figures = page.locator("dl.figures").first
    expect(figures).to_contain_text("loss ≤ 4.75")
    expect(figures).to_contain_text("after 4 steps, 2.0 s, 6.500 J")
    expect(figures).to_contain_text("0.008")  # 4 s of the node at 7.2 an hour
    expect(figures).to_contain_text("0.004")  # 2 s to the goal
    assert [api.get(f"/runs/{reached}")[name] for name in ("cost", "cost_to_goal")] == [
        pytest.approx(0.008), pytest.approx(0.004),
    ]  # fmt: skip
    page = tab.open(f"run?id={missed}")
    expect(page.get_by_text("not reached in 6 steps")).to_be_visible()
    expect(page.get_by_text("Cost to the goal")).to_have_count(0)
    page = tab.open(f"experiment?id={made}&view=scaling")
    row = page.get_by_role("region", name="The way to the goal").locator("tbody tr")
    expect(row).to_contain_text("loss ≤ 4.75")
    expect(row).to_contain_text("1 of 2")
    expect(page.get_by_text("Energy is unknown: the goal was not reached.")).to_be_visible()
    assert tab.violations() == []
