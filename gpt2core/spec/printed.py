"""What a process of ours printed, among what libraries print: preloaded ones, sitecustomize, OpenMP runtimes."""

from __future__ import annotations

import json
from typing import Any


def document(text: str, begin: str) -> Any:
    """The JSON that begins so; text without a line's end may be before it. Raises ValueError without it, also for
    numbers with thousands of digits, and RecursionError."""
    return json.JSONDecoder().raw_decode(text[text.index(begin) :])[0]
