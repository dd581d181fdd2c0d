"""Whether people sign on with an OpenID Connect provider, by the settings. Off by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt2core.spec import extras
from gpt2core.spec.errors import said
from gpt2core.spec.wording import enumerated
from taskloom.contract import key_files
from taskloom.server.access.proxies import GROUP
from taskloom.server.errors import StartRefused
from taskloom.server.settings import PREFIX, Settings

if TYPE_CHECKING:
    from taskloom.server.access.oidc.sign_on import SignOn

NEEDED = ("oidc_issuer", "oidc_client_id", "oidc_client_secret_file", "oidc_origin", "oidc_groups")
LEAST_SECRET = 16  # characters; sessions are signed with a key that is made from the secret


def sign_on(settings: Settings) -> SignOn | None:
    """What signs people on; None without settings of OpenID Connect. Raises StartRefused, FileError or NotInstalled."""
    missing = [f"{PREFIX}{name.upper()}" for name in NEEDED if not getattr(settings, name)]
    file = settings.oidc_client_secret_file
    if len(missing) == len(NEEDED):
        return None
    if missing or file is None:
        raise StartRefused(f"to sign people on with OpenID Connect, also set {enumerated(missing)}")
    extras.require("oidc")
    from taskloom.server.access.oidc.sign_on import SECURE, SignOn

    if SECURE.fullmatch(settings.oidc_issuer) is None:
        accepted = "an address with https, or with http on loopback for a trial"
        raise StartRefused(f"TASKLOOM_OIDC_ISSUER = {said(settings.oidc_issuer)} is not accepted: {accepted}")
    secret = key_files.read(file)
    if len(secret) < LEAST_SECRET:
        accepted = f"a file of {LEAST_SECRET} characters or more"
        raise StartRefused(f"TASKLOOM_OIDC_CLIENT_SECRET_FILE = {file} is not accepted: {accepted}")
    return SignOn(settings, secret, _scopes(settings.oidc_groups))


def _scopes(text: str) -> dict[str, str]:
    """The scope of each group, in the order of the setting. Raises StartRefused."""
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        group, _, scope = part.rpartition("=")
        if scope not in ("read", "submit", "admin") or GROUP.fullmatch(group) is None:
            accepted = "groups with their scopes, such as vision=submit, admins=admin, *=read"
            raise StartRefused(f"TASKLOOM_OIDC_GROUPS: {part!r} is not accepted: {accepted}")
        found[group] = scope
    return found
