from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import House, house

from taskloom import Client


@pytest.fixture
def home(tmp_path: Path) -> Iterator[House]:
    with house(tmp_path) as found:
        yield found


@pytest.fixture
def client(home: House) -> Iterator[Client]:
    with Client(home.url) as connected:
        yield connected
