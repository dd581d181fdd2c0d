"""Trace files: conversion of a trainer's raw trace for viewers."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from gpt2core.spec.errors import ConfigError, InputError, UnreadableFile
from gpt2core.spec.files import replacing
from taskloom.analysis import chrome, paraver
from taskloom.analysis.trace import Trace, trace_of

Format = Literal["chrome", "paraver"]
SUFFIXES: dict[str, Format] = {".json": "chrome", ".json.gz": "chrome", ".prv": "paraver"}
ARTIFACT = "trace.json.gz"  # of a tracing attempt
MOST_BYTES = 256 << 20  # of a trace, unpacked: about ten million spans
LEVEL = 5  # of gzip; level 6 takes twice as long and saves a tenth


def format_of(path: Path) -> Format:
    """Format of a trace file by its suffix. Raises ConfigError."""
    for suffix, form in SUFFIXES.items():
        if path.name.endswith(suffix):
            return form
    raise ConfigError("trace", str(path), "a file that ends in " + ", ".join(SUFFIXES))


def read(path: Path, most_bytes: int = MOST_BYTES) -> Trace:
    """Read a trainer's raw trace. Raises UnreadableFile or InputError."""
    try:
        with gzip.open(path) as file:
            text = file.read(most_bytes + 1)  # limited, because a megabyte may unpack to a gigabyte
        if len(text) > most_bytes:
            raise ValueError(f"its content has more than {most_bytes} bytes")
        return trace_of(json.loads(text))
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except (ValueError, EOFError, RecursionError, zlib.error) as error:
        raise InputError(f"{path.name} is not a trace: {error}") from error


def write(path: Path, form: Format, traces: Sequence[tuple[str, Trace]]) -> list[Path]:
    """Write one trace, or several for Chrome; return the files. Raises InputError or UnreadableFile."""
    try:
        if form == "chrome":
            _write(path, chrome.chrome(traces))
            return [path]
        if len(traces) > 1:
            raise InputError("a Paraver file shows only one run; write two files and open both")
        (_, trace), stem = traces[0], path.with_suffix("")
        at = datetime.fromtimestamp(time.time()).astimezone()
        parts = {path: (line + "\n" for line in paraver.prv(trace, at))}
        texts = {stem.with_suffix(".pcf"): paraver.pcf(trace), stem.with_suffix(".row"): paraver.row(trace)}
        for file, lines in (*parts.items(), *((file, [text]) for file, text in texts.items())):
            _write(file, lines)
        return [*parts, *texts]
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error


def _write(path: Path, pieces: Iterable[str]) -> None:
    with replacing(path) as part:
        if path.name.endswith(".gz"):
            with gzip.open(part, "wt", compresslevel=LEVEL, encoding="utf-8") as packed:
                packed.writelines(pieces)
        else:
            with part.open("w", encoding="utf-8") as file:
                file.writelines(pieces)
