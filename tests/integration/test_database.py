"""The database's connections."""

import contextlib

import pytest

from taskloom.server.db import Database

pytestmark = pytest.mark.both_databases


def test_a_connection_in_use_when_the_database_is_closed_is_closed_once_it_is_returned(database_url):
    database = Database(database_url)
    with database.read() as session:
        connection = session.connection().connection.driver_connection
        database.close()
        connection.execute("SELECT 1")
    with contextlib.closing(connection), pytest.raises(Exception, match="closed"):
        connection.execute("SELECT 1")
