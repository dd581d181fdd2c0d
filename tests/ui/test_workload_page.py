"""A workload's page: what a real worker ran for the template is shown as the API answers it."""

from __future__ import annotations

import csv
import io

import pytest
from playwright.sync_api import expect

from tests.support.browser import saved
from tests.support.patience import until
from tests.support.world import PROBLEM, submit

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made


@pytest.fixture(scope="module")
def analysed(world):
    """A workload of two networks in both modes under one scheduler, and on real data."""
    terms = {"networks": ["tiny", "lstm-tiny"], "schedulers": ["task"], "threads": [2], "batches": []}
    made = submit(world.client, template="workload", workload=terms, base={**PROBLEM, "threads": 2},
                  requires={"cores": 2}, repetitions=1)  # fmt: skip
    until(lambda: world.client.experiment(made).state != "active", "the runs", 600)
    assert world.client.experiment(made).by_state == {"succeeded": 6}
    return made, world.client.workload(made)


def rows_of(page, tmp_path, title):
    figure = page.locator("figure.plot", has=page.get_by_role("heading", name=title, exact=True))
    return list(csv.DictReader(io.StringIO(saved(page, figure.get_by_role("button", name="CSV").click, tmp_path))))


def test_the_page_shows_what_the_api_answers(tab, analysed, tmp_path):
    experiment_id, found = analysed
    network = next(of for of in found.networks if of.model == "tiny")
    assert [(row.mode, row.data) for row in network.rows] == [
        ("train", "synthetic"), ("train", "stdlib"), ("infer", "synthetic"),
    ]  # fmt: skip
    assert all(row.ops and row.memory_bytes["activations"] for row in network.rows)
    page = tab.open(f"experiment?id={experiment_id}")  # the workload is its first view
    own = page.locator("section", has=page.get_by_role("heading", name="tiny", exact=True))
    expect(own).to_be_visible()
    of_all = page.locator("section", has=page.get_by_role("heading", name="All networks")).get_by_role("listitem")
    assert found.answers
    expect(of_all).to_have_text(found.answers)
    for said in network.answers:
        expect(own.get_by_text(said)).to_be_visible()
    shown = rows_of(page, tmp_path, "Time of a step by phase: tiny")
    for line, row in zip(shown, network.rows, strict=True):
        assert line["variant"].startswith(row.mode)
        times_ms = {name: float(value) for name, value in line.items() if name != "variant" and value}
        phases = {each.phase: 1e3 * each.time_s for each in row.phases if each.time_s}
        assert times_ms == pytest.approx({**phases, "median step": 1e3 * row.step_s})
    for line, row in zip(rows_of(page, tmp_path, "Memory: tiny"), network.rows, strict=True):
        assert float(line["weights"]) == pytest.approx(row.memory_bytes["weights"] / 2**20)
    for line in rows_of(page, tmp_path, "Time by op type: tiny"):
        assert sum(float(value) for name, value in line.items() if name != "variant" and value) == pytest.approx(100)
    ops = page.get_by_role("region", name="Ops of tiny").locator("tbody tr")
    expect(ops).to_have_count(sum(len(network.rows[at].ops) for at in network.typical))
    assert len(network.typical) < len(network.rows)
    first = network.rows[network.typical[0]].ops[0]
    expect(ops.first).to_contain_text(f"{first.op} {first.phase}")
    expect(page.get_by_role("heading", name="Training beside inference by batch").first).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_the_page_is_accessible(world, new_tab, analysed, width, scheme):
    tab = new_tab(world.home.url, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = tab.open(f"experiment?id={analysed[0]}&view=workload")
    expect(page.get_by_role("heading", name="Memory: tiny")).to_be_visible()
    assert tab.violations() == []
