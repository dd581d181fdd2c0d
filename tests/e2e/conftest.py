from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from taskloom import Client
from tests.support.processes import House, house

ANSWER_S = 240.0  # a server's first analysis starts processes while other tests run


@pytest.fixture
def home(tmp_path: Path, database_url: str) -> Iterator[House]:
    # Heartbeats are frequent, so that workers soon receive cancellations.
    with house(tmp_path, database_url, heartbeat_s=0.2) as found:
        yield found


@pytest.fixture
def client(home: House) -> Iterator[Client]:
    with Client(home.url, timeout_s=ANSWER_S) as connected:
        yield connected
