"""Webhooks on the page Access."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.processes import house

pytestmark = [pytest.mark.ui, pytest.mark.timeout(300)]


@pytest.fixture
def hooked(tmp_path):
    """A server that sends to one URL; it outlasts the tab."""
    with house(tmp_path, f"sqlite:///{tmp_path / 'hooks.db'}", webhook_targets="http://127.0.0.1:9/hooks") as home:
        yield home


def test_webhooks_are_created_seen_and_deleted(hooked, new_tab):
    tab = new_tab(hooked.url)
    tab.refusals.add(422)
    page = tab.open("access")
    panel = page.locator("form", has=page.get_by_role("heading", name="Webhooks"))
    expect(panel).to_contain_text("No webhooks.")
    panel.get_by_label("URL").fill("http://127.0.0.1:9/elsewhere")
    panel.get_by_role("button", name="Add webhook").click()
    expect(panel.get_by_role("alert")).to_contain_text("TASKLOOM_WEBHOOK_TARGETS")
    panel.get_by_label("URL").fill("http://127.0.0.1:9/hooks/ci")
    panel.get_by_label("alert").check()
    panel.get_by_role("button", name="Add webhook").click()
    expect(panel.get_by_role("listitem")).to_contain_text("http://127.0.0.1:9/hooks/ci")
    expect(panel.get_by_role("listitem")).to_contain_text("no message yet")
    expect(panel.get_by_role("status").locator("code")).not_to_be_empty()  # the secret
    panel.get_by_role("button", name="I have it").click()
    (made,) = httpx.get(f"{hooked.url}/api/v1/webhooks", timeout=60).json()["items"]
    assert sorted(made["events"]) == ["alert", "verdict"]
    assert tab.violations() == []
    panel.get_by_role("button", name="Delete webhook").click()
    expect(panel).to_contain_text("No webhooks.")
    assert httpx.get(f"{hooked.url}/api/v1/webhooks", timeout=60).json()["items"] == []
