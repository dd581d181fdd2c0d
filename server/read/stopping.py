"""The stopping rule: it reads what an experiment's runs gave, and has the queue write down what follows."""

from __future__ import annotations

from taskloom.analysis.stopping import Watched, judge
from taskloom.server.db import Database
from taskloom.server.queue.experiments import blocks


def look(database: Database) -> bool:
    """Ask the rule of every experiment whose blocks have all ended since it was last asked; whether a block was added.

    Nothing is locked while it is asked. Whoever looks next does what a server left undone that ended meanwhile.
    """
    added = False
    for ended in blocks.undecided(database):
        stop = ended.request.stop
        assert stop is not None
        watched = [Watched(variant, by_block) for variant, by_block in ended.values]
        found = judge(
            watched, ended.repetitions, ended.spent_s, stop.rel_ci, stop.max_repetitions, stop.budget_s, stop.metric
        )
        added = blocks.decide(database, ended, found.rel_ci, found.reason) or added
    return added
