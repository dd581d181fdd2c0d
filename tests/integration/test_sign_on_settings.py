"""Providers that cannot be used and settings that sign nobody on: what doctor, the start and the pages say of them."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from gpt2core.spec import extras
from gpt2core.spec.preflight import examine
from taskloom.server.access.oidc import configured, sign_on
from taskloom.server.access.oidc.sign_on import SESSION
from taskloom.server.preflight import checks
from taskloom.server.settings import Settings
from tests.support.oidc_provider import SECRET
from tests.support.patience import DEADLINE_S
from tests.support.signing_on import ORIGIN, OWN, Browser, with_key


def test_a_provider_that_takes_the_secret_only_in_the_body_gets_it_there(signing, issuer):
    issuer.described = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert Browser(signing).sign_on().status_code == 303


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ({"issuer": "https://login.example.org"}, "calls itself https://login.example.org"),
        ({"token_endpoint": "http://login.example.org/token"}, "token_endpoint"),
        ({"jwks_uri": None}, "jwks_uri"),
    ],
)
def test_a_provider_that_describes_itself_wrongly_is_not_used(signing, issuer, site, described, said, monkeypatch):
    issuer.described = described
    answer = Browser(signing).get("/sign-in/start")
    assert (answer.status_code, said in answer.text) == (502, True)
    assert said in advice(monkeypatch, site)


def advice(monkeypatch: pytest.MonkeyPatch, site: dict[str, Any]) -> str:
    """What `taskloom doctor` says of the settings."""
    for name, value in site.items():
        monkeypatch.setenv(f"TASKLOOM_{name.upper()}", str(value))
    (check,) = [each for each in checks(asking=True) if each.name == "sign-on"]
    (found,) = examine([check])
    assert "\n" not in found.advice
    return found.advice or found.found


def test_a_setting_with_a_wrong_letter_is_named(monkeypatch):
    """A quota, or the header of a proxy, would otherwise be none."""
    variables = next(each for each in checks() if each.name == "variables of the server")
    monkeypatch.setenv("TASKLOOM_WAIT_S", "9")  # a worker's
    assert examine([variables])[0].advice == ""
    monkeypatch.setenv("TASKLOOM_MAX_QUEUD", "4")
    said = "'TASKLOOM_MAX_QUEUD' is not accepted: no setting has this name; did you mean TASKLOOM_MAX_QUEUED?"
    assert examine([variables])[0].advice == f"variable = {said}"


def test_a_provider_that_is_not_there_refuses_sign_ons_but_not_the_start(start_server, site, monkeypatch):
    site["oidc_issuer"] = "http://127.0.0.1:9/"
    signing = with_key(start_server(**site))
    answer = Browser(signing).get("/sign-in/start")
    assert (answer.status_code, "http://127.0.0.1:9/ cannot be reached" in answer.text) == (502, True)
    assert "TASKLOOM_OIDC_ISSUER: http://127.0.0.1:9/ cannot be reached" in advice(monkeypatch, site)
    assert next(each for each in checks() if each.name == "sign-on").look() == "http://127.0.0.1:9/"


def test_a_provider_that_does_not_answer_is_not_waited_for(signing, issuer, monkeypatch):
    monkeypatch.setattr(sign_on, "LONGEST_S", 0.05)
    over = threading.Event()
    monkeypatch.setattr(issuer, "description", lambda: {"issuer": over.wait(DEADLINE_S)})
    answer = Browser(signing).get("/sign-in/start")
    over.set()
    assert (answer.status_code, "does not answer within 0.05 s" in answer.text) == (502, True)


def test_doctor_names_the_provider_that_can_be_used(site, issuer, monkeypatch):
    assert advice(monkeypatch, site) == issuer.url
    proxy = {"proxy_user_header": "X-Forwarded-User", "proxy_addresses": "127.0.0.1"}
    assert advice(monkeypatch, proxy) == f"X-Forwarded-User of 127.0.0.1, {issuer.url}"
    assert advice(monkeypatch, dict.fromkeys(site, "")) == "X-Forwarded-User of 127.0.0.1"
    assert advice(monkeypatch, dict.fromkeys(proxy, "")) == "with keys"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"oidc_issuer": "http://login.example.org"}, "ISSUER = 'http://login.example.org' is not accepted"),
        ({"oidc_issuer": "http://localhost.example.org"}, "TASKLOOM_OIDC_ISSUER"),
        ({"oidc_issuer": "", "oidc_groups": ""}, "also set TASKLOOM_OIDC_ISSUER and TASKLOOM_OIDC_GROUPS"),
        ({"oidc_groups": "vision"}, "TASKLOOM_OIDC_GROUPS: 'vision' is not accepted"),
        ({"oidc_groups": "vision=worker"}, "TASKLOOM_OIDC_GROUPS: 'vision=worker' is not accepted"),
        ({"oidc_groups": "=read"}, "TASKLOOM_OIDC_GROUPS: '=read' is not accepted"),
        ({"oidc_origin": "http://taskloom.example.org"}, "TASKLOOM_OIDC_ORIGIN"),
        ({"oidc_client_secret_file": "/no/such"}, "/no/such"),
    ],
)
def test_settings_that_cannot_sign_anybody_on_are_named_at_the_start(site, changed, said, monkeypatch):
    assert said in advice(monkeypatch, {**site, **changed})


def test_a_secret_that_others_can_read_or_guess_is_refused(site, monkeypatch):
    file = site["oidc_client_secret_file"]
    file.write_text("short")
    assert "16 characters or more" in advice(monkeypatch, site)
    file.chmod(0o644)
    assert "chmod 600" in advice(monkeypatch, site)


def test_a_missing_library_is_named_with_its_extra(site, monkeypatch):
    monkeypatch.setattr(extras, "MODULES", extras.MODULES | {"oidc": ("no_such_authlib",)})
    assert advice(monkeypatch, site).endswith("lacks oidc (no_such_authlib): install taskloom[oidc]")


def test_without_a_provider_nobody_is_signed_on(start_server):
    signing = with_key(start_server())
    for method, path in [("GET", ""), ("GET", "/start"), ("GET", "/callback"), ("POST", "/out")]:
        assert signing.http.request(method, f"/sign-in{path}", headers=OWN).status_code == 404
    assert "sign-in" not in signing.http.get("/ui/").text
    assert configured.sign_on(Settings()) is None
    session = jwt.encode({"alg": "HS256"}, {"user": "root"}, OctKey.import_key(SECRET))
    assert signing.http.get("/api/v1/whoami", headers={"Cookie": f"{SESSION}={session}"}).status_code == 401


def test_pages_link_to_the_sign_in_below_any_path(start_server, site):
    signing = with_key(start_server(**site, root_path="/lab"))
    assert '<a href="../sign-in">Sign in or out</a>' in signing.http.get("/lab/ui/").text
    shown = signing.http.get("/lab/sign-in")
    assert 'href="/lab/sign-in/start"' in shown.text
    assert "script" not in shown.headers["Content-Security-Policy"]
    to_provider = signing.http.get("/lab/sign-in/start").headers["Location"]
    assert parse_qs(urlsplit(to_provider).query)["redirect_uri"] == [f"{ORIGIN}/lab/sign-in/callback"]
