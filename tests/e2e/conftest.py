from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import House, house

from taskloom import Client

ANSWER_S = 240.0  # the first analysis of a server starts processes, beside other tests


@pytest.fixture
def home(tmp_path: Path, database_url: str) -> Iterator[House]:
    # Heartbeats are frequent, so that a test need not wait until a worker receives a cancellation.
    with house(tmp_path, database_url, heartbeat_s=0.2) as found:
        yield found


@pytest.fixture
def client(home: House) -> Iterator[Client]:
    with Client(home.url, timeout_s=ANSWER_S) as connected:
        yield connected
