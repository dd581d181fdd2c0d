"""Browsers that sign on at a provider of tests, and the fixtures of a server where they do."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc.jwk import RSAKey

from taskloom.server.access.oidc.sign_on import SESSION
from tests.support.caller import Caller
from tests.support.oidc_provider import CLIENT, SECRET, Provider, provider
from tests.support.servers import StartServer

ORIGIN = "https://taskloom.example.org"
OWN = {"Sec-Fetch-Site": "same-origin"}


class Browser:
    """Keeps cookies as a browser does that reaches the server under ORIGIN, which a proxy answers."""

    def __init__(self, signing: Caller) -> None:
        self.http, self.cookies = signing.http, dict[str, str]()

    def send(self, method: str, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = self.http.request(method, path, headers={"Cookie": cookies, **(headers or {})}, **more)
        for line in answer.headers.get_list("Set-Cookie"):
            for name, said in SimpleCookie(line).items():
                assert (said["path"], said["secure"], said["httponly"], said["samesite"]) == ("/", True, True, "lax")
                assert not said["domain"]
                if said["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = said.value
        return answer

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.send("GET", path, headers)

    def begin(self) -> str:
        """The address to which the provider leads back."""
        to_provider = self.get("/sign-in/start")
        assert to_provider.status_code == 303
        back = httpx.get(to_provider.headers["Location"], verify=False).headers["Location"]
        assert back.startswith(f"{ORIGIN}/sign-in/callback?")
        return str(back.removeprefix(ORIGIN))

    def sign_on(self) -> httpx.Response:
        return self.get(self.begin())

    def submit(self, **headers: str) -> httpx.Response:
        return self.send("POST", "/api/v1/experiments", headers, json={"base": {"model": "tiny"}})


@pytest.fixture(scope="session")
def issuer_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "1", "use": "sig"})


@pytest.fixture
def issuer(issuer_key: RSAKey) -> Iterator[Provider]:
    with provider(issuer_key) as found:
        yield found


@pytest.fixture
def site(issuer: Provider, tmp_path: Path) -> dict[str, Any]:
    """The settings that a site needs."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    return {
        "oidc_issuer": issuer.url,
        "oidc_client_id": CLIENT,
        "oidc_client_secret_file": secret,
        "oidc_origin": ORIGIN,
        "oidc_groups": "vision=submit, speech=read",
    }


@pytest.fixture
def signing(start_server: StartServer, site: dict[str, Any]) -> Caller:
    """A server where people sign on."""
    return with_key(start_server(**site))


def with_key(api: Caller) -> Caller:
    """A server that has a key, so that it is open to nobody else. Its requests have none."""
    api.tokens["admin"] = api.post("/keys", {"scope": "admin"}, 201)["token"]
    return api


@pytest.fixture
def ada(signing: Caller) -> Browser:
    """The browser of a user who has signed on."""
    browser = Browser(signing)
    assert browser.sign_on().headers["Location"] == "/ui/"
    assert set(browser.cookies) == {SESSION}
    return browser


def refusal(browser: Browser, back: str | None = None) -> tuple[int, str]:
    """Status and text of a sign-on that must fail, and leaves nothing in the browser."""
    answer = browser.get(browser.begin() if back is None else back)
    assert answer.headers["Content-Type"].startswith("text/html")
    assert browser.cookies == {}
    return answer.status_code, answer.text
