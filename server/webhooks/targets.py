"""Allowed URLs of webhooks: those below the operator's targets."""

from __future__ import annotations

from urllib.parse import unquote

import httpx


def is_allowed(url: str, targets: str) -> bool:
    """Whether the URL has scheme, host and port of one of the targets, and its path or one below it.

    Ambiguous URLs are rejected: those with a user name, `..`, a backslash or a fragment.
    """
    try:
        parsed = httpx.URL(url)
        path = unquote(parsed.path)
        if parsed.userinfo or parsed.fragment or "\\" in path or ".." in path.split("/"):
            return False
        return any(_is_below(parsed, httpx.URL(target.strip())) for target in targets.split(",") if target.strip())
    except (httpx.InvalidURL, ValueError):
        return False


def _is_below(url: httpx.URL, target: httpx.URL) -> bool:
    same_place = (url.scheme, url.host, _port(url)) == (target.scheme, target.host, _port(target))
    folder = target.path.rstrip("/") + "/"
    return same_place and (url.path == target.path or url.path.startswith(folder))


def _port(url: httpx.URL) -> int | None:
    return url.port or {"http": 80, "https": 443}.get(url.scheme)
