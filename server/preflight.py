"""Checks of a server's surroundings."""

from __future__ import annotations

import asyncio
import difflib
import functools
import os
import sqlite3

from gpt2core.spec.errors import ConfigError
from gpt2core.spec.preflight import SETTINGS, Check
from gpt2core.spec.settings import writable
from taskloom.server.access.oidc import configured
from taskloom.server.db import Database
from taskloom.server.settings import PREFIX, Settings

ALIKE = 0.9  # of two names of variables; those of workers and trainers resemble the server's less


def checks(database_url: str | None = None, asking: bool = False) -> tuple[Check, ...]:
    """The checks before serving. asking: whether other machines are asked too, for which no start waits."""
    read = functools.cache(functools.partial(Settings.read, database_url))

    def variables() -> str:
        read()
        names = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
        for name in sorted(os.environ.keys() - names):  # otherwise a limit with a wrong letter would be none
            for close in difflib.get_close_matches(name, names, 1, ALIKE):
                raise ConfigError("variable", name, f"no setting has this name; did you mean {close}?")
        return ", ".join(name for name in names if os.environ.get(name)) or "none"

    def database() -> str:
        opened = Database(read().database_url)
        opened.close()
        return f"SQLite {sqlite3.sqlite_version}" if opened.is_sqlite else "PostgreSQL"

    def folders() -> str:
        given = {"ARTIFACT_ROOT": read().artifact_root, "ANSWER_ROOT": read().answer_root}
        return ", ".join(str(writable(PREFIX + name, root)) for name, root in given.items() if root) or "by default"

    def signing_on() -> str:
        settings = read()
        found = configured.sign_on(settings)
        if found is not None and asking:
            asyncio.run(found.look())
        header, provider = settings.proxy_user_header, [] if found is None else [found.issuer]
        proxies = [f"{header} of {settings.proxy_addresses}"] if header else []
        return ", ".join([*proxies, *provider]) or "with keys"

    return (
        *SETTINGS[:3], Check("variables of the server", variables), Check("database", database),
        Check("folders of the server", folders), Check("sign-on", signing_on),
    )  # fmt: skip
