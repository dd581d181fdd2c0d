"""Schemathesis over the whole OpenAPI document: no 5xx, no undocumented status, no answer that breaks its schema.

test_access_matrix.py has the answers to callers of every scope. Schemathesis's checks of authentication do not apply to
a server on loopback before its first key, which requires none.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.caller import Caller

pytestmark = pytest.mark.slow

CONFIG = Path(__file__).with_name("schemathesis.toml")
SHORT = {"max_wait_s": 0.01, "stream_s": 0.02, "events_every_s": 0.01, "rate_per_s": 1e6}
ASKED_OF_A_CALLER = "ignored_auth,missing_required_header,negative_data_rejection"
EVERYTHING = ("--phases", "examples,coverage,fuzzing", "--max-examples", "2")
LITTLE = ("--phases", "examples,fuzzing", "--max-examples", "1")


@pytest.fixture
def api(start_server):
    return start_server(**SHORT)


def held(api: Caller, folder: Path, token: str | None, *options: str) -> None:
    """Check that answers to a caller with `token` agree with the document."""
    key = () if token is None else ("--header", f"Authorization: Bearer {token}")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run"),
            *("--checks", "all", "--seed", "1", "--continue-on-failure", "--no-shrink", "--no-color"),
            *("--warnings", "off", *options, *key, f"{api.http.base_url}/openapi.json"),
        ],
        cwd=folder,  # Hypothesis stores found examples there
        capture_output=True,
        text=True,
        check=False,
    )
    said = "\n".join(line[:300] for line in done.stdout.splitlines())  # a body may have a million digits
    assert done.returncode == 0, said[-20_000:] + done.stderr[-2000:]


@pytest.mark.both_databases
def test_with_a_key_for_everything(house, tmp_path):
    house.use(house.tokens["admin"])
    token = house.post("/keys", {"scope": "admin"}, 201)["token"]
    number = token.split("_")[1]
    house.sql("UPDATE api_key SET id = 123456789 WHERE id = :id", id=int(number))  # so that it does not revoke itself
    options = EVERYTHING if house.context.database.is_sqlite else LITTLE  # fewer on PostgreSQL, since all take long
    held(house, tmp_path, token.replace(f"tlk_{number}_", "tlk_123456789_"), *options)


def test_before_the_first_key(api, tmp_path):
    options = ("--exclude-checks", ASKED_OF_A_CALLER, "--exclude-operation-id", "keys_create")
    held(api, tmp_path, None, "--phases", "examples", *options)
