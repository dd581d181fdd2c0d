"""Database URLs, which may contain a password: nothing of a URL that cannot be read is shown."""

from __future__ import annotations

import re

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from taskloom.server.errors import StartRefused

ACCEPTED = "use sqlite:///FILE or postgresql://USER@HOST/NAME"
ESCAPES = "in a user or password write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23 and % as %25"
HOST = re.compile(r"[\w.,:-]*")  # names and addresses; folders of sockets are options
PLAIN = re.compile(r"\w*")  # too little for a password


def parse(url: str) -> URL:
    """The parts of a URL. Raises StartRefused."""
    try:
        parsed = make_url(url)
        _check_text(parsed)
        # An unescaped @ would make a part of the password the host's name, which errors show.
        if parsed.get_backend_name() == "sqlite" or (url.count("@") <= 1 and HOST.fullmatch(parsed.host or "")):
            return parsed
    except (ArgumentError, ValueError):  # such as a port that is no number
        pass
    raise unreadable(url)


def _check_text(url: URL) -> None:
    """Raises ValueError for text that no client can pass on: null characters, at which its C library would cut the
    options, bytes of another encoding, and names that are no host's."""
    query = [part for value in url.query.values() for part in ((value,) if isinstance(value, str) else value)]
    for part in filter(None, (url.username, url.password, url.host, url.database, *query)):
        part.encode()
        if "\0" in part:
            raise ValueError("a null character")
    for host in (url.host or "").split(","):
        host.partition(":")[0].encode("idna")


def unreadable(url: str) -> StartRefused:
    named = f"{url} is no database URL" if PLAIN.fullmatch(url) else "the database URL cannot be read"
    return StartRefused(f"{named}; {ACCEPTED}; {ESCAPES}")
