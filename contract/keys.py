"""Keys. Only the answer to the creation contains the token."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal

from pydantic import Field

from gpt2core.spec.errors import ConfigError
from taskloom.contract.bodies import Model, Request

Scope = Literal["read", "submit", "worker", "admin"]
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
TOKEN_ACCEPTED = "a key alone, without a name, quotes or spaces: letters, digits and - . _ ~ + /"
LONGEST_S = 10 * 366 * 86400
GROUP = "the group with whose other keys and users it shares the limits of runs and node hours"


class KeyRequest(Request):
    """Request for a new key."""

    scope: Scope
    name: str = Field("", max_length=200, pattern=r"^[A-Za-z0-9_ .:@/-]*$", description="name of the key")
    group: str | None = Field(
        None, min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_.:@/-]+$", description=f"{GROUP}; null: none"
    )
    expires_in_s: float | None = Field(None, gt=0, le=LONGEST_S, description="without it, the key does not expire")


class KeySummary(Model):
    """A key in a list, without its secret."""

    id: int
    name: str
    scope: Scope
    group: str | None = Field(None, description=f"{GROUP}; null: none")
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class KeyCreated(KeySummary):
    """A new key. `token` is shown here and never again."""

    token: str


class KeyPage(Model):
    """A page of keys, oldest first."""

    items: list[KeySummary]
    next_cursor: str | None


class Identity(Model):
    """The caller's identity."""

    actor: str = Field(
        description="name in histories: key:ID, user:NAME of a trusted proxy, or local on a server without keys"
    )
    scope: Scope
    key_id: int | None = None
    name: str | None = Field(None, description="the key's, or the user's")
    group: str | None = Field(None, description=f"{GROUP}; null: none")
    node_hours: float | None = Field(
        None,
        description="used within the last days (TASKLOOM_QUOTA_DAYS), by all of the group if there is one; null: no "
        "limit, or neither key nor user",
    )
    max_node_hours: float | None = Field(None, description="limit of `node_hours` (TASKLOOM_MAX_NODE_HOURS)")
    expires_at: datetime | None = None
    keys_exist: bool = Field(description="whether keys are required: one was created, even if it is revoked or expired")


def is_token(text: str) -> bool:
    """Whether a header can carry this text as a key (RFC 6750)."""
    return TOKEN.fullmatch(text) is not None


def authorization(token: str | None) -> dict[str, str]:
    """The header of requests with this key, if there is one. Raises ConfigError, which does not contain the key, for a
    key that no header can carry.
    """
    if not token:
        return {}
    if not is_token(token):
        raise ConfigError("token", "(not shown)", TOKEN_ACCEPTED)
    return {"Authorization": f"Bearer {token}"}
