"""`python -m taskloom.server keys ...`: manage the keys in the server's database. The server need not run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from gpt2core.spec.errors import FileError
from taskloom.contract import key_files
from taskloom.contract.keys import KeyRequest, Scope
from taskloom.server import migrate
from taskloom.server.access.keys import service
from taskloom.server.db import Database
from taskloom.server.errors import ServerError
from taskloom.server.settings import Settings

DAY_S = 86400.0


def main(arguments: list[str]) -> int:
    """Return 0, or 2 for a rejected request. Raises StartRefused for an unusable database."""
    parser = argparse.ArgumentParser(prog="python -m taskloom.server keys", description=__doc__)
    parser.add_argument("--database-url", help="default TASKLOOM_DATABASE_URL, or sqlite:///taskloom.db")
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="print a new key's token, once")
    create.add_argument("--scope", choices=get_args(Scope), required=True)
    create.add_argument("--expires-in", type=float, metavar="DAYS", help="without it, the key does not expire")
    create.add_argument("--name", default="", help="a name for people")
    create.add_argument("-o", "--output", type=Path, metavar="FILE", help="a new file that only you can read")
    commands.add_parser("list", help="list every key, one line of JSON each")
    commands.add_parser("revoke", help="reject a key from now on").add_argument("id", type=int)
    options = parser.parse_args(arguments)
    settings = Settings.read(options.database_url)
    database = Database(settings.database_url, settings.busy_timeout_s)
    try:
        migrate.upgrade(database)
        for line in _lines(database, options):
            print(line)
    except ValidationError as error:
        print(f"taskloom: {error.errors()[0]['loc'][0]}: {error.errors()[0]['msg']}", file=sys.stderr)
        return 2
    except (ServerError, FileError) as error:
        print(f"taskloom: {error}", file=sys.stderr)
        return 2
    finally:
        database.close()
    return 0


def _lines(database: Database, options: argparse.Namespace) -> list[str]:
    if options.command == "create":
        expires_in_s = None if options.expires_in is None else options.expires_in * DAY_S
        request = KeyRequest(scope=options.scope, name=options.name, expires_in_s=expires_in_s)
        if options.output is None:
            return [service.create(database, request).token]
        with key_files.new(options.output) as file:
            made = service.create(database, request)
            file.write(made.token + "\n")
        return [f"key {made.id} of scope {made.scope} is in {options.output}"]
    if options.command == "revoke":
        return [service.revoke(database, options.id).model_dump_json()]
    lines: list[str] = []
    cursor: str | None = None
    while True:
        page = service.page(database, cursor, 500)
        lines += [json.dumps(key.model_dump(mode="json")) for key in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return lines
