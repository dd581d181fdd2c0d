"""`python -m taskloom.server keys ...`: manage the keys in the server's database. The server need not run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError

from gpt2core.spec.errors import FileError
from gpt2core.spec.preflight import UMASK, require
from taskloom.contract import key_files, options
from taskloom.contract.keys import KeyRequest
from taskloom.server import migrate
from taskloom.server.access.keys import keyring
from taskloom.server.db import Database, unusable
from taskloom.server.errors import ServerError
from taskloom.server.settings import Settings

DAY_S = 86400.0


def main(arguments: list[str]) -> int:
    """Return 0, or 2 for a rejected request. Raises InputError for an unusable database or umask."""
    parser = argparse.ArgumentParser(prog="python -m taskloom.server keys", description=__doc__)
    options.add_to(parser, [options.DATABASE])
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="print a new key's token, once")
    options.add_to(create, options.CREATE_KEY)
    commands.add_parser("list", help="list every key, one line of JSON each")
    commands.add_parser("revoke", help="reject a key from now on").add_argument("id", type=int)
    given = parser.parse_args(arguments)
    require([UMASK])  # else nobody could open the new database
    settings = Settings.read(given.database_url)
    database = Database(settings.database_url, settings.busy_timeout_s)
    try:
        migrate.upgrade(database)
        for line in _lines(database, given):
            print(line)
    except DBAPIError as error:
        raise unusable(database, error) from None
    except ValidationError as error:
        print(f"taskloom: {error.errors()[0]['loc'][0]}: {error.errors()[0]['msg']}", file=sys.stderr)
        return 2
    except (ServerError, FileError) as error:
        print(f"taskloom: {error}", file=sys.stderr)
        return 2
    finally:
        database.close()
    return 0


def _lines(database: Database, given: argparse.Namespace) -> list[str]:
    if given.command == "create":
        expires_in_s = None if given.expires_in is None else given.expires_in * DAY_S
        request = KeyRequest(scope=given.scope, name=given.name, group=given.group, expires_in_s=expires_in_s)
        if given.output is None:
            return [keyring.create(database, request).token]
        with key_files.new(Path(given.output)) as file:
            made = keyring.create(database, request)
            file.write(made.token + "\n")
        return [f"key {made.id} of scope {made.scope} is in {given.output}"]
    if given.command == "revoke":
        return [keyring.revoke(database, given.id).model_dump_json()]
    lines: list[str] = []
    cursor: str | None = None
    while True:
        page = keyring.page(database, cursor, 500)
        lines += [json.dumps(key.model_dump(mode="json")) for key in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return lines
