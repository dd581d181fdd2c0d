"""Processes load at their start only the modules that they need: users wait for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from taskloom.cli import COMMANDS

ALL_COMMANDS = tuple(f"taskloom.commands.{name}" for name in COMMANDS)


@pytest.mark.parametrize(
    ("rooms", "absent"),
    [
        (("taskloom.worker.__main__",), {"numba", "numpy"}),
        (ALL_COMMANDS, {"numba", "scipy"}),
        (("taskloom.cli", "taskloom.commands.serve", "taskloom.commands.worker"), {"pydantic", "httpx", "rich"}),
        (("taskloom.commands.train",), {"pydantic", "httpx", "numpy"}),
        (("taskloom.server.main",), {"numba", "scipy", "alembic", "ruptures"}),
    ],
)
def test_a_process_loads_only_what_it_needs(rooms: tuple[str, ...], absent: set[str]) -> None:
    program = f"import sys, {', '.join(rooms)}; print(sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_trainer_takes_openblas_without_loading_scipy() -> None:
    program = "import sys; from gpt2core.gemm import libraries; libraries.load('auto'); libraries.load('openblas')"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; print('scipy.linalg' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False"
