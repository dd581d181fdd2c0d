"""Today's server with the clients, workers and databases of every recorded release, and today's client with its server.

`record_release.py` makes a recording. Requests are accepted as they were, and answers have every field that they had.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from taskloom import Client
from tests.support.processes import House, house
from tests.support.record_release import read
from tests.support.wire import Message, Send, Wire

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
RELEASES = sorted((ROOT / "tests/golden").glob("release_*.json.gz"))
ANSWER_S = 240.0  # a server's first analysis starts processes while other tests run
FOR_ITSELF = {"at", "age_s", "server_version", "version"}  # of the moment or of the server that answers


@pytest.fixture(params=RELEASES, ids=lambda path: path.name.removesuffix(".json.gz"), scope="module")
def release(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(request.param.read_bytes()))
    return found


@pytest.fixture
def home(tmp_path: Path) -> Iterator[House]:
    with house(tmp_path, f"sqlite:///{tmp_path}/new.db", lease_s=ANSWER_S) as found:
        yield found


def say(home: House, exchanges: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], httpx.Response]]:
    """Send the requests of a recording; yield each exchange with today's answer."""
    with httpx.Client(base_url=home.url, timeout=ANSWER_S) as http:
        for each in exchanges:
            request = http.build_request(
                each["method"], each["path"], headers=each["headers"], content=each["body"].encode()
            )
            yield each, http.send(request)


def missing(before: Any, now: Any, at: str = "") -> list[str]:
    """Where an answer lacks a field of the former answer, or has another type there. Null is of every type."""
    if before is None or now is None:
        return []
    if isinstance(before, dict) and isinstance(now, dict):
        gone = [f"{at}/{name} is gone" for name in before if name not in now]
        held = [name for name in before if name in now]
        return gone + [text for name in held for text in missing(before[name], now[name], f"{at}/{name}")]
    if isinstance(before, list) and isinstance(now, list):
        return missing(before[0], now[0], f"{at}/0") if before and now else []
    numbers = isinstance(before, int | float) and isinstance(now, int | float)
    same = type(before) is type(now) or (numbers and bool not in (type(before), type(now)))
    return [] if same else [f"{at} is {type(now).__name__}, was {type(before).__name__}"]


def body(text: str) -> Any:
    return json.loads(text) if text else None


def test_its_client_and_its_worker_work_with_todays_server(home: House, release: dict[str, Any]) -> None:
    for each, answer in [*say(home, release["run"]), *say(home, release["read"])]:
        place = f"{each['method']} {each['path']}"
        assert answer.status_code == each["status"], (place, answer.text)
        assert missing(body(each["answer"]), body(answer.text)) == [], place


def test_its_database_moves_on_and_keeps_what_it_had(home: House, release: dict[str, Any]) -> None:
    home.server.end()
    file = home.folder / "old.db"
    with sqlite3.connect(file) as connection:
        connection.executescript("\n".join(release["database"]))
    home.database_url = f"sqlite:///{file}"
    home.start_server()
    for each, answer in say(home, release["read"]):
        assert answer.status_code == each["status"], (each["path"], answer.text)
        before, now = body(each["answer"]), body(answer.text)
        assert missing(before, now) == [], each["path"]
        if each["path"].startswith("/api/v1/runs"):
            assert kept(before) == kept(now, like=before), each["path"]


def kept(answer: Any, like: Any = None) -> Any:
    """An answer without fields that the former one did not have, and without those of the moment."""
    like = answer if like is None else like
    if isinstance(answer, dict) and isinstance(like, dict):
        return {name: kept(answer[name], like[name]) for name in like if name not in FOR_ITSELF}
    if isinstance(answer, list) and isinstance(like, list) and len(answer) == len(like):
        return [kept(*both) for both in zip(answer, like, strict=True)]
    return answer


def test_todays_client_reads_its_server(release: dict[str, Any]) -> None:
    answers = {(each["method"], each["path"]): each for each in release["read"]}

    def answer(message: Message, _send: Send) -> httpx.Response:
        recorded = answers[message.method, message.path]
        return httpx.Response(recorded["status"], text=recorded["answer"], headers={"content-type": "application/json"})

    with Wire("http://127.0.0.1:1", answer) as wire, Client(wire.url, timeout_s=ANSWER_S) as client:
        read(client, release["experiment_id"])
