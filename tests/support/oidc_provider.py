"""An OpenID Connect provider on loopback: authorization code with PKCE, tokens signed with a key made on the fly. Tests
change what its tokens say and how they are signed."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "taskloom", "the-secret-of-the-client"
Claims = dict[str, Any]


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def compact(header: dict[str, str], claims: Claims, sign: Callable[[bytes], bytes]) -> str:
    """A token that no library would make."""
    said = ".".join(base64url(json.dumps(part).encode()) for part in (header, claims))
    return f"{said}.{base64url(sign(said.encode()))}"


@dataclass
class Provider:
    """key: its kid is 1. user: claims of whoever signs on. altered: replaces claims of the next tokens, None to leave
    one out. signed: makes a token of claims. described: replaces what the provider says of itself. asked: the
    authorization requests."""

    url: str
    key: RSAKey
    user: Claims = field(default_factory=lambda: {"sub": "ada", "groups": ["speech", "vision"]})
    altered: Claims = field(default_factory=dict)
    described: Claims = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    signed: Callable[[Claims], str] | None = None

    def description(self) -> Claims:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            **self.described,
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes after the user has agreed."""
        self.asked.append(query)
        code = secrets.token_urlsafe()
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': self.url})}"

    def token(self, authorization: str, form: dict[str, str]) -> tuple[int, Claims]:
        """The answer to a code, which counts once."""
        begun = self.codes.pop(form["code"], None)
        inside = "client_secret_post" in self.description().get("token_endpoint_auth_methods_supported", ())
        header = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if (form.get("client_secret"), authorization) != ((SECRET, "") if inside else (None, header)):
            return self._refuse("invalid_client", 401)
        verifier = base64url(hashlib.sha256(form["code_verifier"].encode()).digest())
        if begun is None or begun["code_challenge"] != verifier or begun["redirect_uri"] != form["redirect_uri"]:
            return self._refuse("invalid_grant", 400)
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": begun["nonce"]}
        claims = {name: value for name, value in {**claims, **self.user, **self.altered}.items() if value is not None}
        signed = self.signed or (lambda said: jwt.encode({"alg": "RS256", "kid": "1"}, said, self.key))
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": signed(claims)}

    def _refuse(self, error: str, status: int) -> tuple[int, Claims]:
        self.refused.append(error)
        return status, {"error": error}


@contextlib.contextmanager
def provider(key: RSAKey) -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            if address.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", found.authorize(dict(_pairs(address.query))))
                self.end_headers()
            elif address.path == "/keys":
                self._answer(200, {"keys": [found.key.as_dict(private=False)]})
            else:
                self._answer(200 if address.path == "/.well-known/openid-configuration" else 404, found.description())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(*found.token(self.headers.get("Authorization", ""), dict(_pairs(body))))

        def _answer(self, status: int, value: Claims) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            with contextlib.suppress(ConnectionError):  # a client that did not wait
                self.end_headers()
                self.wfile.write(json.dumps(value).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Provider(f"http://127.0.0.1:{server.server_port}", key)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    return ((name, values[0]) for name, values in parse_qs(text).items())
