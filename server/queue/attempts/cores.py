"""Cores of a node: two attempts on one core would disturb each other's measurement."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.server.db import hold
from taskloom.server.queue.tables.attempts import Attempt, is_active


def are_taken(session: Session, node: str, core_set: str) -> bool:
    """Whether an active attempt runs on one of these cores.

    A lock keeps other claims from getting cores of the node until the end of the transaction. The schema's index on
    (node, core set) prevents only equal sets, not overlapping ones.
    """
    hold(session, f"cores of {node}")
    mine = set(core_set.split(","))
    others = session.scalars(select(Attempt.core_set).where(Attempt.node == node, is_active()))
    return any(mine & set(theirs.split(",")) for theirs in others)
