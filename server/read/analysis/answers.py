"""What analyses answered, kept by what they were made from: results never change, so an answer does not grow old."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, cast

from sqlalchemy import func, select

from taskloom.server.db import Database
from taskloom.server.queue.artifacts.models import Artifact
from taskloom.server.queue.attempts.models import Attempt, Result
from taskloom.server.queue.runs.models import Run

T = TypeVar("T")
MOST = 64  # answers that are kept; a report of 100 runs has about a megabyte


class Answers:
    """The latest answers of this process."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, asked: tuple[Hashable, ...], made_from: Hashable, make: Callable[[], T]) -> T:
        """The answer to what was asked: a kept one, if it was made from the same."""
        key = (asked, made_from)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return cast(T, self._kept[key])
        answer = make()
        with self._lock:
            self._kept[key] = answer
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return answer


def content(database: Database, experiment_ids: Sequence[int]) -> tuple[Hashable, ...]:
    """What the analyses of experiments are made from: results and artifacts, by their hashes, and how many runs."""
    of_runs = Run.experiment_id.in_(experiment_ids)
    results = select(Result.attempt_id, Result.sha256).join(Run, Run.id == Result.run_id)
    artifacts = select(Artifact.attempt_id, Artifact.name, Artifact.sha256)
    artifacts = artifacts.join(Attempt, Attempt.id == Artifact.attempt_id).join(Run, Run.id == Attempt.run_id)
    with database.read() as session:
        return (
            session.scalar(select(func.count()).select_from(Run).where(of_runs)),
            frozenset(map(tuple, session.execute(results.where(of_runs, Result.canonical)))),
            frozenset(map(tuple, session.execute(artifacts.where(of_runs)))),
        )
