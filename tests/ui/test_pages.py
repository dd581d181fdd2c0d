"""Each page has no errors and is accessible: light, dark, narrow, reloaded and behind a path prefix."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from taskloom.server.read.dashboard import files
from tests.support.prefix import proxy_of
from tests.support.world import HOSTILE, address

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made

PAGES = (
    "", "experiments", "experiments?view=runs", "new", "history", "history?series=SERIES", "fleet", "access", "compare",
    "experiment?id=COMPARED", "experiment?id=COMPARED&view=scaling", "experiment?id=COMPARED&view=causes",
    "experiment?id=COMPARED&view=roofs", "experiment?id=COMPARED&view=forecast", "experiment?id=COMPARED&view=memory",
    "experiment?id=COMPARED&view=runs", "experiment?id=COMPARED&view=design",
    "run?id=RUN", "run?id=RUN&view=timeline", "run?id=RUN&view=graph", "run?id=RUN&view=ops",
    "run?id=RUN&view=validity", "run?id=RUN&view=log", "run?id=RUN&view=attempts", "run?id=RUN&view=settings",
    "run?id=RUN&view=files",
    "run?id=FAILED", "run?id=WAITING", "compare?a=experiment_id%3DCOMPARED%2Cscheduler%3Dfork-join&"
    "b=experiment_id%3DCOMPARED%2Cscheduler%3Dtask&step=1",
)  # fmt: skip
BACKGROUND = "getComputedStyle(document.documentElement).backgroundColor"
# Texts of plots that leave their SVG.
OUTSIDE = """[...document.querySelectorAll('svg.drawn text')].filter(text => {
  const [own, room] = [text, text.closest('svg')].map(each => each.getBoundingClientRect());
  return own.left < room.left - 1 || own.right > room.right + 1;
}).map(text => text.textContent)"""
# Rows of tables that are much higher than what is in them.
BLANK = """[...document.querySelectorAll('main tbody tr')].filter(row => {
  const most = Math.max(...[...row.cells].map(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getBoundingClientRect().height;
  }));
  return row.getBoundingClientRect().height > most + 40;
}).map(row => row.textContent)"""
LINK = re.compile(r'<link rel="modulepreload" href="([^"]+)">')


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_accessible_and_says_the_same_in_a_narrow_window(world, new_tab, page):
    """In light, and in dark, which differs by its colours only; then it is loaded again, and on a phone, which
    shows whole plots and rows without blanks."""
    tab = new_tab(world.home.url, color_scheme="light", reduced_motion="reduce")
    shown = tab.open(address(world, page))
    assert tab.violations() == []
    light = shown.evaluate(BACKGROUND)
    shown.emulate_media(color_scheme="dark", reduced_motion="reduce")
    assert shown.evaluate(BACKGROUND) != light
    assert tab.violations("color-contrast") == []
    heading = shown.locator("main h1").inner_text()
    shown.set_viewport_size({"width": 640, "height": 450})  # 1280 at 200 %
    shown.reload()
    tab.settle()
    expect(shown.locator("main h1")).to_have_text(heading)
    assert shown.evaluate("document.scrollingElement.scrollWidth") <= 640
    shown.set_viewport_size({"width": 390, "height": 844})
    shown.reload()
    tab.settle()
    assert shown.evaluate("document.scrollingElement.scrollWidth") <= 390
    assert shown.evaluate(OUTSIDE) == []
    assert shown.evaluate(BLANK) == []


@pytest.mark.parametrize("page", ["", "experiment?id=COMPARED", "run?id=RUN", "fleet", "new"])
def test_a_page_fits_a_phone_and_its_headings_are_short(world, new_tab, page):
    tab = new_tab(world.home.url, viewport={"width": 390, "height": 844})
    shown = tab.open(address(world, page))
    for heading in shown.locator("main h1, main th").all():
        assert heading.bounding_box()["height"] <= 66, heading.inner_text()
    assert shown.evaluate("document.scrollingElement.scrollWidth") <= 390


def test_all_of_it_works_behind_a_path_prefix(world, new_tab):
    with proxy_of(world.home.url) as url:
        tab = new_tab(url)
        page = tab.page
        page.goto(f"{url}/")
        tab.settle()
        assert page.url == f"{url}/ui/"
        for name in ("Experiments", "New", "Compare", "History", "Fleet", "Access", "Now"):
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
            tab.settle()
        page.goto(f"{url}/ui/run?id={world.runs[0].id}&view=timeline")
        page.locator("canvas[data-painted]").wait_for()
        page.go_back()
        tab.settle()
        assert all(asked.startswith((url, "blob:")) for asked in tab.asked)


def test_hostile_names_are_text(world, tab):
    one = f"experiment?id={world.hostile}"
    for where in ("experiments", one, f"{one}&view=design", "fleet"):
        page = tab.open(where)
        expect(page.get_by_text(HOSTILE).first).to_be_visible()
        assert page.locator("img").count() == 0
        assert page.evaluate("document.querySelectorAll('main script, main b').length") == 0


def test_an_address_that_leads_nowhere_says_so(world, tab):
    tab.refusals = {404, 422}
    page = tab.open(f"experiments?sort={'x'}")
    expect(page.get_by_role("alert")).to_contain_text("sort")
    page.goto(f"{world.home.url}/ui/run?id=999999")
    expect(page.get_by_role("alert")).to_contain_text("Not found")
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    assert page.goto(f"{world.home.url}/ui/nothing").status == 404


@pytest.mark.parametrize("page", sorted(files.read().pages))
def test_a_page_asks_for_all_its_modules_at_once(world, tab, page):
    """The page preloads exactly the modules that the browser would otherwise find import by import."""
    below, linked = f"{world.home.url}/ui/", []

    def without_links(route):
        shell = route.fetch().text()
        linked.extend(LINK.findall(shell))
        route.fulfill(body=LINK.sub("", shell), content_type="text/html; charset=utf-8")

    where = f"{page}?id={world.compared}" if page in ("experiment", "run") else page
    tab.page.route(below + where, without_links)
    tab.open(where)
    found = [each.removeprefix(below) for each in tab.asked if each.endswith(".js") and not each.endswith("/theme.js")]
    assert sorted(found) == sorted(linked)


def test_a_view_loads_its_module_when_it_is_opened_and_says_if_it_does_not_come(world, tab):
    page = tab.open(f"run?id={world.runs[0].id}")
    assert not [each for each in tab.asked if each.endswith("/run/ops.js")]
    page.route("**/run/timed.js", lambda route: route.abort())
    page.get_by_role("link", name="Task graph").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be loaded")
    page.get_by_role("link", name="Validity").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    tab.settle()
    assert [each for each in tab.asked if each.endswith("/run/ops.js")]
    page.unroute("**/run/timed.js")


def test_scripts_and_styles_of_the_first_page_are_within_the_budget(tab):
    """The browser receives at most 45 kB, compressed."""
    received = {}

    def note(response):
        path = urlsplit(response.url).path
        if path.endswith((".js", ".css")):
            assert response.headers["content-encoding"] == "gzip"
            received[path.rpartition("/")[2]] = int(response.headers["content-length"])

    tab.page.on("response", note)
    tab.open("")
    assert {"app.js", "now.js", "theme.js", "style.css", "tokens.css"} <= set(received)
    assert sum(received.values()) <= 45_000


def test_a_theme_that_was_chosen_is_there_before_anything_is_painted(tab):
    page = tab.open("")
    page.get_by_label("Theme").select_option("dark")
    page.route("**/app.js", lambda route: route.abort())  # only the HTML itself is then painted
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    expect(page.locator("main .skeleton").first).to_be_visible()
    page.unroute("**/app.js")
    page.reload()
    tab.settle()
    expect(page.get_by_label("Theme")).to_have_value("dark")
    page.get_by_label("Theme").select_option("auto")
    page.reload()
    tab.settle()
    assert page.evaluate("document.documentElement.dataset.theme ?? null") is None


def test_an_address_without_a_page_shows_the_navigation_and_says_so(tab):
    tab.refusals.add(404)
    page = tab.open("nonsense")
    expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    page.get_by_role("link", name="Fleet").click()
    expect(page.get_by_role("heading", name="Fleet", level=1)).to_be_visible()
