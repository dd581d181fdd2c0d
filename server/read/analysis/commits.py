"""The commits between which a series changed, from the rows of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.analysis.history import Series, Since
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run


def with_commits(session: Session, found: Sequence[Series], template: str) -> list[Series]:
    """Series whose changes name their range of commits. template: TASKLOOM_COMMITS_URL."""
    ends = {run for one in found for change in one.changes for run in (change.last_before, change.first_after)}
    columns = (Run.id, Experiment.commit_id, Experiment.dirty, Run.trainer_commit, Run.trainer_dirty)
    query = select(*columns).join(Experiment, Experiment.id == Run.experiment_id).where(Run.id.in_(ends))
    runs = {row.id: row for row in session.execute(query)}
    out = []
    for one in found:
        changes = [
            replace(change, since=_since(runs.get(change.last_before), runs.get(change.first_after), template))
            for change in one.changes
        ]
        known = {change.first_after: change.since for change in changes}
        alerts = [
            replace(alert, change=replace(alert.change, since=known.get(alert.change.first_after)))
            for alert in one.alerts
        ]
        out.append(replace(one, changes=changes, alerts=alerts))
    return out


def _since(before: Any, after: Any, template: str) -> Since | None:
    """The range of commits: of the submitters if both named one, else of the trainers."""
    if before is None or after is None:
        return None
    if before.commit_id and after.commit_id:
        first, last, dirty = before.commit_id, after.commit_id, bool(before.dirty or after.dirty)
        return None if first == last else Since(first, last, "submitted", dirty, _link(template, first, last))
    first, last, dirty = before.trainer_commit, after.trainer_commit, bool(before.trainer_dirty or after.trainer_dirty)
    if not first or not last or first == last:
        return None
    return Since(first, last, "trainer", dirty, _link(template, first, last))


def _link(template: str, first: str, last: str) -> str | None:
    if not template:
        return None
    return template.replace("{from}", quote(first, safe="")).replace("{to}", quote(last, safe=""))
