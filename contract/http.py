"""The HTTP client of a server: proxy and certificates of the environment, and how a request can fail."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import ssl
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from gpt2core.spec.errors import ConfigError
from taskloom.contract.keys import authorization
from taskloom.contract.options import DEFAULT_SERVER
from taskloom.contract.retry import OURS, RETRIED_STATUSES, Refused, Unreachable, parse_retry_after_s

API = "/api/v1"
PROBLEM = "application/problem+json"
LOOPBACK = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")  # names in /etc/hosts
SHORT = re.compile(r"(0x[0-9a-f]+|\d+)(\.(0x[0-9a-f]+|\d+)){0,3}")  # of IPv4 addresses, such as 127.1
EXCEPTED = re.compile(r"(\[(?P<address>[^]]*)]|(?P<name>[^:]*))(:(?P<port>\d+))?")  # an address of IPv6 has more colons
PROXIES = ("http", "https")  # schemes of proxies that need no further package
# What a request can raise: no connection, an answer that cannot be decoded, an address that is none or no name.
FAILED = (httpx.RequestError, httpx.StreamError, httpx.InvalidURL, UnicodeError)
UNKNOWN = "CERTIFICATE_VERIFY_FAILED"  # OpenSSL's word, in each of its messages about a certificate
MOST_PORT = 65535
MOST_BYTES = 64 << 20  # of an answer to a worker or a provisioner, also unpacked
GZIP = zlib.MAX_WBITS | 16


class Client(httpx.Client):
    """A client of one server's API. `through`: the proxy between, in words, or "". short_answers: an answer is refused
    if it has more than MOST_BYTES, is packed otherwise than by gzip, or does not arrive whole within the request's
    timeout.

    Raises ConfigError, which names the variable, for a proxy or certificates that cannot be used, and httpx.InvalidURL.
    """

    def __init__(
        self, server: str, headers: Mapping[str, str], timeout_s: float, short_answers: bool = False
    ) -> None:
        self._short_answers, self._timeout_s = short_answers, timeout_s
        given: dict[str, Any] = {}
        if short_answers:
            headers = {**headers, "Accept-Encoding": "gzip"}
        url = httpx.URL(server.rstrip("/") + API)
        if url.port is not None and not 0 < url.port <= MOST_PORT:  # the system would take another one
            raise httpx.InvalidURL(f"{url.port} is no port")
        if "?" in server or "#" in server:  # such as that of a page of the dashboard; requests would go elsewhere
            raise httpx.InvalidURL("a server's address has no ? and no #")
        if url.userinfo:  # of a proxy before the server; no message shows it
            given["auth"] = url.username, url.password
            url = url.copy_with(userinfo=b"")
        variable, proxy = _proxy(url)
        self.through = f", through the proxy {shown(proxy)} ({variable})" if proxy else ""
        if proxy:
            given["proxy"] = httpx.Proxy(proxy, ssl_context=_certificates() if proxy.startswith("https:") else None)
        # Without TLS no certificates are loaded: what the environment says of them is then of no concern.
        verify = _certificates() if url.scheme == "https" else False
        super().__init__(base_url=url, headers=headers, timeout=timeout_s, trust_env=False, verify=verify, **given)

    def why(self, error: BaseException) -> str:
        """Why a request failed; it names the proxy, and the variable that a private authority needs."""
        hint = "; SSL_CERT_FILE may name its authority's certificate" if UNKNOWN in str(error) else ""
        return f"{error or type(error).__name__}{hint}{self.through}"

    def exchange(self, method: str, path: str, **request: Any) -> httpx.Response:
        """The server's answer, a success. Raises Unreachable if the same request may succeed later, or Refused."""
        try:
            with self.stream(method, path, **request) as answer:
                if self._short_answers:
                    answer.stream = _Short(answer, request.get("timeout", self._timeout_s))
                answer.read()
        except FAILED as error:
            sent = not isinstance(error, httpx.ConnectError)
            raise Unreachable(f"{self.base_url}: {self.why(error)}", sent=sent) from error
        if answer.is_success:
            return answer
        status, problem = answer.status_code, _problem(answer)
        if status in RETRIED_STATUSES:
            retry_after_s = parse_retry_after_s(answer.headers.get("Retry-After"))
            raise Unreachable(f"{answer.request.url}: status {status}{self.through}", retry_after_s, answer)
        if problem is None:  # the answer of a proxy or of another program
            text = f"{answer.request.url}: status {status}, not from a Taskloom server{self.through}"
            raise Unreachable(text, answer=answer)
        raise Refused(answer, problem)


