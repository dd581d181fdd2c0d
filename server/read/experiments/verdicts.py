"""Verdict of an ended experiment, stored for lists: the first comparison of its sweep."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

from anyio import to_thread
from sqlalchemy import ColumnElement, or_, select, update

from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.analysis.estimators import FEWEST
from taskloom.analysis.pooling import FEWEST_IN_STRATUM
from taskloom.analysis.sweep import Pooled, Sweep, SweepRow
from taskloom.analysis.wording import is_or_are, value_name
from taskloom.contract.experiments import Verdict
from taskloom.contract.webhooks import VerdictKnown
from taskloom.server.db import Database, db_now
from taskloom.server.errors import NotFound, ServerError, TooManyQuestions
from taskloom.server.queue.experiments.models import Experiment
from taskloom.server.queue.experiments.service import summaries
from taskloom.server.read.analysis import service
from taskloom.server.read.pool import Pool
from taskloom.server.settings import Settings
from taskloom.server.webhooks import service as webhooks

RECENT_S = 7 * 86400.0  # experiments that ended earlier get no verdict
AT_ONCE = 4
log = logging.getLogger("taskloom.server")


def verdict(database: Database, experiment_id: int) -> Verdict:
    """Verdict of an experiment's sweep. Raises NotFound."""
    return of_sweep(service.sweep(database, experiment_id, None, NOISE_FLOOR))


def of_sweep(found: Sweep) -> Verdict:
    """Verdict of a sweep's first comparison, with a sentence."""
    chosen = _first(found)
    if chosen is None:
        if found.best is None:
            return Verdict(sentence="No run has succeeded.", verdict="none")
        best = f"{found.best.name}, {_seconds(found.best_step_s)} a step"
        return Verdict(sentence=f"There is nothing to compare; smallest median: {best}.", verdict="none")
    return Verdict(
        sentence=_sentence(found, chosen),
        verdict=chosen.verdict,
        a=str(chosen.a),
        b=str(chosen.b),
        ratio=chosen.ratio,
        low=chosen.ratio_low,
        high=chosen.ratio_high,
    )


def _first(found: Sweep) -> Pooled | SweepRow | None:
    """The comparison with the most threads, pooled over all places if there are several."""
    if any(row.verdict == "refused" for row in found.rows):
        return next(row for row in found.rows if row.verdict == "refused")
    if found.pooled:
        return max(found.pooled, key=lambda row: row.threads)
    return max(found.rows, key=lambda row: row.at.get("threads", 0), default=None)


def _sentence(found: Sweep, row: Pooled | SweepRow) -> str:
    a, b = value_name(found.axis, row.a), value_name(found.axis, row.b)
    verb = is_or_are(found.axis, row.b)
    threads = row.threads if isinstance(row, Pooled) else row.at.get("threads")
    where = "" if threads is None else f" on {threads} thread{'s' * (threads > 1)}"
    several = f" (one of {found.comparisons} comparisons)" if found.comparisons > 1 else ""
    if isinstance(row, Pooled):
        several = f" ({row.pairs} pairs of runs, {row.scope})"
    if row.verdict == "refused" or row.ratio is None:
        reason = getattr(row, "reason", "nothing to compare")
        return f"The comparison of {b} with {a}{where} is refused: {reason}."
    interval = "" if row.ratio_low is None else f" [{row.ratio_low:.3f}, {row.ratio_high:.3f}]"
    figures = f"{row.ratio:.3f}{interval} times as fast as {a}{where}"
    reading = f"{a} time / {b} time {row.ratio:.3f}{interval}"
    told = {
        "faster": f"{b} {verb} {figures}",
        "slower": f"{b} {verb} slower: {figures}",
        "same": f"{b} and {a} are equivalent within the noise floor{where}: {reading}",
        "undecided": f"It is undecided whether {b} or {a} is faster{where}: {reading}",
    }
    compared = found.rows if isinstance(row, Pooled) else [row]
    disturbed = " Some runs were disturbed." if any(each.marks for each in compared) else ""
    missing = f" {_missing(row)}" if row.verdict == "undecided" else ""
    return f"{told[row.verdict]}{several}.{missing}{disturbed}"


def _missing(row: Pooled | SweepRow) -> str:
    """The reason why a comparison is undecided, or what would decide it, in a sentence."""
    reason = row.reason if isinstance(row, SweepRow) else row.reason or " and ".join(row.diagnosis)
    dependent = [finding for finding in row.diagnosis if finding in reason]
    if dependent:
        return f"The interval does not hold, because the values show {' and '.join(dependent)}."
    shortage = re.match("too few [a-z]+: ([^,]+),", reason)
    if shortage:
        return f"There are too few runs: {shortage[1]}."
    if row.ratio_low is not None:
        return "More repetitions narrow the interval."
    if isinstance(row, Pooled):
        if row.pairs < FEWEST:
            return f"A verdict needs at least {FEWEST} pairs of runs."
        return f"A verdict needs at least {FEWEST_IN_STRATUM} pairs of runs with each slicing."
    wanted = re.search(r"whatever they show: (at least \d+) (on [a-z]+ occasion)", reason)
    if wanted and row.paired:
        return f"A verdict needs {wanted[1]} pairs of runs {wanted[2]}."
    return "A verdict needs runs in interleaved blocks."


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g} s" if value >= 1 else f"{value * 1e3:.4g} ms"


class Verdicts:
    """Computes verdicts of ended experiments in the analysis pool."""

    def __init__(self, database: Database, settings: Settings, pool: Pool) -> None:
        self._database, self._settings, self._pool = database, settings, pool

    async def look(self) -> None:
        """Store the verdicts of recently ended experiments."""
        if not self._settings.keep_verdicts:
            return
        for experiment_id, finished_at in await to_thread.run_sync(self._ended):
            try:
                kept = json.loads(await self._pool.answer("verdict", (experiment_id, finished_at), None))
            except TooManyQuestions:
                return  # the next call tries again
            except NotFound:
                continue
            except ServerError as error:
                log.warning("experiment %s has no verdict: %s", experiment_id, error)
                kept = None
            await to_thread.run_sync(self._keep, experiment_id, finished_at, kept)

    def _ended(self) -> list[tuple[int, float]]:
        ended = select(Experiment.id, Experiment.finished_at).where(
            Experiment.finished_at > db_now() - RECENT_S, _unseen()
        )
        with self._database.read() as session:
            rows = session.execute(ended.order_by(Experiment.finished_at.desc()).limit(AT_ONCE))
            return [(experiment_id, finished_at or 0.0) for experiment_id, finished_at in rows]

    def _keep(self, experiment_id: int, finished_at: float, kept: dict[str, Any] | None) -> None:
        """Store a verdict unless another server has done so; webhooks get one message."""
        of_it = update(Experiment).where(Experiment.id == experiment_id, _unseen())
        with self._database.write() as session:
            found = session.execute(of_it.values(verdict=kept, verdict_at=finished_at).returning(Experiment.id))
            if found.first() is not None and kept is not None:
                (summary,) = summaries(session, [session.get_one(Experiment, experiment_id)])
                webhooks.enqueue(session, "verdict", VerdictKnown(experiment=summary))


def _unseen() -> ColumnElement[bool]:
    """SQL: no verdict was stored since the experiment ended."""
    return or_(Experiment.verdict_at.is_(None), Experiment.verdict_at < Experiment.finished_at)
