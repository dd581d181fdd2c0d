"""The dashboard's main flows, with a real server, worker and trainer."""

from __future__ import annotations

import itertools
import re
import time

import httpx
import pytest
from playwright.sync_api import expect
from sqlalchemy import text

from taskloom import Client
from taskloom.server.db import Database
from tests.support.browser import hide
from tests.support.patience import until
from tests.support.present import present
from tests.support.processes import house
from tests.support.world import PROBLEM, submit

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made


def test_a_question_is_asked_watched_and_answered(world, tab):
    page = tab.open("new")
    tab.refusals = {422}  # rejected while the user types
    expect(page.locator("#models option[value='lstm-deep']")).to_have_count(1)  # as the OpenAPI document says
    page.get_by_label("Question").fill("asked in a browser")
    for name, value in PROBLEM.items():
        page.locator(f"#set-{name}").fill(str(value))  # a unit of lr every is labelled steps too
    page.get_by_label("threads", exact=True).fill("1, 99")
    expect(page.locator("#set-threads-refused")).to_contain_text("cores of the largest known node")
    expect(page.locator("#set-threads-help")).to_contain_text("1 to 4,096")  # as the OpenAPI document says
    page.get_by_label("threads", exact=True).fill("2")  # the failing worker has only one core
    page.get_by_label("Repetitions").fill("1")
    expect(page.locator(".verdict")).to_contain_text("2 runs")
    expect(page.locator("pre.command").first).to_contain_text("--scheduler fork-join,task")
    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    expect(page.get_by_role("heading", name="New experiment")).to_be_visible()  # copying submits nothing
    page.get_by_role("button", name="Run 2 runs").click()
    expect(page.get_by_role("heading", name="asked in a browser")).to_be_visible()
    expect(page.get_by_text("2 succeeded")).to_be_visible(timeout=120_000)  # without a reload
    shown = int(present(re.search(r"id=(\d+)", page.url)).group(1))
    # One pair decides nothing.
    expect(page.locator(".verdict")).to_contain_text("undecided", timeout=120_000)
    assert world.client.experiment(shown).state == "finished"
    expect(page.locator(".verdict")).to_contain_text("With 7 repetitions a verdict is possible")
    page.get_by_role("button", name="Add 6 repetitions").click()
    expect(page.locator(".verdict")).to_contain_text("of 14 runs done")
    assert world.client.experiment(shown).extended == 6
    world.client.cancel_experiment(shown)
    page.get_by_role("button", name="Report").click()
    page.get_by_role("link", name="Run again").click()
    expect(page.get_by_label("Question")).to_have_value("asked in a browser")
    page.get_by_label("threads", exact=True).fill("1, 2")  # the copy has one more axis
    expect(page.locator(".verdict")).to_contain_text("4 runs")


def test_a_new_question_begins_with_a_run_or_with_a_node(world, tab):
    run = world.runs[0]
    page = tab.open(f"new?run={run.id}")
    expect(page.get_by_label("Question")).to_have_value(f"run {run.id} again")
    expect(page.get_by_label("seq", exact=True)).to_have_value(str(PROBLEM["seq"]))
    expect(page.locator("pre.command").first).to_contain_text(f"--scheduler {run.variant['scheduler']}")
    page = tab.open("new?calibrate=n7")
    expect(page.get_by_label("Question")).to_have_value("A/A of n7")
    page.get_by_text("More settings").click()
    expect(page.get_by_label("A/A: calibrate the node")).to_be_checked()
    page.get_by_label("Labels of the node").press_sequentially("cpu=")
    page.evaluate("document.querySelector('#priority').dispatchEvent(new Event('input'))")  # the page is rendered again
    page.get_by_label("Labels of the node").press_sequentially("zen4  ")
    expect(page.get_by_label("Labels of the node")).to_have_value("cpu=zen4  ")
    page.get_by_label("Labels of the node").press("Tab")
    expect(page.get_by_label("Labels of the node")).to_have_value("cpu=zen4")
    expect(page.locator("pre.command").first).to_contain_text('"labels":{"cpu":"zen4"}')


def test_a_failed_run_shows_its_log_and_is_tried_again(world, tab):
    page = tab.open(f"run?id={world.failed_run}")
    expect(page.locator(".verdict")).to_contain_text("failed")
    expect(page.get_by_text("the reactor is melting").first).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    page.get_by_role("link", name="Attempts").click()
    expect(page.get_by_role("row", name=re.compile("retry"))).to_be_visible()
    until(lambda: world.client.run(world.failed_run).state == "failed", "it to fail again")
    expect(page.locator(".verdict")).to_contain_text("failed")


