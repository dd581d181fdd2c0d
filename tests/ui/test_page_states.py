"""Pages while they load and when a request fails; lists that change; every plot as table, CSV, SVG and PNG."""

from __future__ import annotations

import json
import re
from functools import partial

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import hide, saved, saved_bytes
from tests.support.patience import until
from tests.support.world import PROBLEM, address, submit

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made

# Each page, and its first request.
ASKED = {
    "": "overview", "experiments": "experiments?*", "experiments?view=runs": "runs?*", "new": "../../openapi.json",
    "experiment?id=COMPARED": "experiments/*", "run?id=RUN": "runs/*",
    "compare?a=RUN&b=RUN": "analysis/compare?*", "history": "analysis/*", "fleet": "workers?*", "access": "whoami",
}  # fmt: skip
PROBLEM_JSON = """{"type": "/problems/internal-error", "title": "The server failed", "status": 500,
"detail": "an error that this test makes up"}"""


def pattern(world, question):
    """A pattern that matches the request's URL."""
    path = question.removeprefix("../../") if question.startswith("..") else f"api/v1/{question}"
    return re.compile(re.escape(f"{world.home.url}/{path}").replace(r"\*", ".*") + "$")


def fail(route):
    headers = {"X-Request-Id": "made-up-7"}
    route.fulfill(status=500, content_type="application/problem+json", body=PROBLEM_JSON, headers=headers)


def answer_once(tab, asked, answer):
    """Answer the first request whose URL matches; later ones reach the server. Returns the answered request's URL, in a
    list that is empty until then."""
    answered = []

    def handle(route):
        answered.append(route.request.url)
        answer(route)

    tab.page.route(asked, handle, times=1)
    return answered


@pytest.mark.parametrize("where", ASKED)
def test_a_page_that_loads_shows_its_shape_and_is_accessible(world, tab, where):
    held = []
    asked = pattern(world, ASKED[where])
    tab.page.route(asked, lambda route: held.append(route))
    tab.page.goto(f"{world.home.url}/ui/{address(world, where)}")
    expect(tab.page.locator("main .skeleton").first).to_be_visible()
    assert tab.violations() == []
    for route in held:
        route.continue_()
    tab.page.unroute(asked)  # later requests reach the server
    tab.settle()


@pytest.mark.parametrize("where", ASKED)
def test_a_page_whose_question_fails_says_why_and_asks_again(world, tab, where):
    tab.refusals = {500}
    asked = pattern(world, ASKED[where])
    tab.page.route(asked, fail)
    tab.page.goto(f"{world.home.url}/ui/{address(world, where)}")
    alert = tab.page.get_by_role("alert").first
    for words in ("The server failed", "an error that this test makes up", "made-up-7"):
        expect(alert).to_contain_text(words)
    assert tab.violations() == []
    tab.page.unroute(asked)
    retry = tab.page.get_by_role("button", name="Retry")

    def is_well():
        # Each failed request has its own button. Some fail a little later, and an event of the server may repeat a
        # request before its button is pressed. So all present buttons are pressed, and none is waited for.
        if retry.evaluate_all("buttons => buttons.map(button => button.click()).length"):
            tab.settle()
        return tab.page.get_by_text("The server failed").count() == 0

    until(is_well, "no question that failed")
    expect(tab.page.locator("main h1")).to_be_visible()


def test_what_is_known_stays_beside_an_error(world, tab):
    tab.refusals = {500}
    page = tab.open("experiments")
    row = page.get_by_role("link", name="fork-join or tasks?")
    expect(row).to_be_visible()
    page.route(pattern(world, "experiments?*"), fail)
    submit(world.client, name="makes it ask again", base=PROBLEM, requires={"labels": {"cpu": "nowhere"}})
    expect(page.get_by_role("alert")).to_contain_text("made-up-7")
    expect(row).to_be_visible()


