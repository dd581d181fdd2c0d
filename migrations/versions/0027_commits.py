"""commits of experiments and of trainers

Revision ID: 0027
Revises: 0026
"""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from alembic.op import add_column, drop_column, get_bind

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

VERSIONS = {  # of the trainers of stored results
    "sqlite": "json_extract(CAST(digest.facts AS TEXT), '$.environment.core_version')",
    "postgresql": "convert_from(digest.facts, 'UTF8')::json -> 'environment' ->> 'core_version'",
}


def columns(prefix: str, commit: str) -> list[sa.Column[Any]]:
    """The columns of a commit."""
    kinds: dict[str, sa.types.TypeEngine[Any]] = {
        commit: sa.Text(), "branch": sa.Text(), "dirty": sa.Boolean(), "committed_at": sa.Double(),
        "version": sa.Text(),
    }  # fmt: skip
    return [sa.Column(prefix + name, kind) for name, kind in kinds.items()]


def upgrade() -> None:
    for column in columns("", "commit_id"):
        add_column("experiment", column)
    for column in columns("trainer_", "commit"):
        add_column("run", column)
    database = get_bind()
    version = VERSIONS[database.dialect.name]
    known = f"""SELECT {version} FROM result JOIN digest ON digest.attempt_id = result.attempt_id
        WHERE result.run_id = run.id AND result.canonical"""
    database.execute(sa.text(f"UPDATE run SET trainer_version = ({known}) WHERE environment_sha256 IS NOT NULL"))
    versions = database.execute(sa.text("SELECT DISTINCT trainer_version FROM run WHERE trainer_version IS NOT NULL"))
    named = sa.text("UPDATE run SET trainer_commit = :commit WHERE trainer_version = :version")
    for (text,) in versions.all():
        commit = re.search(r"\+g([0-9a-f]{7,64})", text)
        if commit is not None:
            database.execute(named, {"commit": commit[1], "version": text})


def downgrade() -> None:
    for prefix, commit, table in (("trainer_", "commit", "run"), ("", "commit_id", "experiment")):
        for column in reversed(columns(prefix, commit)):
            drop_column(table, column.name)
