"""Decides on the next blocks of tunings, in the analysis pool; queue/ stores the decisions."""

from __future__ import annotations

import json
import logging

from anyio import to_thread

from taskloom.server.db import Database
from taskloom.server.errors import NotFound, ServerError, TooManyQuestions
from taskloom.server.queue.experiments import tuning
from taskloom.server.queue.experiments.tuning import Part
from taskloom.server.read.pool import Pool
from taskloom.server.threads import Threads

log = logging.getLogger("taskloom.server")


class Tunings:
    """Adds blocks to tunings whose runs have all ended, with each call of `look`."""

    def __init__(self, database: Database, pool: Pool, control: Threads) -> None:
        self._database, self._pool, self._control = database, pool, control

    async def look(self) -> bool:
        """Decide about every tuning that waits; return whether a block was queued.

        No lock is held while a block is computed. If the server stops before it is stored, the next call computes the
        same one.
        """
        queued = False
        for experiment_id, runs in await to_thread.run_sync(tuning.undecided, self._database):
            try:
                found = json.loads(await self._pool.answer("tune", (experiment_id, runs), None))
            except TooManyQuestions:
                break  # the next call tries again
            except NotFound:
                continue
            except ServerError as error:
                log.warning("the next block of experiment %s cannot be computed: %s", experiment_id, error)
                continue
            parts = [Part(part["role"], part["values"]) for part in found["parts"]]
            stored = self._control.run(
                tuning.decide, self._database, experiment_id, runs, parts, found["reason"]
            )
            queued = await stored or queued
        return queued
