"""A tuning's page: what it says and plots is what the API answers, and its button runs the winner."""

from __future__ import annotations

import csv
import io
import json
import math
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from sqlalchemy import delete

import taskloom.server.schema  # noqa: F401 (all tables)
from gpt2core.spec.config import TrainConfig
from taskloom.server.db import Database, now
from taskloom.server.queue.tables.runs import Series
from taskloom.server.read.tuning.kept import keep, problem_of
from tests.support.browser import saved
from tests.support.patience import until

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made
BASE = {"model": "tiny", "batch": 2, "seq": 32, "steps": 4, "batch_slice": 1, "token_slice": 32}
SERIES = {"key": "k", "config": {}, "runs": 1, "last_at": 1e12}


@pytest.fixture(scope="module")
def tuned(world):
    """A tuning by the world's worker: 3 of 3 settings, no confirmation, 2 fresh draws."""
    space = {"scheduler": ["fork-join", "task"], "sync": ["step", "none"]}
    made = world.client.tune(BASE, space, runs=3, confirm=0, fresh=2, requires={"cores": 2}, name="which?").id
    until(lambda: world.client.experiment(made).verdict is not None, "the answer", 600)
    return made, world.client.tuning(made)


def _heights(dots, found):
    """The vertical place of each trial's dot; those of disturbed trials are drawn last."""
    drawn = [trial for flagged in (False, True) for trial in found.trials if trial.flagged is flagged]
    places = {trial.run_id: dot.get_attribute("cy") for trial, dot in zip(drawn, dots.all(), strict=True)}
    return [places[trial.run_id] for trial in found.trials]


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
    dots = figure.locator("svg.drawn circle")
    expect(dots).to_have_count(len(found.trials))
    heights = {trial.ratio: float(y) for trial, y in zip(found.trials, _heights(dots, found), strict=True)}
    assert sorted(heights, key=heights.__getitem__) == sorted(heights, reverse=True)  # faster is higher
    lines = page.locator("figure.plot", has=page.get_by_role("heading", name="Settings of the trials"))
    expect(lines.locator('svg.drawn path[stroke="var(--good)"]')).to_have_count(1)  # the winner
    draws = page.get_by_role("region", name="Fresh draws").locator("tbody tr")
    expect(draws).to_have_count(2)
    for row, draw in zip(draws.all(), found.draws, strict=True):
        expect(row).to_contain_text(draw.state.replace("-", " "))
    effects = page.get_by_role("region", name="Importance of the settings").locator("tbody tr")
    expect(effects).to_have_count(len(found.importance))
    for row, effect in zip(effects.all(), found.importance, strict=True):
        expect(row).to_contain_text(effect.setting)
        expect(row).to_contain_text(f"{100 * math.expm1(effect.effect):.1f} %")
    page.get_by_role("link", name="Run with this").click()
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible()
    asked = page.url.partition("ask=")[2]
    assert asked == "" or json.dumps(found.best["scheduler"])[1:-1] in asked


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_the_page_is_accessible(world, new_tab, tuned, width, scheme):
    tab = new_tab(world.home.url, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = tab.open(f"experiment?id={tuned[0]}")
    expect(page.get_by_role("heading", name="Drawn at random after the choice")).to_be_visible()
    assert tab.violations() == []


def test_the_form_offers_a_confirmed_setting_with_its_evidence(world, tab, tuned):
    experiment_id, _ = tuned
    problem = problem_of(TrainConfig.from_dict({**BASE, "batch": 3}).to_dict())
    fields = {
        "node": "node-7", "machine": {"node": "node-7"}, "problem": problem, "ratio": 1.2, "ratio_low": 1.1,
        "ratio_high": 1.3, "pairs": 8, "beats_at_least": 0.86, "sentence": "task, sync none is 1.20 times as fast.",
        "settings": {"scheduler": "task", "sync": "none", "threads": 2},
    }  # fmt: skip
    database = Database(world.home.database_url, 30.0)
    with database.write() as session:
        keep(session, experiment_id, now(session), fields)
    address = f"new?ask={quote(json.dumps({'base': {**BASE, 'batch': 3}}))}"
    newest = SERIES | {"node": "node-7", "machine": {"node": "node-7", "turbo": True}}
    with database.write() as session:
        session.add(Series(**newest))
    notice = tab.open(address).locator(".notice", has_text="task, sync none is 1.20 times as fast.")
    expect(notice).to_contain_text("The node has changed since (turbo): tune again.")
    expect(notice.get_by_role("button")).to_have_count(0)
    with database.write() as session:
        session.execute(delete(Series).where(Series.node == "node-7"))
    database.close()
    page = tab.open(address)
    notice = page.locator(".notice", has_text="task, sync none is 1.20 times as fast.")
    expect(notice).to_contain_text("on node-7")
    notice.get_by_role("button", name="Use its setting").click()
    expect(notice).to_have_count(0)
    expect(page.locator("#set-threads")).to_have_value("2")
    assert tab.violations() == []
