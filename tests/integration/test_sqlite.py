import json

import pytest
from sqlalchemy import JSON, text

from taskloom.server.db import Database


@pytest.mark.parametrize(("pragma", "value"), [("journal_mode", "wal"), ("foreign_keys", 1), ("synchronous", 2)])
def test_every_connection_is_in_wal_mode_durable_and_checks_foreign_keys(database_url, pragma, value):
    database = Database(database_url)
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value
    database.close()


@pytest.mark.parametrize("stored", [
    '{"n": -9223372036854775807, "most": 9223372036854775807, "x": 1e-320, "t": "\\u00e9\\ud83d\\ude00", "none": null}',
    '{"loss": [NaN, Infinity, -Infinity]}',
])  # fmt: skip
def test_a_json_column_has_the_value_that_python_reads(database_url, stored):
    database = Database(database_url)
    with database.read() as session:
        (found,) = session.execute(text("SELECT :stored AS found").columns(found=JSON), {"stored": stored}).one()
    database.close()
    assert repr(found) == repr(json.loads(stored))


def test_case_is_ignored_in_every_script(database_url):
    database = Database(database_url)
    with database.read() as session:
        assert tuple(session.execute(text("SELECT lower('ÄRZTE Ünï'), lower(NULL), lower(12)")).one()) == (
            "ärzte ünï", None, "12",
        )  # fmt: skip
    database.close()
