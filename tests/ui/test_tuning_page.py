"""A tuning's page: what it says and plots is what the API answers, and its button runs the winner."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from browser import saved
from patience import until
from playwright.sync_api import expect

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made
BASE = {"model": "tiny", "batch": 2, "seq": 32, "steps": 4, "batch_slice": 1, "token_slice": 32}


@pytest.fixture(scope="module")
def tuned(world):
    """A tuning by the world's worker: 3 of 3 settings, no confirmation, 2 fresh draws."""
    space = {"scheduler": ["fork-join", "task"], "sync": ["step", "none"]}
    made = world.client.tune(BASE, space, runs=3, confirm=0, fresh=2, requires={"cores": 2}, name="which?").id
    until(lambda: world.client.experiment(made).verdict is not None, "the answer", 600)
    return made, world.client.tuning(made)


def test_the_page_shows_what_the_api_answers(tab, tuned, tmp_path):
    experiment_id, found = tuned
    page = tab.open(f"experiment?id={experiment_id}")
    expect(page.locator(".verdict")).to_contain_text(found.sentence)
    for lacking in found.missing:
        expect(page.get_by_text(f"Missing: {lacking}.")).to_be_visible()
    figure = page.locator("figure.plot", has=page.get_by_role("heading", name="Trials", exact=True))
    shown = list(csv.DictReader(io.StringIO(saved(page, figure.get_by_role("button", name="CSV").click, tmp_path))))
    assert [(int(row["run"]), float(row["ratio"])) for row in shown] == [
        (trial.run_id, pytest.approx(trial.ratio)) for trial in found.trials
    ]
    titles = re.findall("<title[^>]*>([^<]*)<", saved(page, figure.get_by_role("button", name="SVG").click, tmp_path))
    for trial in found.trials:
        assert any(title.startswith(f"run {trial.run_id}, ") and f"{trial.ratio:.3f}" in title for title in titles)
    lines = page.locator("figure.plot", has=page.get_by_role("heading", name="Settings of the trials"))
    expect(lines.locator('svg.drawn path[stroke="var(--good)"]')).to_have_count(1)  # the winner
    draws = page.get_by_role("region", name="Fresh draws").locator("tbody tr")
    expect(draws).to_have_count(2)
    for row, draw in zip(draws.all(), found.draws, strict=True):
        expect(row).to_contain_text(draw.state.replace("-", " "))
    page.get_by_role("link", name="Run with this").click()
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible()
    asked = page.url.partition("ask=")[2]
    assert asked == "" or json.dumps(found.best["scheduler"])[1:-1] in asked


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_the_page_is_accessible(world, new_tab, tuned, width, scheme):
    tab = new_tab(world.home.url, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = tab.open(f"experiment?id={tuned[0]}")
    expect(page.get_by_role("heading", name="Which settings mattered (exploratory)")).to_be_visible()
    assert tab.violations() == []
