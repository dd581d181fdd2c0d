"""The server's log: each line has the id of its request."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Mapping

from sqlalchemy.exc import DBAPIError

from gpt2core.process import streams
from taskloom.contract import logs
from taskloom.server.errors import ServerError

MACHINES = ("uvicorn.error", "taskloom.requests")  # loggers whose events a person does not need
request_id: contextvars.ContextVar[str | None] = contextvars.ContextVar("request_id", default=None)


class RequestFormatter(logs.JsonFormatter):
    """The log's lines, with request_id within a request."""

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        current = request_id.get()
        return {**({} if current is None else {"request_id": current}), **super().fields(record)}


def repeated(log: logging.Logger, what: str, error: Exception) -> None:
    """Log that work of a loop, which goes on, has failed: a line for what an operator can mend, else the traceback."""
    mendable = isinstance(error, ServerError | DBAPIError) or streams.is_exhausted(error)
    log.error("%s failed; it will be repeated%s", what, f": {error}" if mendable else "",
              exc_info=None if mendable else error)  # fmt: skip


def to_standard_error(as_json: bool) -> None:
    """Send all loggers of this process to standard error. as_json: also on a terminal."""
    logs.to_standard_error(RequestFormatter(), "alembic", as_json=as_json, machines=MACHINES)
