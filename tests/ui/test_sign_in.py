"""Signing in at an OpenID Connect provider and out again, in a browser."""

from __future__ import annotations

import httpx
import pytest
from joserfc.jwk import RSAKey
from playwright.sync_api import expect

from tests.support.oidc_provider import CLIENT, SECRET, provider
from tests.support.processes import house

pytestmark = [pytest.mark.ui, pytest.mark.timeout(300)]
ORIGIN = "https://taskloom.example.org"
SUBMIT = """async () => (await fetch('../api/v1/experiments', {method: 'POST', body: '{"base": {"model": "tiny"}}',
headers: {'Content-Type': 'application/json'}})).json()"""


def test_a_user_signs_in_works_with_the_dashboard_and_signs_out(tmp_path, new_tab, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    with (
        provider(RSAKey.generate_key(2048, {"kid": "1"})) as issuer,
        house(
            tmp_path, f"sqlite:///{tmp_path / 'users.db'}", oidc_issuer=issuer.url, oidc_client_id=CLIENT,
            oidc_client_secret_file=str(secret), oidc_origin=ORIGIN, oidc_groups="vision=submit",
        ) as home,
    ):  # fmt: skip
        httpx.post(f"{home.url}/api/v1/keys", json={"scope": "admin"}, timeout=60).raise_for_status()
        authorize = issuer.authorize  # leads to the proxy that adds TLS, which there is none of
        monkeypatch.setattr(issuer, "authorize", lambda query: authorize(query).replace(ORIGIN, home.url))
        tab = new_tab(home.url)
        tab.refusals.add(401)
        page = tab.open("access")
        expect(page.get_by_role("heading", level=1)).to_have_text("This server requires a key")
        assert tab.violations() == []
        page.get_by_role("link", name="Sign in or out").click()
        assert tab.violations() == []
        page.get_by_role("link", name=f"Sign in at {issuer.url}").click()
        page.wait_for_url(f"{home.url}/ui/")
        page = tab.open("access")
        expect(page.locator("main")).to_contain_text("ada (user:ada)")
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Lax")
        assert page.evaluate("document.cookie") == ""
        assert page.evaluate(SUBMIT)["submitter"] == "user:ada"
        page.get_by_role("link", name="Sign in or out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Signed in as ada")
        assert tab.violations() == []
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        tab.wrong = [each for each in tab.wrong if not each.startswith(f"elsewhere: {issuer.url}")]
