"""Call functions in separate processes. A process is kept for further calls, with its OpenMP runtime and its team."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

LIMIT_S = 250.0

Apart = Callable[..., Any]  # (key, function, *arguments) -> result of the call in the key's process


@contextmanager
def processes() -> Iterator[Apart]:
    """Yield a function that calls others in the process of a key. A process starts on first use of its key."""
    pools: dict[Any, ProcessPoolExecutor] = {}

    def call(key: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        if key not in pools:
            pools[key] = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        return pools[key].submit(function, *arguments).result(LIMIT_S)

    try:
        yield call
    finally:
        for pool in pools.values():
            pool.shutdown()
