"""`taskloom keys`: Create, list and revoke keys."""

from __future__ import annotations

from pathlib import Path

import click

from taskloom import tables
from taskloom.commands.forwarded import forwarded
from taskloom.commands.output import connect, json_option, print_json, server_option, show_answer
from taskloom.contract import key_files
from taskloom.contract.keys import KeyRequest, KeySummary, Scope
from taskloom.contract.options import CREATE_KEY

DAY_S = 86400.0


@click.group()
def keys() -> None:
    """Create, list and revoke keys. Send one as TASKLOOM_TOKEN, or its file as TASKLOOM_TOKEN_FILE.

    On the server's machine, python -m taskloom.server keys does the same without a key.
    """


@keys.command()
@forwarded(CREATE_KEY)
@server_option
@json_option
def create(
    scope: Scope, expires_in: float | None, name: str, group: str | None, output: str | None, server: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Create a key and print it once; the server stores only a hash. The first key needs the scope admin.

    TASKLOOM_TOKEN_FILE=FILE uses the key of a file, also one written with --json.
    """
    expires_in_s = None if expires_in is None else expires_in * DAY_S
    # The server checks the values.
    request = KeyRequest.model_construct(scope=scope, name=name, group=group, expires_in_s=expires_in_s)
    with connect(server) as client:
        if output is None:
            made = client.create_key(request)
            if as_json:
                print_json(made)
            else:
                click.echo(made.token)
            return
        with key_files.new(Path(output)) as file:
            made = client.create_key(request)
            file.write((made.model_dump_json() if as_json else made.token) + "\n")
    if as_json:
        print_json(KeySummary.model_validate(made.model_dump(exclude={"token"})))
    else:
        click.echo(f"key {made.id} of scope {made.scope} is in {output}")


@keys.command("list")
@server_option
@json_option
def list_keys(server: str, as_json: bool) -> None:
    """List all keys, including revoked and expired ones, without their secrets."""
    with connect(server) as client:
        found = list(client.keys())
    show_answer(found, [tables.keys(found)], as_json)


@keys.command()
@click.argument("key_id", metavar="ID", type=int)
@server_option
@json_option
def revoke(key_id: int, server: str, as_json: bool) -> None:
    """Revoke a key."""
    with connect(server) as client:
        revoked = client.revoke_key(key_id)
    if as_json:
        print_json(revoked)
    else:
        click.echo(f"key {revoked.id} is revoked")
