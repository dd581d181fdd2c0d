"""Output of the worker: text lines on standard error, on a terminal only those that a person needs; with --json also
events on standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from gpt2core.process import streams
from taskloom.contract.logs import printable

# Events that a person at a terminal does not need: others follow and say how it went.
DETAILS = frozenset({"claimed", "artifact-delivered", "delivered"})
TOLD_BY_SERVER = frozenset({"registered", "stopped"})


class Report:
    """Sink of the worker's events. quiet: on a terminal, no line for what a server beside it tells too: that the worker
    is there, and a run that succeeded."""

    def __init__(self, as_json: bool, quiet: bool = False) -> None:
        self._as_json, self._quiet = as_json, quiet
        self._last = ""

    def say(self, event: str, message: str, **fields: Any) -> None:
        line = printable(message)  # one line, whatever another program answered
        if not sys.stderr.isatty():
            streams.say(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}", sys.stderr)
        elif self._needed(event, fields):
            streams.say(f"{time.strftime('%H:%M:%S')} {line}", sys.stderr)
        if self._as_json:
            streams.say(json.dumps({"event": event, **fields}))

    def _needed(self, event: str, fields: Mapping[str, Any]) -> bool:
        repeated, self._last = event == self._last == "retrying", event
        succeeded = event == "finished" and fields.get("outcome") == "succeeded"
        return not (repeated or event in DETAILS or (self._quiet and (succeeded or event in TOLD_BY_SERVER)))
