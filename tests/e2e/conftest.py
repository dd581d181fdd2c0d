from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import House, house

from taskloom import Client


@pytest.fixture
def home(tmp_path: Path, database_url: str) -> Iterator[House]:
    # Beats are quick so that a test need not wait for a cancellation to be heard.
    with house(tmp_path, database_url, heartbeat_s=0.2) as found:
        yield found


@pytest.fixture
def client(home: House) -> Iterator[Client]:
    with Client(home.url) as connected:
        yield connected
