"""What it costs to sort lists by any column, with a long history: `python -m bench.orders`.

A real server answers pages of 50 runs, one at a time, in random order: sorted by each column that has an index, first
and any page; sorted by a setting, which has none, among the runs of an experiment and of a state. Then the server is
stopped, and the figures of runs are written as results write them, 1,000 in a transaction, with and without the indexes
that only sort lists, in turn.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from sqlalchemy import select, text

from bench import record
from bench.server_store import RUNS_OF_EXPERIMENT, database, fill, serve
from taskloom.server.db import Base, Database
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.lists.keyset import WINDOW, Place
from taskloom.server.read.runs.listing import SORTS

ONLY_SORT = ("ix_run_tokens_per_s", "ix_run_final_loss", "ix_run_flagged_steps", "ix_run_duration_s")
AMONG = {"an experiment": "experiment_id=7", "4,000 runs of a state": "state=cancelled", "all runs": ""}
WRITES = 1000  # runs in a transaction
WRITTEN = text(
    "UPDATE run SET started_at = :at, finished_at = :at + :step_s, median_step_s = :step_s, tokens_per_s = :rate, "
    "final_loss = :loss, flagged_steps = :flagged WHERE id = :id AND finished_at IS NOT NULL"
)


def pages(url: str, store: Database, runs: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each answer, by what was asked."""
    pick = random.Random(1337)

    def first(name: str) -> Callable[[], str]:
        return lambda: f"sort=-{name}"

    def any_page(name: str) -> Callable[[], str]:
        column, _ = SORTS.known[name].sorted_by

        def found() -> str:
            with store.read() as session:
                row = select(column, Run.id).where(Run.id == pick.randint(1, runs))
                value, run_id = session.execute(row).one()
            return f"sort=-{name}&cursor={Place(value, run_id)}"

        return found

    asked: dict[str, Callable[[], str]] = {}
    for name in SORTS.indexed[1:]:
        asked |= {f"{name}, first page": first(name), f"{name}, any page": any_page(name)}
    for what, query in AMONG.items():
        asked[f"threads, {what}"] = partial("sort=-threads&{}".format, query)
    order = [what for what in asked for _ in range(rounds + 1)]
    pick.shuffle(order)
    taken: dict[str, list[float]] = {what: [] for what in asked}
    with httpx.Client(base_url=url, timeout=600) as client:
        for what in order:
            path = f"/runs?limit=50&{asked[what]()}"
            began = time.perf_counter()
            answer = client.get(path)
            taken[what].append(time.perf_counter() - began)
            if answer.status_code != (422 if what == "threads, all runs" else 200):
                raise SystemExit(f"{path}: {answer.status_code} {answer.text[:500]}")
    return taken


def writes(store: Database, runs: int, rounds: int) -> dict[str, Any]:
    """Seconds of each transaction with and without the indexes, and their size."""
    pick = random.Random(1337)
    table = Base.metadata.tables[Run.__tablename__]
    indexes = [index for index in table.indexes if index.name in ONLY_SORT]
    taken: dict[str, list[float]] = {"with": [], "without": []}
    sizes = []
    for which in ("with", "without", "without", "with") * rounds:
        with store.write() as session:
            connection = session.connection()
            before = _pages(connection, store.is_sqlite)
            for index in indexes:
                connection.execute(text(f"DROP INDEX IF EXISTS {index.name}"))
            sizes.append(_pages(connection, store.is_sqlite) - before)
            for index in indexes if which == "with" else ():
                index.create(connection)
        rows = [
            {"id": pick.randint(1, runs), "at": time.time(), "step_s": pick.random(), "rate": 1e4 * pick.random(),
             "loss": 5 * pick.random(), "flagged": pick.choice((0, 0, 0, 1, 2))}
            for _ in range(WRITES)
        ]  # fmt: skip
        began = time.perf_counter()
        with store.write() as session:
            session.execute(WRITTEN, rows)
        taken[which].append(time.perf_counter() - began)
        print(f"{which}: {taken[which][-1]:.2f} s", flush=True)
    return {"transaction_s": taken, "indexes_bytes": abs(sizes[0])}


def _pages(connection: Any, is_sqlite: bool) -> int:
    """Bytes of free pages on SQLite, of the indexes of runs on PostgreSQL."""
    if is_sqlite:
        free = text("SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size")
        return int(connection.scalar(free))
    return int(connection.scalar(text("SELECT pg_indexes_size('run')")))


def table(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    on, written = report["machine"], report["writes"]
    each_ms = {which: 1e3 * np.median(of) / WRITES for which, of in written["transaction_s"].items()}
    return "\n".join([
        f"# Lists of {report['runs']:,} runs, sorted, on {report['database']}", "",
        f"{on['cpu_model']}, {on['cores']} cores, load {on['load_average'][0]:.1f} at the start; client, server and "
        f"database share them. A column without an index is sorted among fewer than {WINDOW:,} runs; more are refused.",
        "", "| a page of 50 runs, sorted by | median | p95 |", "| -- | -- | -- |",
        *(f"| {what} | {1e3 * np.median(of):.1f} ms | {1e3 * np.quantile(of, 0.95):.1f} ms |"
          for what, of in report["pages_s"].items()),
        "", f"A run's figures are written in {each_ms['with']:.3f} ms with the four indexes and in "
        f"{each_ms['without']:.3f} ms without (median transactions of {WRITES:,}, "
        f"{len(written['transaction_s']['with'])} each). They take {written['indexes_bytes'] / 1e6:.0f} MB.", "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20, help="answers of each kind")
    parser.add_argument("--write-rounds", type=int, default=2, help="of four transactions")
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="sqlite")
    parser.add_argument("--keep", type=Path, help="folder in which the database is kept and used again")
    record.out_option(parser, "orders")
    options = parser.parse_args()
    on = record.machine()
    with database(options.database, options.keep) as database_url:
        store = Database(database_url)
        with serve(database_url) as served:
            fill(served, options.runs, results=False)
            url = f"http://127.0.0.1:{served.port}/api/v1"
            taken = pages(url, store, options.runs // RUNS_OF_EXPERIMENT * RUNS_OF_EXPERIMENT, options.rounds)
        report = {
            **record.head("taskloom.bench.orders/1", on), "runs": options.runs, "database": options.database,
            "pages_s": taken, "writes": writes(store, options.runs, options.write_rounds),
        }  # fmt: skip
        store.close()
    record.save(options.out, report, table(report))


if __name__ == "__main__":
    main()
