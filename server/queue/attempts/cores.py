"""Cores of a node: two attempts on one core would disturb each other's measurement."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.server.db import hold
from taskloom.server.queue.attempts.models import Attempt, is_active


def are_taken(session: Session, node: str, core_set: str) -> bool:
    """Whether an active attempt runs on one of these cores.

    Until the end of the transaction no other claim gets cores of the node: the schema's index on (node, core set)
    prevents equal sets, but not overlapping ones.
    """
    hold(session, f"cores of {node}")
    mine = set(core_set.split(","))
    others = session.scalars(select(Attempt.core_set).where(Attempt.node == node, is_active()))
    return any(mine & set(theirs.split(",")) for theirs in others)