@pytest.mark.parametrize(
    ("where", "question", "wanted"),
    [
        ("compare?a=RUN&b=RUN", "runs?*", "figure.plot h2:text-is('Pairs'), figure.plot h2:text-is('Processes')"),
        ("run?id=FAILED&view=log", "runs/*/log?*", "[aria-label=Log]"),
    ],
)
def test_a_question_that_does_not_reach_the_server_is_asked_again(world, tab, where, question, wanted):
    lost = answer_once(tab, pattern(world, question), lambda route: route.abort("connectionreset"))
    page = tab.open(address(world, where))
    expect(page.locator(wanted).first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    assert lost


def test_what_has_ended_opens_no_stream(world, tab):
    page = tab.open(f"run?id={world.runs[0].id}")
    page.get_by_role("link", name="Attempts").click()
    expect(page.get_by_role("heading", name="Changes of state")).to_be_visible()
    tab.settle()
    page.get_by_role("link", name=f"Experiment {world.compared}").click()
    page.get_by_role("link", name="Design").click()
    expect(page.get_by_role("heading", name="Request")).to_be_visible()
    tab.settle()
    assert [url for url in tab.asked if "/events" in url] == []


def test_a_run_that_ends_while_its_page_loads_is_asked_for_again(world, tab):
    run = httpx.get(f"{world.home.url}/api/v1/runs/{world.failed_run}").json()
    before = {**run, "state": "running", "finished_at": None, "error": None}
    answered = answer_once(tab, pattern(world, f"runs/{world.failed_run}"), lambda route: route.fulfill(json=before))
    page = tab.open(address(world, "run?id=FAILED"))
    expect(page.locator(".verdict")).to_contain_text("failed")
    assert answered


def test_an_experiment_whose_last_event_was_not_heard_is_shown_as_ended(world, tab):
    """The answer that says so may come before the event; then its stream is closed."""
    ended = httpx.get(f"{world.home.url}/api/v1/experiments/{world.compared}").json()
    active = {**ended, "state": "active", "by_state": {"running": 1, "succeeded": ended["runs"] - 1}, "verdict": None}
    state = {key: active[key] for key in ("state", "runs", "by_state")} | {"active": []}
    data = json.dumps({"topic": f"experiment:{world.compared}", "data": state})
    asked = pattern(world, f"experiments/{world.compared}")
    answered = answer_once(tab, asked, lambda route: route.fulfill(json=active))
    tab.page.route("**/api/v1/events?*", lambda route: route.fulfill(body=f"event: changed\ndata: {data}\n\n"))
    page = tab.open(address(world, "experiment?id=COMPARED"))
    expect(page.get_by_text(f"{ended['runs']} succeeded", exact=True)).to_be_visible()
    expect(page.locator(".verdict").first).not_to_contain_text("running")
    assert answered


def test_a_log_is_asked_for_once_though_its_page_is_hidden_and_seen_meanwhile(world, tab):
    held = []
    log = pattern(world, "runs/*/log?tail=*")
    tab.page.route(log, lambda route: held.append(route))
    tab.page.route("**/api/v1/events?*", lambda _: None)  # unanswered, so that no event causes a second request
    tab.page.goto(f"{world.home.url}/ui/{address(world, 'run?id=FAILED&view=log')}")
    until(lambda: held or tab.page.wait_for_timeout(50), "the first request")
    hide(tab.page)
    hide(tab.page, False)
    tab.page.unroute(log)
    held[0].continue_()
    expect(tab.page.get_by_label("Log", exact=True)).to_be_visible()
    assert len([url for url in tab.asked if log.match(url)]) == 1


def test_a_log_begins_with_its_last_lines(world, tab):
    run = {"run_id": world.failed_run, "attempt_no": 99, "at": "2026-01-01T00:00:00Z"}
    lines = [{**run, "line_no": i, "text": f"line {i} of it"} for i in (1, 2, 3)]

    def answer(route):
        shown = lines[-1:] if "tail=" in route.request.url else [] if "cursor=" in route.request.url else lines
        route.fulfill(json={"items": shown, "cursor": "YWZ0ZXI6Mw"})

    tab.page.route(pattern(world, "runs/*/log?*"), answer)
    page = tab.open(address(world, "run?id=FAILED&view=log"))
    log = page.get_by_label("Log", exact=True)
    expect(log).to_have_text("── attempt 99 ──\nline 3 of it\n", use_inner_text=True)
    page.get_by_role("button", name="Show earlier lines").click()
    expect(log).to_contain_text("line 1 of it\nline 2 of it\nline 3 of it\n", use_inner_text=True)
    expect(page.get_by_role("button", name="Show earlier lines")).to_have_count(0)


def test_rows_stay_where_they_are_under_the_pointer(world, tab):
    page = tab.open("experiments")
    page.locator("tr[data-row]").first.hover()
    before = page.locator("tr[data-row] a").all_inner_texts()
    submit(world.client, name="comes meanwhile", base=PROBLEM, requires={"labels": {"cpu": "nowhere"}})
    offer = page.get_by_role("button", name=re.compile("Show .* new experiment"))
    expect(offer).to_be_visible()
    assert page.locator("tr[data-row] a").all_inner_texts() == before
    offer.click()
    expect(page.get_by_role("link", name="comes meanwhile")).to_be_visible()


def test_rows_of_a_live_table_stay_and_are_let_go_when_the_pointer_leaves(world, tab):
    page = tab.open("")
    table = page.get_by_role("table", name="Experiments under way")
    first = table.locator("tr[data-row]").first
    first.hover()
    before, place = table.locator("tr[data-row] a").all_inner_texts(), first.bounding_box()
    made = submit(world.client, name="goes by", base=PROBLEM, requires={"labels": {"cpu": "nowhere"}})
    offer = page.get_by_role("button", name=re.compile("Show .* new row"))
    expect(offer).to_be_visible()
    assert table.locator("tr[data-row] a").all_inner_texts() == before
    assert first.bounding_box() == place
    page.get_by_role("heading", level=1).hover()
    expect(table.get_by_role("link", name="goes by")).to_be_visible()
    world.client.cancel_experiment(made)
    expect(table.get_by_role("link", name="goes by")).to_be_hidden()


def test_rows_under_the_pointer_go_when_one_narrows_the_list(tab):
    page = tab.open("experiments")
    page.locator("tr[data-row]").first.hover()
    page.keyboard.press("/")
    page.keyboard.type("fork-join or")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    expect(page.get_by_role("button", name=re.compile("^Show .* new "))).to_have_count(0)


DRAWN = """(canvas) => canvas.width > 0 && canvas.height > 0 && canvas.getContext('2d')
  .getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0)"""
PLOTS = {
    "experiment?id=COMPARED": 2, "experiment?id=COMPARED&view=scaling": 1, "experiment?id=COMPARED&view=causes": 2,
    "experiment?id=COMPARED&view=memory": 3, "run?id=RUN": 2, "run?id=RUN&view=timeline": 1,
    "run?id=RUN&view=graph": 1, "run?id=RUN&view=ops": 1, "run?id=RUN&view=attempts": 1, "history?series=SERIES": 1,
    "compare?a=experiment_id%3DCOMPARED%2Cscheduler%3Dfork-join&b=experiment_id%3DCOMPARED%2Cscheduler%3Dtask": 2,
}  # fmt: skip


@pytest.mark.parametrize("where", PLOTS)
def test_every_plot_can_be_had_as_table_csv_svg_and_png(world, tab, tmp_path, where):
    page = tab.open(address(world, where))
    figures = page.locator("figure.plot")
    expect(figures.nth(PLOTS[where] - 1)).to_be_visible()
    for figure in figures.all():
        rows = saved(page, figure.get_by_role("button", name="CSV").click, tmp_path).splitlines()
        assert len(rows) > 1
        png = saved_bytes(page, figure.get_by_role("button", name="PNG").click, tmp_path)
        assert png.startswith(b"\x89PNG")
        text = saved(page, figure.get_by_role("button", name="SVG").click, tmp_path)
        assert text.startswith("<svg")
        assert len(re.findall("<(?:path|rect|circle)", text)) > 1
        assert "var(--" not in text
        figure.get_by_role("button", name="Table").click()
        expect(figure.get_by_role("row")).to_have_count(len(rows))
        figure.get_by_role("button", name="Plot").click()
        if figure.locator("canvas").count():
            until(partial(figure.locator("canvas").evaluate, DRAWN), "the canvas to be drawn again")


def test_two_timelines_stand_beneath_each_other_aligned_by_step(world, tab):
    traced = [run for run in world.runs if run.traced]
    a = next(run.id for run in traced if run.variant["scheduler"] == "fork-join")
    b = next(run.id for run in traced if run.variant["scheduler"] == "task")
    page = tab.open(f"compare?a={a}&b={b}")
    page.get_by_role("button", name=f"Show the timelines of runs {a} and {b}").click()
    canvases = page.locator("canvas[data-painted]")
    expect(canvases).to_have_count(2)
    titles = page.get_by_role("heading", name=re.compile("^[AB]: run"))
    assert titles.all_inner_texts() == [f"A: run {a}", f"B: run {b}"]

    def shown():
        """The time span that each of them shows, relative to the beginning of the step."""
        return [canvases.nth(i).get_attribute("data-painted") for i in range(2)]

    expect(page.get_by_text("aligned at the start of step")).to_be_visible()
    first, second = shown()
    assert first == second
    canvases.nth(0).focus()
    page.keyboard.press("+")
    expect(canvases.nth(1)).not_to_have_attribute("data-painted", second or "")
    expect(canvases.nth(0)).not_to_have_attribute("data-painted", first or "")
    assert shown()[0] == shown()[1] != first
    heading = page.get_by_role("heading", name=re.compile("aligned at the start of step")).inner_text()
    page.get_by_role("button", name="Previous step").click()
    expect(page.get_by_role("heading", name=re.compile("aligned at the start of step"))).not_to_have_text(heading)
    page.reload()
    expect(canvases).to_have_count(2)


@pytest.mark.parametrize(("basis", "shown"), [("guess", "about 2 min (a guess)"), ("finished-runs", "about 2 min")])
def test_an_estimate_without_a_run_of_its_shapes_is_called_a_guess(world, tab, basis, shown):
    """In the list, on the experiment's page and on the first page."""

    def estimated(item):
        return {**item, "state": "active", "finished_at": None, "verdict": None, "eta_s": 120.0, "eta_basis": basis}

    def listed(answer):
        if "items" in answer:
            return {**answer, "items": [estimated(item) for item in answer["items"]]}
        return {**answer, "experiments": [estimated(item) for item in answer["latest"]]}

    def altered(route):
        route.fulfill(json=listed(route.fetch().json()))

    tab.page.route("**/api/v1/events?*", lambda _: None)  # unanswered, so that no event tells the true state
    for where, question, text in (
        ("experiments", "experiments?*", f"verdict in {shown}"),
        ("", "overview", shown),
    ):
        tab.page.route(pattern(world, question), altered)
        tab.page.goto(f"{world.home.url}/ui/{where}")
        expect(tab.page.get_by_text(text, exact=True).first).to_be_visible()
