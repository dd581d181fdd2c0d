"""Signs people on with an OpenID Connect provider: the authorization code with PKCE. Who they are stays in a signed
cookie, for the dashboard.

The server stores nothing: all servers with the same client secret believe the same cookies, and another secret ends all
sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import httpx
from authlib.oauth2 import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from fastapi import Request, Response
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, OctKey
from pydantic import AfterValidator, BaseModel, ValidationError

from taskloom.server.access.keys.keyring import Caller
from taskloom.server.access.proxies import NAME
from taskloom.server.errors import NotSignedOn, StartRefused, Unauthenticated
from taskloom.server.settings import Settings

SECURE = re.compile(r"(https://|http://(127\.0\.0\.1|localhost|\[::1\])[:/])\S+")
SESSION, PENDING = "__Host-taskloom", "__Host-taskloom-sign-in"  # browsers take these names only by https
ANY_GROUP = "*"
PENDING_S = 600.0
AT_ONCE, LONGEST_S = 4, 10.0  # of sign-ons that talk to the provider; strangers may begin any number
LEEWAY_S = 60  # between the clocks of provider and server
SIGNED_BY = ["RS256", "PS256", "ES256"]  # none that the public key or the client's secret could sign
KINDS = ("RSA", "EC")  # of keys for them
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
log = logging.getLogger("taskloom.server")


def _secure(address: str) -> str:
    if SECURE.fullmatch(address) is None:
        raise ValueError("it has no https")
    return address


Address = Annotated[str, AfterValidator(_secure)]


class Provider(BaseModel):
    """What a provider says of itself (OpenID Connect Discovery 1.0)."""

    issuer: str
    authorization_endpoint: Address
    token_endpoint: Address
    jwks_uri: Address
    token_endpoint_auth_methods_supported: list[str] = ["client_secret_basic"]


class Keys(BaseModel):
    """A provider's public keys."""

    keys: list[dict[str, Any]]


class Token(BaseModel):
    """A provider's answer to a code."""

    id_token: str


@dataclass(frozen=True)
class Session:
    """Who has signed on. group: the first of TASKLOOM_OIDC_GROUPS that the user has. until: seconds since 1970."""

    user: str
    group: str
    until: float


