"""Applies the stopping rule to the results of an experiment's runs; queue/ stores the decision."""

from __future__ import annotations

from taskloom.analysis.stopping import Watched, judge
from taskloom.server.db import Database
from taskloom.server.queue.experiments import blocks


def look(database: Database) -> bool:
    """Apply the rule to every experiment whose blocks have all ended; return whether a block was added.

    No lock is held meanwhile. If the server stops before the decision is stored, the next call decides again.
    """
    added = False
    for ended in blocks.undecided(database):
        stop = ended.request.stop
        assert stop is not None
        watched = [Watched(variant, by_block) for variant, by_block in ended.values]
        found = judge(
            watched,
            ended.repetitions,
            ended.spent_s,
            stop.rel_ci,
            stop.max_repetitions,
            stop.budget_s,
            stop.metric,
            ended.primary,
        )
        added = blocks.decide(database, ended, found.rel_ci, found.reason) or added
    return added
