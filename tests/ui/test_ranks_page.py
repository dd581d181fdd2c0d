"""A run of several ranks: its page shows for how long messages were in flight, and how much of that was hidden."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.caller import Caller
from tests.support.exchanges import exchanged
from tests.support.processes import house

pytestmark = pytest.mark.ui


@pytest.fixture
def api(tmp_path):
    url = f"sqlite:///{tmp_path / 'ranks.db'}"
    with house(tmp_path, url, analysis_processes=0) as home, httpx.Client(base_url=home.url, timeout=60) as http:
        yield Caller(http)


def test_the_communication_of_each_rank(api, make_result, new_tab):
    api.submit(base={"model": "tiny", "token_slice": 64, "batch_slice": 1, "steps": 3, "warmup": 1}, repetitions=2)
    node = api.worker()
    for ranks in (((0.02, 0.4, 0.1), (0.04, 0.2, 0.25)), ()):
        node.upload(node.claim(), {**make_result([9.0, 0.5, 0.5]), "communication": exchanged(*ranks)})
    tab = new_tab(str(api.http.base_url).rstrip("/"))
    plot = tab.open("run?id=1&view=ops").locator("figure.plot")
    expect(plot).to_contain_text("messages in flight: hidden by work, or exposed")
    shown = [title.text_content() for title in plot.locator("rect title").all()]
    assert [each for each in shown if each.startswith(("hidden", "exposed"))] == [
        "hidden: 0.00 s", "exposed: 0.00 s",  # of the thread
        "hidden: 0.600 s", "exposed: 0.200 s", "hidden: 0.00 s", "exposed: 0.500 s",
    ]  # fmt: skip
    expect(plot.locator("text", has_text="rank 1")).to_be_visible()
    assert tab.violations() == []
    plot = tab.open("run?id=2&view=ops").locator("figure.plot")
    expect(plot).to_contain_text("What each thread did.")
    expect(plot.locator("text", has_text="rank")).to_have_count(0)
