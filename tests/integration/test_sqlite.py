import pytest

from taskloom.server.db import Database


@pytest.mark.parametrize(("pragma", "value"), [("journal_mode", "wal"), ("foreign_keys", 1), ("synchronous", 2)])
def test_every_connection_is_in_wal_mode_durable_and_checks_foreign_keys(database_url, pragma, value):
    database = Database(database_url)
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value
    database.close()
