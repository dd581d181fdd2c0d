"""The trainer as a process: `python -m gpt2core --result FILE`. See gpt2core.launch for what it reads and says."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from gpt2core.config import TrainConfig
from gpt2core.errors import Cancelled, CoreError, InputError, UnreadableFile
from gpt2core.launch import EXIT_CANCELLED, EXIT_FAILED, EXIT_OK, ONE_THREAD, PROTOCOL

os.environ.update(ONE_THREAD)  # before a BLAS is loaded


def emit(event: dict[str, Any]) -> None:
    """One event, one line."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def write_result(path: Path, result: dict[str, Any]) -> str:
    """Write a result whole or not at all; its SHA-256. Raises UnreadableFile."""
    text = json.dumps(result, allow_nan=False).encode()
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    return hashlib.sha256(text).hexdigest()


def read_config(text: str) -> TrainConfig:
    """The config from standard input's JSON. Raises InputError or ConfigError."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"standard input is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputError("standard input is not a JSON object of settings")
    return TrainConfig.from_dict(values)


def run(arguments: argparse.Namespace) -> None:
    """Do what was asked for. Raises CoreError."""
    config = read_config(sys.stdin.read())
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    emit({"event": "started", "pid": os.getpid(), "schema": PROTOCOL})
    from gpt2core import train  # loads Numba: after the cheap checks

    if arguments.graph is not None:
        text = train.graph_dot(config)
        try:
            arguments.graph.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UnreadableFile(arguments.graph, error.strerror or str(error)) from error
    if arguments.plan:
        emit(train.plan_event(config))
        return
    # A worker makes a folder beside the result for what it is to deliver with it.
    beside = None if arguments.result is None else arguments.result.parent / "artifacts"
    artifacts = beside if beside is not None and beside.is_dir() else None
    result = train.train(config, emit, stop, arguments.profile, artifacts)
    for warning in result.warnings:
        emit({"event": "warning", "message": warning})
    if arguments.result is not None:
        sha256 = write_result(arguments.result, result.to_dict())
        emit({"event": "result", "path": str(arguments.result), "sha256": sha256})


def main() -> int:
    """Run and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gpt2core", description=__doc__)
    parser.add_argument("--result", type=Path, help="where to write the result (JSON)")
    parser.add_argument("--plan", action="store_true", help="say the sizes and stop")
    parser.add_argument("--graph", type=Path, help="write the task graph here (Graphviz)")
    parser.add_argument("--profile", type=Path, help="write what each task cost, and the graph, here (JSON, gzip)")
    arguments = parser.parse_args()
    try:
        run(arguments)
    except CoreError as error:
        code = EXIT_CANCELLED if isinstance(error, Cancelled) else error.exit_code
        emit({"event": "error", "slug": error.slug, "detail": str(error), "exit_code": code, **error.fields()})
        return code
    except MemoryError as error:
        emit({"event": "error", "slug": "out-of-memory", "detail": str(error), "exit_code": EXIT_FAILED})
        return EXIT_FAILED
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