class SignOn:
    """secret: the client's at the provider. scopes: of each group, in the order in which they count."""

    def __init__(self, settings: Settings, secret: str, scopes: Mapping[str, str]) -> None:
        self.issuer, self._settings, self._secret, self._scopes = settings.oidc_issuer, settings, secret, scopes
        self._back = f"{settings.oidc_origin}{settings.root_path}/sign-in/callback"
        self._keys = {  # one of each cookie, so that none passes for the other, nor for that of another server
            name: OctKey.import_key(hmac.digest(secret.encode(), f"{name} {self._back}".encode(), "sha256"))
            for name in (SESSION, PENDING)
        }
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._certificates = httpx.create_ssl_context()  # takes 20 ms; SSL_CERT_FILE names a site's own

    def session(self, request: Request) -> Session | None:
        """The session of a request; None without one, with a changed or an old one, and of a group that lost its
        access."""
        found = self._opened(request, SESSION)
        if found is None or found["group"] not in self._scopes:
            return None
        return Session(found["user"], found["group"], found["exp"])

    def caller(self, request: Request) -> Caller | None:
        """The user of the request's session; None without one, and for a request with a key. Raises Unauthenticated."""
        found = None if "Authorization" in request.headers else self.session(request)
        if found is None:
            return None
        if request.method not in ("GET", "HEAD") and not self.is_own_page(request):
            raise Unauthenticated("with a session only this server's pages change something; others need a key")
        return Caller(None, self._scopes[found.group], found.user, None if found.group == ANY_GROUP else found.group)

    def is_own_page(self, request: Request) -> bool:
        """Whether a browser says that the request is of a page of this server. The cookie goes with other requests
        too."""
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None:
            return site == "same-origin"
        return request.headers.get("Origin") == self._settings.oidc_origin

    async def begin(self, answer: Response) -> str:
        """The provider's page where the user signs on. The answer remembers the sign-on in a cookie. Raises
        NotSignedOn."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        async with self._reached() as (_, provider):
            address: str = prepare_grant_uri(
                provider.authorization_endpoint, self._settings.oidc_client_id, "code", self._back,
                f"openid {self._settings.oidc_scopes}".strip(), state, nonce=nonce,
                code_challenge=create_s256_code_challenge(verifier), code_challenge_method="S256",
            )  # fmt: skip
        self._seal(answer, PENDING, {"state": state, "nonce": nonce, "verifier": verifier}, PENDING_S)
        return address

    async def finish(self, request: Request, answer: Response) -> None:
        """Sign on the user with whom the provider's page led the browser back. The answer gets the session's cookie.
        Raises NotSignedOn."""
        begun, query = self._opened(request, PENDING), request.query_params
        if begun is None:
            raise NotSignedOn(f"this browser began no sign-in within the last {PENDING_S:g} s")
        if not hmac.compare_digest(query.get("state", "").encode(), begun["state"].encode()):
            raise NotSignedOn("the answer belongs to another sign-in")
        if query.get("iss", self.issuer) != self.issuer:
            raise NotSignedOn("the answer comes from another issuer")
        if "code" not in query:
            raise NotSignedOn(f"{self.issuer} answered: {query.get('error', 'no code')[:100]}")
        async with self._reached() as (client, provider):
            claims = await self._claims(client, provider, query["code"], begun)
        user, group = self._admitted(claims)
        log.info("user %s of the group %s signed on", user, group)
        self._seal(answer, SESSION, {"user": user, "group": group}, self._settings.oidc_session_s)

    def end(self, answer: Response) -> None:
        """Have the browser forget its session."""
        self._forget(answer, SESSION)

    def give_up(self, answer: Response) -> None:
        """Have the browser forget the sign-on that it began."""
        self._forget(answer, PENDING)

    @staticmethod
    def _forget(answer: Response, name: str) -> None:
        answer.delete_cookie(name, path="/", secure=True, httponly=True, samesite="lax")

    async def look(self) -> None:
        """Raises StartRefused if the provider cannot be used."""
        try:
            async with self._reached():
                pass
        except NotSignedOn as error:
            raise StartRefused(f"TASKLOOM_OIDC_ISSUER: {error}") from None

    async def _claims(
        self, client: httpx.AsyncClient, provider: Provider, code: str, begun: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What the provider says of the user. Raises NotSignedOn."""
        body = prepare_token_request(
            "authorization_code", redirect_uri=self._back, code=code, code_verifier=begun["verifier"]
        )
        by_form = "client_secret_basic" not in provider.token_endpoint_auth_methods_supported
        auth = ClientAuth(
            self._settings.oidc_client_id, self._secret, "client_secret_post" if by_form else "client_secret_basic"
        )
        address, headers, body = auth.prepare("POST", provider.token_endpoint, dict(FORM), body)
        answer = await client.post(address, content=body, headers=headers)
        if not answer.is_success:
            raise NotSignedOn(f"{self.issuer} refused the code with status {answer.status_code}")
        token = Token.model_validate_json(answer.content).id_token
        found = Keys.model_validate_json(await _fetched(client, provider.jwks_uri)).keys
        try:
            keys = KeySet.import_key_set({"keys": [key for key in found if key.get("kty") in KINDS]})
            claims = jwt.decode(token, keys, algorithms=SIGNED_BY).claims
            mine: jwt.ClaimsOption = {"essential": True, "value": self._settings.oidc_client_id}
            jwt.JWTClaimsRegistry(
                leeway=LEEWAY_S,
                iss={"essential": True, "value": self.issuer},
                aud=mine,
                azp={**mine, "essential": isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1},
                nonce={"essential": True, "value": begun["nonce"]},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
            ).validate(claims)
        except (JoseError, ValueError) as error:
            raise NotSignedOn(f"the token of {self.issuer} is not accepted: {error}") from None
        return claims

    def _admitted(self, claims: Mapping[str, Any]) -> tuple[str, str]:
        """Name and group of the user. Raises NotSignedOn."""
        named, groups = self._settings.oidc_user_claim, claims.get(self._settings.oidc_groups_claim)
        user = claims.get(named)
        if not isinstance(user, str) or NAME.fullmatch(user) is None:
            raise NotSignedOn(f"`{named}` of the token must name the user, in 1 to 100 printable ASCII characters", 403)
        if named == "email" and claims.get("email_verified") is not True:
            raise NotSignedOn(f"{self.issuer} has not verified the address {user}", 403)
        for group in self._scopes:
            if group == ANY_GROUP or group in (groups if isinstance(groups, list) else [groups]):
                return user, group
        raise NotSignedOn(f"{user} belongs to no group that may use this server", 403)

    @contextlib.asynccontextmanager
    async def _reached(self) -> AsyncIterator[tuple[httpx.AsyncClient, Provider]]:
        """A client of the provider, and what that says of itself. Raises NotSignedOn."""
        client = httpx.AsyncClient(verify=self._certificates, trust_env=False, timeout=None)
        try:
            async with asyncio.timeout(LONGEST_S), self._turns, client:
                described = await _fetched(client, f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
                provider = Provider.model_validate_json(described)
                if provider.issuer != self.issuer:
                    raise NotSignedOn(f"{self.issuer} calls itself {provider.issuer}", 502)
                yield client, provider
        except TimeoutError:
            raise NotSignedOn(f"{self.issuer} does not answer within {LONGEST_S:g} s", 502) from None
        except ValidationError as error:
            first = error.errors()[0]
            said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise NotSignedOn(f"{self.issuer} answers otherwise than OpenID Connect has it: {said}", 502) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotSignedOn(f"{self.issuer} cannot be reached: {str(error) or type(error).__name__}", 502) from None

    def _opened(self, request: Request, name: str) -> dict[str, Any] | None:
        """What a cookie says; None without one, and with a changed or an old one."""
        try:
            found = jwt.decode(request.cookies.get(name, ""), self._keys[name], algorithms=["HS256"]).claims
            jwt.JWTClaimsRegistry(exp={"essential": True}).validate(found)
        except (JoseError, ValueError):
            return None
        return found

    def _seal(self, answer: Response, name: str, said: Mapping[str, str], for_s: float) -> None:
        until = int(time.time() + for_s)
        text = jwt.encode({"alg": "HS256"}, {**said, "exp": until}, self._keys[name])
        answer.set_cookie(name, text, int(for_s), path="/", secure=True, httponly=True, samesite="lax")


async def _fetched(client: httpx.AsyncClient, address: str) -> bytes:
    answer = await client.get(address)
    if not answer.is_success:
        raise httpx.HTTPError(f"{address} answers with status {answer.status_code}")
    return answer.content
