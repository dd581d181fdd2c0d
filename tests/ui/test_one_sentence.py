"""Dashboard, report, command line and stored verdict show one sentence, which the API serves."""

from __future__ import annotations

import re

import httpx
import pytest
from click.testing import CliRunner
from playwright.sync_api import expect

from taskloom.cli import main
from tests.support.patience import until

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_an_experiment_has_one_sentence(world, tab):
    until(lambda: world.client.experiment(world.compared).verdict is not None, "the stored verdict")
    stored = world.client.experiment(world.compared).verdict
    verdict = world.client.sweep(world.compared).verdict
    assert verdict.sentence == stored.sentence
    assert stored.why.model_dump() == {
        "kind": "too-few", "needed": 6, "of": None, "unit": "pairs", "findings": [],
        "sentence": "A verdict needs at least 6 pairs of runs on one occasion.",
    }  # fmt: skip
    assert stored.why.sentence in stored.sentence
    report = world.client.report(world.compared)
    assert report.answer[0].startswith(stored.sentence)
    page = httpx.get(f"{world.home.url}/reports/{world.compared}", timeout=60).raise_for_status().text
    assert stored.sentence in page
    at = ("--server", world.home.url)
    for command in ("show", "sweep"):
        assert stored.sentence in printed("experiments", command, str(world.compared), *at)
    shown = tab.open(f"experiment?id={world.compared}")
    expect(shown.locator(".verdict")).to_contain_text(stored.sentence)
    assert shown.locator(".verdict").inner_text().count("undecided") == 1
    row = shown.get_by_role("region", name="Comparisons").get_by_role("row").nth(1)
    expect(row).to_contain_text(stored.why.sentence)
    expect(tab.open("experiments").locator("main")).to_contain_text(stored.sentence)


def test_a_comparison_has_one_sentence(world, tab):
    sides = [f"experiment_id={world.compared},scheduler={name}" for name in ("fork-join", "task")]
    found = world.client.compare(*sides)
    undecided = "It is undecided whether task or fork-join is faster: fork-join time / task time "
    # behind the share of disturbed runs, on a busy machine
    assert re.search(undecided + r"\d+\.\d{3}\. A verdict needs at least 6 pairs", found.sentence)
    assert found.sentence in printed("compare", *sides, "--server", world.home.url)
    shown = tab.open(f"compare?a={sides[0]}&b={sides[1]}")
    expect(shown.locator(".verdict")).to_contain_text(found.sentence)
    assert shown.locator(".verdict").inner_text().count("undecided") == 1