def test_a_run_that_waits_says_why(world, tab):
    waiting = world.client.run(world.waiting_run).queue.waiting_for
    page = tab.open(f"run?id={world.waiting_run}")
    expect(page.locator(".verdict")).to_contain_text(waiting)
    page = tab.open("fleet")
    expect(page.get_by_text(waiting).first).to_be_visible()


def test_an_experiment_in_which_every_run_failed_is_not_shown_as_a_success(tab):
    page = tab.open("")
    row = page.get_by_role("row", name=re.compile("melts"))
    expect(row.get_by_text("No run has succeeded.")).to_have_class("soft")
    expect(row.locator("svg")).to_have_count(1)  # that of the state
    row.get_by_role("link").click()
    page.get_by_role("link", name="Its runs").click()
    expect(page.get_by_text("the trainer ended with")).to_be_visible()


def test_a_node_shows_its_labels_and_counts_the_builds_that_it_keeps(tab):
    page = tab.open("fleet")
    expect(page.get_by_text(re.compile(r"^\d+ kept builds?$"))).to_be_visible()
    expect(page.get_by_text("trainer=broken")).to_be_visible()
    expect(page.get_by_text("build-")).to_have_count(0)


@pytest.mark.parametrize("width", [390, 1400])
def test_long_names_and_labels_of_a_node_stay_within_its_panel(world, new_tab, width):
    tab = new_tab(world.home.url, viewport={"width": width, "height": 900})
    labels = {"partition": "long", "feature": "avx512_bf16," * 12, "rack": "r" * 90}

    def named(route):
        found = route.fetch().json()
        for worker in found["items"]:
            worker.update(node="node." * 20, labels=labels)
        route.fulfill(json=found)

    tab.page.route("**/api/v1/workers?*", named)
    page = tab.open("fleet")
    panel = page.locator("section.panel", has=page.get_by_role("heading", name="node.node."))
    boxes = [part.bounding_box() for part in [panel, *panel.locator("h2, small, a, .chip").all()]]
    for box in boxes[1:]:
        assert boxes[0]["x"] <= box["x"]
        assert box["x"] + box["width"] <= boxes[0]["x"] + boxes[0]["width"]
    chips = boxes[-len(labels):]
    assert all(a["y"] + a["height"] <= b["y"] for a, b in itertools.pairwise(chips[1:]))


