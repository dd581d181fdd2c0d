"""Log of long-running processes: one JSON object a line on standard error."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from collections.abc import Mapping


class JsonFormatter(logging.Formatter):
    """at, level, logger, message; then what was logged with `extra={"fields": {...}}`; traceback."""

    def format(self, record: logging.LogRecord) -> str:
        out: dict[str, object] = {
            "at": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.fields(record),
        }
        if record.exc_info:
            out["traceback"] = self.formatException(record.exc_info)
        return json.dumps(out, default=str)

    def fields(self, record: logging.LogRecord) -> Mapping[str, object]:
        """Fields of a record's line beside the message."""
        return getattr(record, "fields", {})


def to_standard_error(formatter: logging.Formatter, *talkative: str) -> None:
    """Send all loggers of this process to standard error: from INFO up, for verbose libraries from WARNING up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in talkative:
        logging.getLogger(name).setLevel(logging.WARNING)
