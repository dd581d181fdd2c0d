"""Output of the worker: text lines on standard error, with --json also events on standard output."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


class Report:
    """Sink of the worker's events."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def say(self, event: str, message: str, **fields: Any) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(f"{stamp} {message}", file=sys.stderr, flush=True)
        if self._as_json:
            print(json.dumps({"event": event, **fields}), flush=True)
