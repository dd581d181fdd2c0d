"""Fixtures for tests of several folders."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from sqlalchemy.engine import make_url

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.phases import PHASES
from gpt2core.spec.result import SCHEMA
from taskloom.server import migrate
from taskloom.server.db import Database
from tests.support.foreign_runtimes import no_foreign_runtime  # noqa: F401 (a fixture of all tests)
from tests.support.neighbours import Neighbours, time_limit_paused
from tests.support.postgres_server import Postgres, postgres_server

# Tests assert behaviour, never time: an example may be slow because the machine is.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# If a shell starts the tests in the background, they and their child processes would ignore SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MakeResult = Callable[..., dict[str, Any]]
STAYS_ALONE = pytest.StashKey[bool]()

ENVIRONMENT = {
    "node": "n1",
    "cpu_model": "Some CPU",
    "kernel": "6.1",
    "python": "3.11.7",
    "blas": {"name": "mkl", "version": "2026.2"},
    "core_hash": "abc",
    "load_average": [0.1, 0.1, 0.1],
}


@pytest.fixture(scope="session")
def all_neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    """The locks of this process, on files of all processes of pytest-xdist."""
    found = Neighbours(tmp_path_factory.getbasetemp().parent)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def neighbours(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test marked `alone`, which measures times, while no other process of pytest-xdist runs a test."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    others: Neighbours = request.getfixturevalue("all_neighbours")
    with time_limit_paused():
        others.enter(is_alone(request.node))
    yield
    if not request.node.stash[STAYS_ALONE]:
        others.leave()


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests marked `alone` first and in a row, so that processes seldom wait for tests of the others.

    What is marked `on_sqlite` is left out on PostgreSQL.
    """
    items[:] = [item for item in items if not (item.get_closest_marker("on_sqlite") and is_on_postgres(item))]
    items.sort(key=lambda item: not is_alone(item))


def is_on_postgres(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("database_kind") == "postgres"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Record whether the next test also runs alone: the lock is then kept.

    It is released before a test of another file, which may first compile for long.
    """
    item.stash[STAYS_ALONE] = (
        nextitem is not None and nextitem.path == item.path and is_alone(item) and is_alone(nextitem)
    )


@pytest.fixture(scope="session")
def make_result() -> MakeResult:
    """A TrainResult as JSON, with the samples that a test gives. Slices are numbers, as the trainer resolves them."""

    def make(
        step_s: Sequence[float] = (0.9, 0.2, 0.2, 0.2),
        losses: Sequence[float] | None = None,
        weights_sha256: str = "w",
        environment: dict[str, Any] | None = None,
        phase_share: dict[str, float] | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        settings = {"steps": len(step_s), "warmup": 1, "batch_slice": 1, "token_slice": 64, **settings}
        config = TrainConfig.from_dict(settings).to_dict()
        config["cores"] = config["cores"] or list(range(config["threads"]))
        share = {"data": 0.0, "forward": 0.3, "loss": 0.1, "backward": 0.5, "update": 0.1, **(phase_share or {})}
        return {
            "schema": SCHEMA,
            "config": config,
            "environment": {**ENVIRONMENT, "cores": config["cores"], **(environment or {})},
            "losses": list(losses or [5.0 - 0.1 * i for i in range(len(step_s))]),
            "step_s": list(step_s),
            "phase_s": {phase: [share[phase] * s for s in step_s] for phase in PHASES},
            "phase_busy_s": {phase: [share[phase] * s * config["threads"] for s in step_s] for phase in PHASES},
            "ops": [],
            "threads": [],
            "memory_bytes": {"weights": 1},
            "weights_sha256": weights_sha256,
            "graph": {},
            "warnings": [],
            "summary": {},
        }

    return make


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests marked `both_databases` run on SQLite and on PostgreSQL, `on_postgres` there only, the others on SQLite.

    On PostgreSQL they are `slow`.
    """
    if "database_kind" not in metafunc.fixturenames:
        return
    marked = metafunc.definition.get_closest_marker
    on_postgres = pytest.param("postgres", marks=pytest.mark.slow)
    if marked("on_postgres"):
        metafunc.parametrize("database_kind", [on_postgres], scope="session")
    elif marked("both_databases"):
        metafunc.parametrize("database_kind", ["sqlite", on_postgres], scope="session")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL server for all tests of a session."""
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def database_kind() -> str:
    return "sqlite"


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file that has the schema and no rows: each test starts with a copy."""
    path = tmp_path_factory.mktemp("migrated") / "empty.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres: Postgres) -> str:
    """The name of a PostgreSQL database that has the schema and no rows."""
    url = postgres.new()
    _migrate(url)
    return str(make_url(url).database)


def _migrate(url: str) -> None:
    database = Database(url)
    migrate.upgrade(database)
    database.close()


@pytest.fixture
def database_url(database_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A database of the test's own, with the schema and no rows."""
    if database_kind == "postgres":
        postgres: Postgres = request.getfixturevalue("postgres")
        return postgres.new(request.getfixturevalue("migrated_postgres"))
    shutil.copy(request.getfixturevalue("migrated"), tmp_path / "test.db")
    return f"sqlite:///{tmp_path}/test.db"