class _Short(httpx.SyncByteStream):
    """A body within limits, unpacked. httpx limits neither the time of a whole body, of which a proxy may send a byte
    every few seconds, nor what a part unpacks to."""

    def __init__(self, answer: httpx.Response, most_s: float) -> None:
        self._body: Any = answer.stream
        self._coding = answer.headers.pop("Content-Encoding", "").lower()  # httpx would unpack it again
        self._most_s = most_s

    def __iter__(self) -> Iterator[bytes]:
        if self._coding not in ("", "identity", "gzip"):
            raise httpx.DecodingError(f"the answer is packed by {self._coding}, which no request accepts")
        size, until = 0, time.monotonic() + self._most_s
        packed = zlib.decompressobj(GZIP)
        for part in self._body:
            unpacked = _unpacked(packed, part) if self._coding == "gzip" else part
            size += max(len(part), len(unpacked))
            if size > MOST_BYTES:
                raise httpx.ReadError(f"the answer has more than {MOST_BYTES:,} bytes")
            if time.monotonic() > until:
                raise httpx.ReadTimeout(f"the answer did not arrive whole within {self._most_s:g} s")
            yield unpacked

    def close(self) -> None:
        self._body.close()


def _unpacked(packed: zlib._Decompress, part: bytes) -> bytes:
    try:
        return packed.decompress(part, MOST_BYTES + 1)
    except zlib.error as error:
        raise httpx.DecodingError(str(error)) from error


def _problem(answer: httpx.Response) -> dict[str, Any] | None:
    """The problem document, if it is one of the server's own."""
    if answer.headers.get("Content-Type", "").partition(";")[0].strip().lower() != PROBLEM:
        return None
    try:
        problem = answer.json()
    except (ValueError, RecursionError):  # ValueError: also of numbers with thousands of digits
        return None
    return problem if isinstance(problem, dict) and str(problem.get("type", "")).startswith(OURS) else None


def reached(server: str, token: str | None) -> str:
    """How a server is reached; nothing is sent. Raises ConfigError for an address, key, proxy or certificates that
    cannot be used."""
    try:
        with Client(server, authorization(token), 1.0) as client:
            client.base_url.raw_host.decode().encode("idna")  # as a connection will
            return f"{shown(server)}{client.through}{', with a key' if token else ''}"
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ConfigError("server", shown(server), f"a URL such as {DEFAULT_SERVER} ({error})") from error


def _proxy(url: httpx.URL) -> tuple[str, str]:
    """The variable that names the proxy of this address, and the proxy; empty without one, and for this machine."""
    if is_loopback(url.host) or _is_excepted(url):
        return "", ""
    for name in (f"{url.scheme}_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            value = os.environ.get(variable)
            if value:
                return variable, _checked(variable, value)
    return "", ""


def _is_excepted(url: httpx.URL) -> bool:
    """Whether no_proxy names the address in one of the forms that curl, Go or httpx read."""
    named = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    return any(_names(each, url) for each in re.split(r"[,\s]+", named.lower()) if each)


def _names(excepted: str, url: httpx.URL) -> bool:
    """Whether a host with a port or without, a domain, a network or * contains an address."""
    found = EXCEPTED.fullmatch(excepted.rpartition("://")[2])
    name, port = (found["address"] or found["name"], found["port"]) if found else (excepted, None)
    if port not in (None, str(url.port or {"http": 80, "https": 443}.get(url.scheme))):
        return False
    host, name = url.host.rstrip("."), name.removeprefix("*.").strip(".")
    return name == "*" or host == name or host.endswith(f".{name}") or _is_within(host, name)


def _is_within(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _checked(variable: str, value: str) -> str:
    proxy = value if "://" in value else f"http://{value}"
    accepted = "http://HOST:PORT; unset it, or put the server's host into NO_PROXY"
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme in PROXIES and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        httpx.Proxy(proxy if usable else "http://localhost")
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable:
        raise ConfigError(variable, shown(value), accepted)
    return proxy


def shown(url: str) -> str:
    """An address without its user and password."""
    scheme, _, place = url.rpartition("://")
    return f"{scheme}://{place.rpartition('@')[2]}" if scheme else place.rpartition("@")[2]


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own, which no proxy reaches."""
    name = host.lower().removesuffix(".")
    if name in LOOPBACK or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(socket.inet_aton(name) if SHORT.fullmatch(name) else name)
    except (ValueError, OSError):
        return False
    plain = getattr(address, "ipv4_mapped", None) or address
    return bool(plain.is_loopback or plain.is_unspecified)  # a connection to 0.0.0.0 reaches this machine


def _certificates() -> ssl.SSLContext:
    """Those of SSL_CERT_FILE or SSL_CERT_DIR, or else certifi's. Raises ConfigError."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    keys = os.environ.get("SSLKEYLOGFILE")  # Python opens it
    try:
        if keys:
            with Path(keys).open("a"):
                pass
    except OSError as error:
        raise ConfigError("SSLKEYLOGFILE", keys, f"a file that can be written ({error.strerror}), or unset") from error
    try:
        if file or folder:
            return ssl.create_default_context(cafile=file or None, capath=folder or None)
        import certifi

        return ssl.create_default_context(cafile=certifi.where())
    except OSError as error:  # ssl.SSLError is one
        if not file:
            raise
        reason = error.strerror or error
        raise ConfigError("SSL_CERT_FILE", file, f"a file of certificates ({reason}), or unset") from error
