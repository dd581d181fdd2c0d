"""Pages say what to do next where something is empty."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.ui


def test_an_empty_field_shows_its_default_which_is_not_sent(api, new_tab):
    page = new_tab(api.url).open("new")
    sync = page.get_by_role("group", name="sync", exact=True)
    expect(sync.get_by_label("step")).not_to_be_checked()
    expect(sync.locator("label")).to_have_text(["phase", "step (default)", "none"])
    page.get_by_text("More settings").click()
    for name, said in (("seed", "default: 1337"), ("eps", "default: 1e-8"), ("lr", "default of gpt2: 0.0001"),
                       ("nesterov", "default: false"), ("op_threads", "default")):  # fmt: skip
        expect(page.locator(f"#set-{name}")).to_have_attribute("placeholder", said)
    expect(page.get_by_role("group", name="optimizer", exact=True)).to_contain_text("adamw (default of gpt2)")
    batch = page.locator("#set-batch")
    sent = {"model": "tiny", "seq": 64, "steps": 20}
    with page.expect_request(lambda request: request.method == "POST" and request.post_data_json["base"] == sent):
        batch.fill("")
    expect(batch).to_have_attribute("placeholder", "default of gpt2: 4")
