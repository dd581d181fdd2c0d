"""The HTML report on a wide and a narrow screen, light and dark, and on paper."""

from __future__ import annotations

import re

import pytest

from taskloom.analysis.report import page as render
from taskloom.analysis.report.page import PRINTED_TIMES
from tests.support.report_example import changed

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made

WIDER = """() => [...document.querySelectorAll('table')]
  .filter((table) => table.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map((table) => table.rows[0].innerText)"""
SCROLLED = """() => [...document.querySelectorAll('figure:has(table)')]
  .filter((figure) => figure.scrollWidth > figure.clientWidth)
  .map((figure) => figure.querySelector('tr').innerText)"""
FOLDED = """() => [...document.querySelectorAll('details:not([open]) > :not(summary)')]
  .map((each) => each.checkVisibility({contentVisibilityAuto: true}))"""
PAPER_PX = 703  # width of A4 between its margins, at 96 pixels an inch


def opened(world, tab):
    tab.page.goto(f"{world.home.url}/reports/{world.compared}")
    return tab.page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1100])
def test_a_report_is_accessible_and_as_wide_as_the_screen(world, new_tab, scheme, width):
    tab = new_tab(world.home.url, color_scheme=scheme, viewport={"width": width, "height": 800})
    page = opened(world, tab)
    assert tab.violations() == []
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    if width == 1100:
        assert page.evaluate(SCROLLED) == []
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 27, 34)"}[scheme]


def test_a_printed_report_cuts_no_table_and_leaves_no_heading_alone(world, new_tab):
    tab = new_tab(world.home.url, color_scheme="dark", viewport={"width": PAPER_PX, "height": 1000})
    page = opened(world, tab)
    page.emulate_media(media="print")
    assert page.evaluate(WIDER) == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    headings = page.locator("h2")
    assert headings.count() > 5
    assert all(each.evaluate("(h) => getComputedStyle(h).breakAfter") == "avoid" for each in headings.all())
    # Figures and tables of few rows are not divided. Longer tables repeat their head on each page.
    for figure in page.locator("main figure").all():
        rows = figure.locator("tbody tr").count()
        assert figure.evaluate("(f) => getComputedStyle(f).breakInside") == ("auto" if rows > 20 else "avoid")
        if rows:
            assert figure.locator("thead").evaluate("(h) => getComputedStyle(h).display") == "table-header-group"
    assert page.pdf(format="A4").startswith(b"%PDF")


def pages(page):
    """Number of pages of the PDF that the browser prints."""
    return len(re.findall(rb"/Type /Page\b", page.pdf(format="A4")))


def test_a_printed_report_has_the_contents_of_closed_details(world, tab):
    page = opened(world, tab)
    folded = page.evaluate(FOLDED)
    assert len(folded) >= 3  # the ops, the request, the samples
    assert not any(folded)
    closed = pages(page)
    page.emulate_media(media="print")
    page.wait_for_function(f"() => ({FOLDED})().every(Boolean)")  # a busy browser renders them a little later
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert pages(page) == closed
    height = "document.documentElement.scrollHeight"
    opened_px = page.evaluate(height)
    page.evaluate("document.querySelectorAll('details').forEach((each) => each.remove())")
    assert page.evaluate(height) < opened_px


def test_a_printed_report_counts_very_many_samples_instead_of_listing_them(world, new_tab):
    many = [0.5] * (PRINTED_TIMES + 1)
    report = changed(world.client.report(world.compared), samples__0__processes__0__step_s=many)
    page = new_tab(world.home.url).page
    page.set_content(render(report))
    note, samples = page.get_by_text("are not printed"), page.locator("details.long")
    assert (note.is_visible(), samples.is_visible()) == (False, True)
    page.emulate_media(media="print")
    assert (note.is_visible(), samples.is_visible()) == (True, False)
    assert f"taskloom experiments report {world.compared} --json" in note.inner_text()
