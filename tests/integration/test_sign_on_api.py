"""People whom an OpenID Connect provider signs on: the whole way, and what a session may do."""

from __future__ import annotations

import time
from typing import Any

import pytest

from taskloom.server.access.oidc.sign_on import SESSION
from tests.support.oidc_provider import CLIENT
from tests.support.signing_on import ORIGIN, OWN, Browser, refusal, with_key


@pytest.mark.both_databases
def test_who_signs_on_is_an_actor_with_the_scope_and_the_quota_of_the_group(ada, issuer):
    (asked,) = issuer.asked
    assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
    assert (asked["client_id"], asked["scope"]) == (CLIENT, "openid profile")
    whoami = ada.get("/api/v1/whoami").json()
    shown = [whoami[name] for name in ("actor", "scope", "name", "group", "key_id")]
    assert shown == ["user:ada", "submit", "ada", "vision", None]
    made = ada.submit(**OWN)
    assert (made.status_code, made.json()["submitter"], made.json()["group"]) == (201, "user:ada", "vision")
    assert ada.get("/api/v1/keys").status_code == 403
    assert "Signed in as ada" in ada.get("/sign-in").text
    left = ada.send("POST", "/sign-in/out", OWN)
    assert (left.status_code, left.headers["Location"], ada.cookies) == (303, "/sign-in", {})
    assert ada.get("/api/v1/whoami").status_code == 401
    assert "Sign in at" in ada.get("/sign-in").text


def test_states_nonces_and_challenges_are_of_one_sign_on_only(signing, issuer):
    for _ in range(2):
        Browser(signing).begin()
    for name in ("state", "nonce", "code_challenge"):
        assert len({asked[name] for asked in issuer.asked}) == 2


def test_a_session_ends(start_server, site, monkeypatch):
    signing = with_key(start_server(**site, oidc_session_s=100))
    browser = Browser(signing)
    browser.sign_on()
    assert browser.get("/api/v1/whoami").status_code == 200
    later = time.time() + 102
    monkeypatch.setattr(time, "time", lambda: later)
    assert browser.get("/api/v1/whoami").status_code == 401


def test_servers_of_one_client_share_sessions_and_a_new_secret_or_no_group_ends_them(ada, start_server, site):
    session = dict(ada.cookies)

    def status(**more: Any) -> int:
        other = Browser(start_server(**{**site, **more}))
        other.cookies = dict(session)
        return other.get("/api/v1/whoami").status_code

    assert status() == 200
    assert status(oidc_groups="speech=read") == 401
    assert status(root_path="/other") == 401
    site["oidc_client_secret_file"].write_text("another-secret-of-the-client")
    assert status() == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 401),
        ({"Sec-Fetch-Site": "same-site"}, 401),
        ({"Sec-Fetch-Site": "none"}, 401),
        ({"Sec-Fetch-Site": "cross-site", "Origin": ORIGIN}, 401),
        ({"Origin": "https://elsewhere.example.org"}, 401),
        ({"Origin": "null"}, 401),
        ({}, 401),
        ({"Origin": ORIGIN}, 201),
        (OWN, 201),
    ],
)
def test_pages_of_other_sites_change_nothing_with_a_session(ada, headers, status):
    assert ada.submit(**headers).status_code == status
    assert ada.get("/api/v1/runs", **headers).status_code == 200
    left = ada.send("POST", "/sign-in/out", headers)
    assert (left.status_code, SESSION in ada.cookies) == ((303, False) if status == 201 else (403, True))


def test_a_key_counts_before_a_session(ada, signing):
    key = {"Authorization": f"Bearer {signing.tokens['admin']}"}
    assert ada.get("/api/v1/whoami", **key).json()["actor"] == "key:1"
    assert ada.get("/api/v1/whoami", Authorization="Bearer nonsense").status_code == 401
    assert ada.submit(**key).status_code == 201  # no browser of another site sends it


@pytest.mark.parametrize(
    ("groups", "user", "said"),
    [
        ("vision=submit", {"groups": ["speech"]}, "no group that may use"),
        ("vision=submit", {"groups": None}, "no group that may use"),
        ("vision=submit", {"groups": "vision, speech"}, "no group that may use"),
        ("*=read", {"sub": "two words"}, "must name the user"),
        ("*=read", {"sub": "x" * 101}, "must name the user"),
    ],
)
def test_a_user_without_a_group_or_a_name_is_not_signed_on(start_server, site, issuer, groups, user, said):
    signing = with_key(start_server(**{**site, "oidc_groups": groups}))
    issuer.altered = user
    status, text = refusal(Browser(signing))
    assert (status, said in text) == (403, True)


@pytest.mark.parametrize(
    ("groups", "user", "expected"),
    [
        ("speech=read, vision=submit", {}, ("read", "speech")),
        ("a=b=admin, vision=submit", {"groups": ["vision", "a=b"]}, ("admin", "a=b")),
        ("vision=submit", {"groups": "vision"}, ("submit", "vision")),
        ("admins=admin, *=read", {}, ("read", None)),
        ("*=read", {"groups": None}, ("read", None)),
    ],
)
def test_the_first_group_of_the_setting_counts(start_server, site, issuer, groups, user, expected):
    signing = with_key(start_server(**{**site, "oidc_groups": groups}))
    issuer.altered = user
    browser = Browser(signing)
    browser.sign_on()
    whoami = browser.get("/api/v1/whoami").json()
    assert (whoami["scope"], whoami["group"]) == expected


def test_an_address_names_a_user_only_if_the_provider_verified_it(start_server, site, issuer):
    signing = with_key(start_server(**site, oidc_user_claim="email"))
    issuer.user |= {"email": "ada@example.org", "email_verified": False}
    status, text = refusal(Browser(signing))
    assert (status, "has not verified" in text) == (403, True)
    issuer.user["email_verified"] = True
    browser = Browser(signing)
    browser.sign_on()
    assert browser.get("/api/v1/whoami").json()["actor"] == "user:ada@example.org"
