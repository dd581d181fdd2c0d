"""state of an experiment's stop rule: whether another block may follow, the interval reached, the reason to stop"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from gpt2core.spec.result import median, median_interval

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

OPEN = ("queued", "leased", "running")


def upgrade() -> None:
    op.add_column("experiment", sa.Column("undecided", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("experiment", sa.Column("rel_ci", sa.Double(), nullable=True))
    op.add_column("experiment", sa.Column("stop_reason", sa.String(20), nullable=True))
    op.create_index(
        "ix_experiment_undecided", "experiment", ["id"],
        sqlite_where=sa.text("undecided"), postgresql_where=sa.text("undecided"),
    )  # fmt: skip
    _fill(op.get_bind())


def _fill(connection: sa.Connection) -> None:
    """Mark active experiments as undecided: the server evaluates the rule when their block ends. Ended experiments get
    the interval and the reason."""
    experiment = sa.table("experiment", sa.column("id", sa.Integer), sa.column("request", sa.JSON),
                          sa.column("cancelled_at", sa.Double), sa.column("undecided", sa.Boolean),
                          sa.column("rel_ci", sa.Double), sa.column("stop_reason", sa.String))  # fmt: skip
    run = sa.table("run", sa.column("id"), sa.column("experiment_id"), sa.column("block"), sa.column("state"),
                   sa.column("spec", sa.JSON), sa.column("median_step_s", sa.Double))  # fmt: skip
    attempt = sa.table("attempt", sa.column("run_id"), sa.column("finished_at", sa.Double),
                       sa.column("claimed_at", sa.Double))  # fmt: skip
    for one in connection.execute(sa.select(experiment.c.id, experiment.c.request)).all():
        stop = (one.request or {}).get("stop")
        if stop is None:
            continue
        values: dict[str, list[float]] = {}
        blocks, is_open = set(), False
        of_it = sa.select(run.c.spec, run.c.block, run.c.state, run.c.median_step_s)
        for row in connection.execute(of_it.where(run.c.experiment_id == one.id)):
            blocks.add(row.block)
            is_open = is_open or row.state in OPEN
            mine = values.setdefault(str(sorted(row.spec.items())), [])
            if row.state == "succeeded" and row.median_step_s is not None:
                mine.append(row.median_step_s)
        change = sa.update(experiment).where(experiment.c.id == one.id)
        if is_open:
            connection.execute(change.values(undecided=True))
        elif blocks:
            spent = sa.select(sa.func.sum(attempt.c.finished_at - attempt.c.claimed_at))
            spent = spent.join_from(attempt, run, run.c.id == attempt.c.run_id).where(run.c.experiment_id == one.id)
            spent_s = float(connection.execute(spent).scalar_one() or 0.0)
            rel_ci, reason = _judged(list(values.values()), len(blocks), spent_s, stop)
            connection.execute(change.values(rel_ci=rel_ci, stop_reason=reason))


def _judged(
    variants: list[list[float]], repetitions: int, spent_s: float, stop: dict[str, Any]
) -> tuple[float | None, str | None]:
    """Relative half-width of the widest interval of a median, and the reason why no further block followed, by the rule
    of earlier releases."""
    bounds = [(median_interval(values), values) for values in variants]
    widths = [(found[1] - found[0]) / (2 * median(values)) for found, values in bounds if found is not None]
    widest = max(widths) if widths and len(widths) == len(variants) else None
    reason = None
    if not all(variants):
        reason = "no-results"
    elif widest is not None and widest <= stop["rel_ci"]:
        reason = "narrow-enough"
    elif repetitions >= stop.get("max_repetitions", 50):
        reason = "max-repetitions"
    elif stop.get("budget_s") is not None and spent_s * (repetitions + 1) / repetitions > stop["budget_s"]:
        reason = "budget"
    return widest, reason


def downgrade() -> None:
    op.drop_index("ix_experiment_undecided", "experiment")
    op.drop_column("experiment", "stop_reason")
    op.drop_column("experiment", "rel_ci")
    op.drop_column("experiment", "undecided")
