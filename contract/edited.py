"""Reads files that people edit, within bounds: what is named instead may be a pipe without a writer, a device without
an end, or text that takes a parser hours."""

from __future__ import annotations

import errno
import os
import re
import select
from pathlib import Path
from typing import Any, TextIO

MOST_CHARS = 4 << 20
WRITER_S = 30.0  # within which a pipe's writer must have written: process substitutions of shells are pipes
MOST_PARTS = 64  # of a dotted key of TOML, since its parser compares each part with all before it
PART = r"(?:[A-Za-z0-9_-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+"
LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){PART}(?:\.[ \t]*+{PART}){{{MOST_PARTS}}}")


def read_text(path: Path) -> str:
    """A file's text in UTF-8, which editors of Windows begin with a mark. Raises OSError, also for more than MOST_CHARS
    characters and for a pipe into which nobody writes; ValueError for another encoding."""
    try:
        with open_text(path) as file:
            text = file.read(MOST_CHARS + 1)
    except UnicodeDecodeError as error:
        raise ValueError(f"save it as UTF-8 ({error})") from error
    if len(text) > MOST_CHARS:
        raise OSError(errno.EFBIG, f"more than {MOST_CHARS:,} characters", str(path))
    return text


def open_text(path: Path) -> TextIO:
    """Open a file for `read_text`. Raises OSError."""
    return open(path, encoding="utf-8-sig", opener=_opened)  # pathlib has no opener


def _opened(path: str, flags: int) -> int:
    """A descriptor that can be read at once. Otherwise, opening a pipe would wait for its writer."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    try:
        reading = select.poll()
        reading.register(descriptor, select.POLLIN)
        if not reading.poll(1000 * WRITER_S):
            raise OSError(errno.EAGAIN, f"a pipe into which nobody wrote for {WRITER_S:g} s", path)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def parse_toml(text: str) -> dict[str, Any]:
    """Raises ValueError, also for numbers with thousands of digits and for keys of many parts, and RecursionError."""
    import tomllib  # few processes need it

    found = LONG_KEY.search(text)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"a key of more than {MOST_PARTS} parts (at line {line})")
    return tomllib.loads(text)
