"""The log: one JSON object a line on standard error, each with the id of the request it came from."""

from __future__ import annotations

import contextvars
import datetime
import json
import logging
import sys

request_id: contextvars.ContextVar[str | None] = contextvars.ContextVar("request_id", default=None)
FIELDS = ("method", "path", "status", "duration_s")


class JsonFormatter(logging.Formatter):
    """at, level, logger, message; request_id within a request; traceback, and what a request's own line adds."""

    def format(self, record: logging.LogRecord) -> str:
        out: dict[str, object] = {
            "at": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (current := request_id.get()) is not None:
            out["request_id"] = current
        out |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            out["traceback"] = self.formatException(record.exc_info)
        return json.dumps(out, default=str)


def to_standard_error() -> None:
    """All loggers of this process, from INFO up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("alembic").setLevel(logging.WARNING)
