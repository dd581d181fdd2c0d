"""A guard: a test that loads an OpenMP runtime or an MPI library into pytest's own process fails.

Neither can be unloaded, and each works only in a process without another one. A later test would meet it, whichever
test of this process that is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

LIBRARIES = re.compile(rb"/(lib(?:omp|gomp|iomp5|mpi|mpich)[-.][^/\n]*)")  # wheels rename theirs: libgomp-1a2b.so.1
_seen: set[str] = set()


def loaded() -> set[str]:
    """The OpenMP runtimes and MPI libraries of this process."""
    return {name.decode() for name in LIBRARIES.findall(Path("/proc/self/maps").read_bytes())}


@pytest.fixture(autouse=True)
def no_foreign_runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test after which a library is there for the first time. PyTorch, in tests of parity, brings its own."""
    yield
    if request.node.get_closest_marker("parity") is not None:
        return
    new = loaded() - _seen
    _seen.update(new)
    if new:
        pytest.fail(
            f"{request.node.nodeid} loads {', '.join(sorted(new))} into pytest's own process; call it in another one "
            "(tests/support/apart.py)",
            pytrace=False,
        )
