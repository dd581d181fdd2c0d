"""Calls of functions in separate processes, which are kept for further calls: each has one OpenMP runtime and team."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

LIMIT_S = 250.0

Apart = Callable[..., Any]  # (key, function, *arguments): what the function returns in the key's process


@contextmanager
def processes() -> Iterator[Apart]:
    """Call functions in the process of a key, which starts on first use."""
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
