"""The server's log: each line has the id of its request."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Mapping

from taskloom.contract import logs

request_id: contextvars.ContextVar[str | None] = contextvars.ContextVar("request_id", default=None)


class RequestFormatter(logs.JsonFormatter):
    """The log's lines, with request_id within a request."""

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        current = request_id.get()
        return {**({} if current is None else {"request_id": current}), **super().fields(record)}


def to_standard_error() -> None:
    """Send all loggers of this process, from INFO up, to standard error."""
    logs.to_standard_error(RequestFormatter(), "alembic")
