"""Many real workers in one process, with null trainers and real messages to a server.

    python -m tests.support.fleet --server URL --server URL --workers 50 --spool DIR

The workers are distributed over the servers in turn. SIGTERM ends the process once every worker has drained.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

from gpt2core.node import peaks
from gpt2core.process.node_time import NodeTime
from gpt2core.spec.config import TrainConfig
from taskloom.contract.attempts import Lease
from taskloom.worker import signals
from taskloom.worker.agent import Agent, DrainAsked
from taskloom.worker.claim_loop import ClaimLoop
from taskloom.worker.client import ServerClient
from taskloom.worker.execution import Verdict
from taskloom.worker.peaks import Measurement
from taskloom.worker.report import Report
from taskloom.worker.settings import parse
from taskloom.worker.spool import Spool
from tests.support import fake_trainer


class NullExecutor:
    """Every run succeeds at once."""

    standby = SimpleNamespace(prepare=lambda: None, dismiss=lambda: None)

    def execute(
        self, lease: Lease, _spent: NodeTime, entered_stage: Callable[[], None], _printed: Callable[[str], None]
    ) -> Verdict:
        entered_stage()
        return Verdict("succeeded", fake_trainer.result(TrainConfig.from_dict(lease.spec)).to_dict(), None)


class Null:
    """A worker whose only core has the worker's number, whether that core exists or not."""

    def __init__(self, server: str, number: int, spool: Path) -> None:
        self._agent, self._inbox = Agent("finish"), SimpleQueue[Any]()
        options = ("--server", server, "--worker-id", f"null{number}", "--spool", str(spool / str(number)))
        more = ("--wait-s", "2", "--peaks", "never", "--json")
        settings = dataclasses.replace(parse([*options, *more], {}), cores=(number,))
        report = Report(as_json=True)
        loop = ClaimLoop(
            settings, ServerClient(server, None), self._agent, self._inbox, Spool(settings.spool),
            NullExecutor(),  # type: ignore[arg-type]
            Measurement(settings, self._inbox, report, peaks.command), report,
        )  # fmt: skip
        self.codes: list[int] = []
        self.thread = threading.Thread(target=lambda: self.codes.append(loop.run()))

    def drain(self) -> None:
        self._agent.draining = True
        self._inbox.put(DrainAsked())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", action="append", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--spool", type=Path, required=True)
    given = parser.parse_args()
    workers = [Null(given.server[i % len(given.server)], i, given.spool) for i in range(given.workers)]

    def drain() -> None:
        for worker in workers:
            worker.drain()

    signals.listen(drain)
    for worker in workers:
        worker.thread.start()
    for worker in workers:
        worker.thread.join()
    return max(worker.codes[0] if worker.codes else 1 for worker in workers)


if __name__ == "__main__":
    sys.exit(main())
