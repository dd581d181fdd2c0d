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
        (("taskloom.worker.process",), {"numba", "numpy"}),
        (ALL_COMMANDS, {"numba", "scipy"}),
        (("taskloom.cli", "taskloom.commands.serve", "taskloom.commands.worker"), {"pydantic", "httpx", "rich"}),
        (("taskloom.commands.train",), {"pydantic", "httpx", "numpy"}),
        (("taskloom.server.main",), {"numba", "scipy", "alembic", "ruptures", "optuna"}),
    ],
)
def test_a_process_loads_only_what_it_needs(rooms: tuple[str, ...], absent: set[str]) -> None:
    program = f"import sys, {', '.join(rooms)}; print(sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_library_is_loaded_when_a_product_needs_it() -> None:
    program = (
        "from pathlib import Path; from gpt2core.gemm import libraries\n"
        "maps, names = Path('/proc/self/maps'), ('libmkl_rt', 'libscipy_openblas-')\n"
        "def loaded(): return [name for name in names if name in maps.read_text()]\n"
        "found = libraries.load('auto'); print(loaded(), len(found) > 1)\n"
        "print([each.address > 0 for each in found[1:]], loaded())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    assert before == "[] True"
    assert "False" not in after
    assert "libscipy_openblas-" in after


@pytest.mark.parametrize(("blas", "least"), [("own", 0), ("openblas", 1 << 20)])
def test_a_library_that_is_loaded_is_a_part_of_the_peak_memory(blas: str, least: int) -> None:
    """The second of two processes loads only kept code, so that no compiler has taken more memory before."""
    program = (
        "from gpt2core.run.train import train; from gpt2core.spec.config import TrainConfig\n"
        "from gpt2core.spec.models import model_from\n"
        f"result = train(TrainConfig(model=model_from('tiny'), steps=3, threads=1, blas='{blas}'))\n"
        "print(result.compiled, result.resident_bytes['blas'])\n"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    compiled, loaded_bytes = map(int, done.stdout.split())
    assert compiled == 0
    assert least <= loaded_bytes < least + (16 << 20)


def test_a_trainer_takes_openblas_without_loading_scipy() -> None:
    program = "import sys; from gpt2core.gemm import libraries; libraries.blas('openblas').address"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; print('scipy.linalg' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "False"
