"""Proxies and certificates that the environment names: none is between this machine and itself, and one that cannot be
used is named."""

import httpx
import pytest

from gpt2core.spec.errors import ConfigError
from taskloom import Client
from taskloom.contract import http
from taskloom.errors import Problem, ServerUnreachable
from tests.support.http_clients import ANSWERS, FAILURES, ask
from tests.support.http_double import scripted

PROXY_VARIABLES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
HOSTILE = [
    ("HTTP_PROXY", "http://127.0.0.1:9"), ("http_proxy", "nonsense"), ("ALL_PROXY", "socks5://127.0.0.1:1080"),
    ("all_proxy", "http://["), ("HTTPS_PROXY", "http://127.0.0.1:9"), ("SSL_CERT_FILE", "/nonexistent/ca.pem"),
    ("SSL_CERT_FILE", __file__), ("SSL_CERT_DIR", "/nonexistent"), ("SSLKEYLOGFILE", "/nonexistent/keys.log"),
    ("NO_PROXY", "["), ("REQUESTS_CA_BUNDLE", "/nonexistent"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in (*PROXY_VARIABLES, "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("variable", "value"), HOSTILE)
@pytest.mark.parametrize("kind", ANSWERS)
def test_a_server_of_this_machine_answers_whatever_the_environment_says(monkeypatch, kind, variable, value):
    monkeypatch.setenv(variable, value)
    with scripted() as script:
        script.answer(200, ANSWERS[kind])
        ask(kind, script.url)
        assert len(script.asked) == 1


@pytest.mark.parametrize("host", [
    "localhost", "127.0.0.1", "127.8.8.8", "[::1]", "a.localhost", "LOCALHOST.", "ip6-localhost", "0.0.0.0", "[::]",
    "127.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]",
])  # fmt: skip
def test_loopback_is_known_by_its_address(monkeypatch, host):
    monkeypatch.setenv("ALL_PROXY", "http://proxy.invalid:3128")
    http.Client(f"http://{host}:8321", {}, 1.0).close()
    assert http.is_loopback(httpx.URL(f"http://{host}").host)
    for other in ("127.0.0.1.example.org", "8.8.8.8", "8.8", "localhost.example.org", "::2", ""):
        assert not http.is_loopback(other)


def test_an_address_that_no_request_can_use_is_named():
    names = ("127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1:0", "a" * 70 + ".example", "a..example", "\udcff")
    for server in (f"http://{name}" for name in names):
        with pytest.raises(ConfigError, match="server = "):
            http.reached(server, None)
    assert http.reached("http://127.0.0.1:1", "key") == "http://127.0.0.1:1, with a key"


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("value", ["socks5://u:w0rd@127.0.0.1:1080", "http://[", "http://a:b", "ftp://a", "http://"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(monkeypatch, kind, value):
    monkeypatch.setenv("ALL_PROXY", value)
    with pytest.raises(ConfigError, match=r"ALL_PROXY = .* is not accepted: http://HOST:PORT") as raised:
        ask(kind, "http://taskloom.invalid")
    assert "w0rd" not in str(raised.value)


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_error_through_a_proxy_names_the_proxy(monkeypatch, kind):
    with scripted() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("://", "://user:w0rd@"))
        proxy.answer(502, b"<html>no")
        with pytest.raises(Exception, match=rf"through the proxy {proxy.url} \(http_proxy\)") as raised:
            ask(kind, "http://taskloom.invalid")
        assert "w0rd" not in str(raised.value)
        assert proxy.asked[0].path.startswith("http://taskloom.invalid/")
    with pytest.raises(FAILURES, match=r"through the proxy"):
        ask(kind, "http://taskloom.invalid")
    monkeypatch.setenv("NO_PROXY", "taskloom.invalid")
    with pytest.raises(FAILURES) as raised:
        ask(kind, "http://taskloom.invalid")
    assert "proxy" not in str(raised.value)


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize(
    ("variable", "value"), [each for each in HOSTILE if each[0] in ("SSL_CERT_FILE", "SSLKEYLOGFILE")]
)
def test_certificates_that_cannot_be_used_are_named_where_tls_is(monkeypatch, kind, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable} = '{value}' is not accepted"):
        ask(kind, "https://taskloom.invalid")
    monkeypatch.setenv(variable, "")
    with pytest.raises(FAILURES):
        ask(kind, "https://taskloom.invalid")


def test_the_variable_that_a_private_authority_needs_is_named():
    with http.Client("https://taskloom.invalid", {}, 1.0) as client:
        refused = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed")
        assert client.why(refused).endswith("; SSL_CERT_FILE may name its authority's certificate")
        assert "SSL_CERT_FILE" not in client.why(httpx.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong version"))


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("status", [200, 204, 404, 502])
def test_an_answer_that_cannot_be_decoded_is_no_answer(kind, status):
    with scripted() as script:
        script.answer(status, b"<html>502 Bad Gateway</html>", Content_Encoding="gzip", Content_Type="text/html")
        if status == 204:
            script.answers[0] = (200, b"\x1f\x8b\x08", {"Content-Encoding": "deflate"})
        with pytest.raises(FAILURES):
            ask(kind, script.url)


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_password_in_the_address_is_sent_and_never_shown(kind):
    with scripted() as script:
        address = script.url.replace("://", "://user:w0%40rd@")
        script.answer(200, ANSWERS[kind])
        ask(kind, address)
        assert script.asked[0].headers["Authorization"] == httpx.BasicAuth("user", "w0@rd")._auth_header
        script.answer(502, b"<html>no")
        with pytest.raises((*FAILURES, Problem)) as raised:
            ask(kind, address)
        assert "w0" not in str(raised.value)
    with pytest.raises(FAILURES) as raised:
        ask(kind, address)
    assert "w0" not in str(raised.value)
    assert http.reached(address, None) == script.url


def test_an_address_in_another_encoding_is_no_server():
    with pytest.raises(ServerUnreachable):
        Client("http://127.0.0.1:1/\udcff")


@pytest.mark.parametrize(("excepted", "host", "is_excepted"), [
    ("10.0.0.0/8", "10.1.2.3", True), ("localhost, 10.1.0.0/16 ,x", "10.1.2.3", True),
    ("10.1.2.9/24", "10.1.2.3", True),
    ("fd00::/8", "[fd12::1]", True), ("10.2.0.0/16", "10.1.2.3", False), ("10.0.0.0/8", "taskloom.invalid", False),
    ("10.0.0.0/99", "10.1.2.3", False), ("/", "10.1.2.3", False), ("*", "10.1.2.3", True),
    (".invalid", "a.taskloom.invalid", True), ("taskloom.invalid:8321", "taskloom.invalid:8321", True),
    ("*.invalid", "a.taskloom.invalid", True), ("x taskloom.invalid", "taskloom.invalid", True),
    ("x, *", "10.1.2.3", True), ("[fd12::1]", "[fd12::1]:8321", True), ("[fd12::1]:8321", "[fd12::1]:8321", True),
    ("fd12::1", "[fd12::1]", True), ("[fd12::1]:80", "[fd12::1]:8321", False), ("[fd12::2]", "[fd12::1]", False),
    ("http://taskloom.invalid", "taskloom.invalid", True), ("Taskloom.Invalid.", "taskloom.invalid", True),
    ("taskloom.invalid:80", "taskloom.invalid", True), ("taskloom.invalid:80", "taskloom.invalid:8321", False),
    ("loom.invalid", "taskloom.invalid", False), (".", "taskloom.invalid", False), (":", "taskloom.invalid", False),
])  # fmt: skip
def test_hosts_domains_and_networks_may_be_excepted_from_the_proxy(monkeypatch, excepted, host, is_excepted):
    monkeypatch.setenv("all_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", excepted)
    with http.Client(f"http://{host}", {}, 1.0) as client:
        assert (client.through == "") == is_excepted
