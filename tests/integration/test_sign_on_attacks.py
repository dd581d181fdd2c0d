"""Attacks on the sign-on at an OpenID Connect provider: tokens, answers and cookies of others, changed, used again."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from taskloom.server.access.oidc import sign_on
from taskloom.server.access.oidc.sign_on import PENDING, SESSION
from tests.support.oidc_provider import CLIENT, SECRET, compact
from tests.support.signing_on import Browser, refusal

EXPIRED = int(time.time()) - 3600


@pytest.mark.parametrize(
    ("altered", "said"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"aud": "another"}, "aud"),
        ({"aud": None}, "aud"),
        ({"aud": [CLIENT, "another"]}, "azp"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, "azp"),
        ({"azp": "another"}, "azp"),
        ({"exp": EXPIRED}, "expired"),
        ({"exp": None}, "exp"),
        ({"iat": int(time.time()) + 3600}, "token"),
        ({"iss": "https://login.example.org"}, "iss"),
        ({"iss": None}, "iss"),
        ({"sub": None}, "sub"),
    ],
)
def test_a_token_that_is_not_of_this_sign_on_signs_nobody_on(signing, issuer, altered, said):
    issuer.altered = altered
    status, text = refusal(Browser(signing))
    assert (status, said in text) == (401, True)


def unsigned(claims: Any, _: Any) -> str:
    return compact({"alg": "none"}, claims, lambda _: b"")


def by_the_secret(claims: Any, _: Any) -> str:
    return compact({"alg": "HS256"}, claims, lambda said: hmac.digest(SECRET.encode(), said, hashlib.sha256))


def by_the_public_key(claims: Any, key: RSAKey) -> str:
    public = key.as_pem(private=False)
    return compact({"alg": "HS256", "kid": "1"}, claims, lambda said: hmac.digest(public, said, hashlib.sha256))


def by_a_stranger(claims: Any, _: Any) -> str:
    return jwt.encode({"alg": "RS256", "kid": "1"}, claims, RSAKey.generate_key(2048))


def by_a_key_of_its_own(claims: Any, _: Any) -> str:
    own = RSAKey.generate_key(2048, {"kid": "2"})
    return jwt.encode({"alg": "RS256", "kid": "2", "jwk": own.as_dict(private=False)}, claims, own)


def changed(claims: Any, key: RSAKey) -> str:
    head, _, tail = jwt.encode({"alg": "RS256", "kid": "1"}, claims, key).split(".")
    other = compact({"alg": "RS256"}, {**claims, "groups": ["vision"], "sub": "root"}, lambda _: b"").split(".")[1]
    return f"{head}.{other}.{tail}"


@pytest.mark.parametrize(
    "sign",
    [unsigned, by_the_secret, by_the_public_key, by_a_stranger, by_a_key_of_its_own, changed, lambda *_: "nonsense"],
)
def test_a_token_that_the_provider_did_not_sign_signs_nobody_on(signing, issuer, sign):
    issuer.signed = lambda claims: sign(claims, issuer.key)
    status, text = refusal(Browser(signing))
    assert (status, "is not accepted" in text) == (401, True)


@pytest.mark.parametrize("altered", ["state=another", "state=gr%C3%B6%C3%9Fe", "iss=https://login.example.org"])
def test_an_answer_to_another_sign_on_signs_nobody_on(signing, issuer, altered):
    browser = Browser(signing)
    back, name = browser.begin(), altered.partition("=")[0]
    kept = [part for part in back.partition("?")[2].split("&") if not part.startswith(f"{name}=")]
    status, _ = refusal(browser, f"/sign-in/callback?{'&'.join([*kept, altered])}")
    assert (status, len(issuer.codes)) == (401, 1)  # the code was not even sent


def test_an_attackers_answer_does_not_sign_on_another_browser(signing, issuer):
    attacker, victim = Browser(signing), Browser(signing)
    back = attacker.begin()
    assert refusal(victim, back)[0] == 401  # it began none
    code, own = (parse_qs(urlsplit(address).query) for address in (back, victim.begin()))
    status, _ = refusal(victim, f"/sign-in/callback?code={code['code'][0]}&state={own['state'][0]}")
    assert (status, issuer.refused) == (401, ["invalid_grant"])  # the challenge is the attacker's


def test_a_code_counts_once(signing, issuer):
    browser = Browser(signing)
    back, begun = browser.begin(), dict(browser.cookies)
    assert browser.get(back).status_code == 303
    browser.cookies = begun
    status, text = refusal(browser, back)
    assert (status, "refused the code" in text, issuer.refused) == (401, True, ["invalid_grant"])


def test_an_error_of_the_provider_is_shown_as_text(signing):
    browser = Browser(signing)
    state = parse_qs(urlsplit(browser.begin()).query)["state"][0]
    status, text = refusal(browser, f"/sign-in/callback?state={state}&error=%3Cb%3Eaccess_denied")
    assert (status, "answered: &lt;b&gt;access_denied" in text) == (401, True)


def test_a_sign_on_must_end_in_time(signing, monkeypatch):
    browser = Browser(signing)
    monkeypatch.setattr(sign_on, "PENDING_S", -1.0)
    back = browser.begin()
    assert refusal(browser, back)[0] == 401


def forged(secret: bytes, claims: Any, alg: str = "HS256") -> str:
    return compact({"alg": alg}, claims, lambda said: hmac.digest(secret, said, "sha256") if alg != "none" else b"")


def test_a_changed_cookie_is_none(ada):
    whole = ada.cookies[SESSION]
    assert ada.get("/api/v1/whoami").status_code == 200
    claims = {"user": "root", "group": "vision", "exp": int(time.time()) + 1000}
    head, said, tail = whole.split(".")
    others = [
        f"{head}.{forged(b'', claims).split('.')[1]}.{tail}",
        f"{head}.{said}.{tail[:-8]}AAAAAAAA",
        f"{head}.{said}.",
        forged(b"", claims, "none"),
        forged(b"", claims),
        forged(SECRET.encode(), claims),
        "nonsense",
    ]
    ada.begin()
    others.append(ada.cookies.pop(PENDING))  # ours, but of the other kind
    for other in others:
        ada.cookies[SESSION] = other
        assert ada.get("/api/v1/whoami").status_code == 401
        assert "Sign in at" in ada.get("/sign-in").text
