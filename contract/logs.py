"""Log of long-running processes on standard error: one JSON object a line; on a terminal, a line of text for each event
that a person needs."""

from __future__ import annotations

import datetime
import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence

SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9])")


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


class TerminalFormatter(logging.Formatter):
    """Local time, "warning" or "error" if it is one, message; then a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created).astimezone()
        level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
        text = f"{at:%H:%M:%S} {level}{printable(record.getMessage())}"
        return f"{text}\n{printable_lines(self.formatException(record.exc_info))}" if record.exc_info else text


def printable(text: str) -> str:
    """Text without characters that control a terminal; tabs stay."""
    return "".join(each if each.isprintable() or each == "\t" else "\N{REPLACEMENT CHARACTER}" for each in text)


def printable_lines(text: str) -> str:
    """Lines without characters that control a terminal."""
    return "\n".join(map(printable, text.split("\n")))


def plain(text: str) -> str:
    """Text without the sequences that colour, clear or name a terminal, as front ends of commands print them."""
    return SEQUENCE.sub("", text)


def to_standard_error(
    formatter: logging.Formatter, *talkative: str, as_json: bool = True, machines: Sequence[str] = ()
) -> None:
    """Send all loggers of this process to standard error: from INFO up, for verbose libraries from WARNING up.

    as_json: also on a terminal. machines: loggers whose events a person does not need; on a terminal, from WARNING up.
    """
    handler = logging.StreamHandler(sys.stderr)
    to_people = sys.stderr.isatty() and not as_json
    handler.setFormatter(TerminalFormatter() if to_people else formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in (*talkative, *(machines if to_people else ())):
        logging.getLogger(name).setLevel(logging.WARNING)