def test_runs_are_compared_with_the_keyboard_alone(world, tab):
    page = tab.open("")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("e")
    tab.settle()
    expect(page.get_by_role("heading", name="Experiments")).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("fork-join or")
    page.wait_for_url("**name=fork-join*")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    tab.settle()
    page.get_by_role("link", name="Runs", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_label(re.compile("Select run")).first.wait_for()
    for _ in range(2):
        page.keyboard.press("j")
        page.keyboard.press("x")
    page.keyboard.press("c")
    tab.settle()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible()
    expect(page.locator(".verdict")).to_be_visible()
    a, b = (run.id for run in world.runs[:2])
    assert f"a={a}&b={b}" in page.url


def test_a_hidden_tab_asks_nothing(world, tab, new_tab):
    page, seen = tab.open(""), new_tab(world.home.url).open("")
    hide(page)
    tab.asked.clear()
    submit(world.client, name="while it is hidden", base=PROBLEM, requires={"labels": {"cpu": "nowhere"}})
    expect(seen.get_by_role("link", name="while it is hidden")).to_be_visible()  # the visible tab gets the event
    assert tab.asked == []
    expect(page.get_by_role("link", name="while it is hidden")).to_have_count(0)
    hide(page, hidden=False)
    expect(page.get_by_role("link", name="while it is hidden")).to_be_visible()


@pytest.fixture
def apart(tmp_path):
    """A separate server, without a worker."""
    with house(tmp_path, f"sqlite:///{tmp_path / 'apart.db'}", reap_after_s=0.5) as home, Client(home.url) as client:
        yield home, client


def test_the_first_visit_says_what_to_do(apart, new_tab):
    tab = new_tab(apart[0].url)
    for page in ("", "experiments", "experiments?view=runs", "history", "fleet"):
        tab.open(page)
        assert tab.violations() == []
        expect(tab.page.locator("main pre", has_text="taskloom ").first).to_be_visible()  # the next command
    expect(tab.page.get_by_text("taskloom worker --server")).to_be_visible()
    tab.open("")
    expect(tab.page.get_by_text("taskloom submit")).to_be_visible()


def test_a_server_that_comes_back_goes_on_where_it_was(apart, new_tab):
    home, client = apart
    first = submit(client, name="before", base=PROBLEM)
    tab = new_tab(home.url)
    page = tab.open("")
    expect(page.get_by_role("link", name="before")).to_be_visible()
    home.server.end()
    expect(page.get_by_text("stale for")).to_be_visible()
    expect(page.get_by_role("link", name="before")).to_be_visible()  # known content stays
    home.start_server()
    expect(page.get_by_text("stale for")).to_be_hidden()
    client.cancel_experiment(first)
    submit(client, name="after", base=PROBLEM)
    expect(page.get_by_role("link", name="after")).to_be_visible()


def test_a_key_is_asked_for_and_again_when_it_is_revoked(apart, new_tab):
    home, _ = apart
    made = httpx.post(f"{home.url}/api/v1/keys", json={"scope": "admin", "name": "mine"}).json()
    tab = new_tab(home.url)
    tab.refusals = {401}
    page = tab.page
    page.goto(f"{home.url}/ui/access")
    expect(page.get_by_role("heading", name="This server requires a key")).to_be_visible()
    page.get_by_label("Key", exact=True).fill(made["token"])
    page.keyboard.press("Enter")
    expect(page.get_by_text("mine (key:1)")).to_be_visible()
    page.reload()
    expect(page.get_by_text("mine (key:1)")).to_be_visible()
    assert made["token"] not in page.url
    page.get_by_label("Name").fill("another")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("it is never shown again")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("another"))).to_be_visible()
    assert tab.violations() == []
    headers = {"Authorization": f"Bearer {made['token']}"}
    httpx.post(f"{home.url}/api/v1/keys/1/revoke", headers=headers).raise_for_status()
    page.reload()
    expect(page.get_by_role("heading", name="This key is not valid")).to_be_visible()
    other = page.context.new_page()
    other.goto(f"{home.url}/ui/access")
    expect(other.get_by_role("heading", name="This server requires a key")).to_be_visible()


def test_a_key_that_expires_is_asked_for_again(apart, new_tab):
    home, _ = apart
    made = httpx.post(f"{home.url}/api/v1/keys", json={"scope": "admin", "name": "mine", "expires_in_s": 3600}).json()
    tab = new_tab(home.url)
    tab.refusals = {401}
    page = tab.page
    page.goto(f"{home.url}/ui/access")
    page.get_by_label("Key", exact=True).fill(made["token"])
    page.keyboard.press("Enter")
    expect(page.get_by_text("mine (key:1)")).to_be_visible()
    database = Database(home.database_url)
    with database.write() as session:
        session.execute(text("UPDATE api_key SET expires_at = :past"), {"past": time.time() - 1})
    database.close()
    page.get_by_role("link", name="Fleet").click()
    expect(page.get_by_role("heading", name="This key is not valid")).to_be_visible()


def test_keys_are_revoked_and_old_runs_deleted_after_a_dry_run(apart, new_tab):
    home, client = apart
    client.cancel_experiment(submit(client, name="old", base=PROBLEM))
    tab = new_tab(home.url)
    tab.refusals = {401}  # once the first key exists
    page = tab.open("access")
    page.get_by_label("days").fill("0")
    page.get_by_role("button", name="Show what would be deleted").click()
    status = page.get_by_role("status").filter(has_text="deleted")
    expect(status).to_contain_text("Would be deleted: 1 run, 1 experiment")
    assert len(list(client.runs())) == 1
    page.get_by_role("button", name="Delete 1 run for good").click()
    expect(page.get_by_role("status").filter(has_text=re.compile("Deleted: 1 run"))).to_be_visible()
    assert list(client.runs()) == []
    made = httpx.post(f"{home.url}/api/v1/keys", json={"scope": "admin", "name": "mine"}).json()
    httpx.post(
        f"{home.url}/api/v1/keys", json={"scope": "read", "name": "another"},
        headers={"Authorization": f"Bearer {made['token']}"},
    ).raise_for_status()  # fmt: skip
    page.reload()
    page.get_by_label("Key", exact=True).fill(made["token"])
    page.keyboard.press("Enter")
    row = page.get_by_role("row", name=re.compile("another"))
    row.get_by_role("button", name="Revoke").click()
    row.get_by_role("button", name="Revoke key 2").click()
    expect(row).to_contain_text("revoked")
