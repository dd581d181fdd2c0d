"""The name, tags and notes of an experiment, which are changed in the page."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from taskloom.contract.experiments import ExperimentChange

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]  # the first test has the world made

NOTES = """# Why
<b>first</b> *try* of **two**, see [the page](https://example.org/a?b=1&c=2) and [x](javascript:alert(1))
second line, 2 * 3 * 4

To do:
- measure `tiny`
- read <img src=x onerror=alert(1)>

```sh
taskloom runs
<script>alert(1)</script>
```
"""


@pytest.fixture
def noted(world):
    """An experiment without runs yet, which has its name, tags and notes again afterwards."""
    before = world.client.experiment(world.hostile)
    yield world.hostile
    change = ExperimentChange(name=before.name, tags=before.tags, notes=before.notes)
    world.client.change_experiment(world.hostile, change)


def test_name_tags_and_notes_are_changed_and_shown_on_the_page(world, noted, tab):
    page = tab.open(f"experiment?id={noted}&view=design")
    page.get_by_label("Name").fill("noted <i>one</i>")
    page.get_by_label("Tags").fill("night, base night")
    page.get_by_label("Notes").fill(NOTES)
    page.get_by_role("button", name="Save").click()
    shown = page.locator(".lead")
    expect(shown.locator(".tag")).to_have_text(["base", "night"])
    expect(page.get_by_role("heading", level=1)).to_have_text("noted <i>one</i>")
    known = world.client.experiment(noted)
    assert (known.name, known.tags, known.notes) == ("noted <i>one</i>", ["base", "night"], NOTES)
    expect(shown.get_by_role("heading", name="Why")).to_be_visible()
    expect(shown.locator("p").first).to_have_text(
        "<b>first</b> try of two, see the page and [x](javascript:alert(1))\nsecond line, 2 * 3 * 4"
    )
    expect(shown.locator("em")).to_have_text(["try"])
    expect(shown.locator("strong")).to_have_text(["two"])
    expect(shown.get_by_role("link")).to_have_count(1)
    expect(shown.get_by_role("link")).to_have_attribute("href", "https://example.org/a?b=1&c=2")
    expect(shown.locator("li")).to_have_text(["measure tiny", "read <img src=x onerror=alert(1)>"])
    expect(shown.locator("li code")).to_have_text(["tiny"])
    expect(shown.locator("pre")).to_have_text("taskloom runs\n<script>alert(1)</script>\n")
    expect(shown.locator("b, img, script, i")).to_have_count(0)
    assert tab.violations() == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_refused_tag_is_said_and_nothing_is_changed(world, noted, tab):
    before = world.client.experiment(noted)
    tab.refusals.add(422)
    page = tab.open(f"experiment?id={noted}&view=design")
    page.get_by_label("Tags").fill("a/b" * 60)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("tags")
    assert world.client.experiment(noted).tags == before.tags
