"""Keys: create, list, revoke, authenticate."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session

from taskloom.contract.keys import Identity, KeyCreated, KeyPage, KeyRequest, KeySummary
from taskloom.server import paging
from taskloom.server.access.keys.models import Key
from taskloom.server.db import LOCKED, Database, db_now, now, utc
from taskloom.server.errors import InvalidRequest, NotFound, Unauthenticated

SECRET_BYTES = 32
TOKEN = re.compile(r"tlk_([1-9][0-9]{0,8})_([0-9a-f]{64})")
NO_SECRET_SHA256 = hashlib.sha256(b"").hexdigest()
USE_NOTED_EVERY_S = 60.0  # a key's last use is written at most this often
USER = "user:"  # how the actors begin that a trusted proxy names


@dataclass(frozen=True)
class Caller:
    """The caller of a request. If no key is required, callers without one may do everything. user: the name by which a
    trusted proxy knows the caller. group: shares its limits."""

    key_id: int | None
    scope: str
    user: str | None = None
    group: str | None = None

    @property
    def actor(self) -> str:
        """The caller's name in histories."""
        if self.user is not None:
            return f"{USER}{self.user}"
        return "local" if self.key_id is None else f"key:{self.key_id}"


ANYBODY = Caller(None, "admin")


def create(database: Database, request: KeyRequest) -> KeyCreated:
    """Create a key, whose token is not stored. Raises InvalidRequest if the first key is not an admin key."""
    secret = secrets.token_hex(SECRET_BYTES)
    with database.write() as session:
        if request.scope != "admin" and not _any(session):
            accepted = "admin for the first key: from then on, every request needs a key"
            raise InvalidRequest(
                [{"pointer": "/scope", "field": "scope", "value": request.scope, "accepted": accepted}]
            )
        at = now(session)
        key = Key(
            name=request.name,
            scope=request.scope,
            group=request.group,
            secret_sha256=_sha256(secret),
            created_at=at,
            expires_at=None if request.expires_in_s is None else at + request.expires_in_s,
            last_used_at=None,
            revoked_at=None,
        )
        session.add(key)
        session.flush()
        return KeyCreated(**_summary(key).model_dump(), token=f"tlk_{key.id}_{secret}")


def page(database: Database, cursor: str | None, limit: int) -> KeyPage:
    """Keys, oldest first. Raises BadCursor."""
    after = paging.decode_id(cursor)
    query = select(Key).order_by(Key.id).limit(limit + 1)
    if after is not None:
        query = query.where(Key.id > after)
    with database.read() as session:
        rows, more = paging.split(session.scalars(query).all(), limit)
    return KeyPage(items=[_summary(key) for key in rows], next_cursor=paging.encode(rows[-1].id) if more else None)


def revoke(database: Database, key_id: int) -> KeySummary:
    """Revoke the key. Idempotent. Raises NotFound."""
    with database.write() as session:
        key = session.get(Key, key_id, with_for_update=LOCKED)
        if key is None:
            raise NotFound(f"there is no key {key_id}")
        key.revoked_at = key.revoked_at or now(session)
        return _summary(key)


def has_admin(database: Database) -> bool:
    """Whether there is an admin key that is neither revoked nor expired."""
    usable = select(Key.id).where(Key.scope == "admin", Key.revoked_at.is_(None))
    with database.read() as session:
        found = session.execute(usable.where(or_(Key.expires_at.is_(None), Key.expires_at > db_now())))
        return found.first() is not None


def identify(database: Database, token: str | None, open_without_keys: bool) -> Caller:
    """The caller with this token. ANYBODY if no key was ever created and `open_without_keys`. Raises
    Unauthenticated."""
    found = TOKEN.fullmatch(token or "")
    with database.read() as session:
        row = session.execute(select(Key, db_now()).where(Key.id == int(found[1]))).one_or_none() if found else None
        key, at = row or (None, 0.0)
        # Compared in constant time, even if there is no such key.
        known = key.secret_sha256 if key else NO_SECRET_SHA256
        if not hmac.compare_digest(_sha256(found[2]) if found else "", known) or key is None:
            if open_without_keys and not _any(session):
                return ANYBODY
            raise Unauthenticated("this server does not know this key" if token else None)
    if key.revoked_at is not None:
        raise Unauthenticated(f"key {key.id} was revoked")
    if key.expires_at is not None and key.expires_at <= at:
        raise Unauthenticated(f"key {key.id} has expired")
    if key.last_used_at is None or key.last_used_at < at - USE_NOTED_EVERY_S:
        with database.write() as session:
            session.execute(update(Key).where(Key.id == key.id).values(last_used_at=db_now()))
    return Caller(key.id, key.scope, group=key.group)


def describe(database: Database, caller: Caller) -> Identity:
    """Identity of the caller."""
    with database.read() as session:
        key = None if caller.key_id is None else session.get(Key, caller.key_id)
        exist = _any(session)
    return Identity(
        actor=caller.actor,
        scope=caller.scope,
        key_id=caller.key_id,
        name=caller.user if key is None else key.name,
        group=caller.group,
        expires_at=None if key is None or key.expires_at is None else utc(key.expires_at),
        keys_exist=exist,
    )


def is_usable(session: Session, key_id: int) -> bool:
    """Whether the key is still valid."""
    key = session.get_one(Key, key_id)
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > now(session))


def _any(session: Session) -> bool:
    return session.execute(select(func.max(Key.id))).scalar_one() is not None


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _summary(key: Key) -> KeySummary:
    return KeySummary(
        id=key.id,
        name=key.name,
        scope=key.scope,
        group=key.group,
        created_at=utc(key.created_at),
        expires_at=None if key.expires_at is None else utc(key.expires_at),
        last_used_at=None if key.last_used_at is None else utc(key.last_used_at),
        revoked_at=None if key.revoked_at is None else utc(key.revoked_at),
    )
