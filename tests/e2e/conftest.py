from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskloom import Client
from tests.support.processes import House, house

ANSWER_S = 240.0  # an analysis may wait long for a core while other tests run


@pytest.fixture
def server_settings() -> dict[str, float]:
    """Settings of the servers. Heartbeats are frequent, so that workers soon receive cancellations."""
    return {"heartbeat_s": 0.2}


@pytest.fixture
def home(tmp_path: Path, database_url: str, server_settings: dict[str, float]) -> Iterator[House]:
    # A process for analyses takes as long to start as a server; tests/integration/test_kept_answers.py and the
    # dashboard's tests have it.
    with house(tmp_path, database_url, analysis_processes=0, **server_settings) as found:
        yield found


@pytest.fixture
def client(home: House) -> Iterator[Client]:
    with Client(home.url, timeout_s=ANSWER_S) as connected:
        yield connected
