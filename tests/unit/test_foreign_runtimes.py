"""The guard against OpenMP runtimes and MPI libraries in pytest's own process names the test that loads one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support import foreign_runtimes

GUARDED = {"libgomp-a34b3233.so.1.0.0", "libomp.so.5", "libiomp5.so", "libmpi.so.40", "libmpich.so.12"}
OTHERS = {"libm.so.6", "libcompute.so", "libscipy_openblas.so", "libmpifr.so.6"}
TESTS = """\
import mmap, pathlib, pytest

kept = []

@pytest.mark.parametrize("name", {names})
def test_maps(name):
    with pathlib.Path({folder!r}, name).open("rb") as file:
        kept.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

def test_after(): pass
"""


def test_each_test_that_maps_a_runtime_fails_and_no_other(tmp_path):
    """In another process, with files of the libraries' names."""
    names = sorted(GUARDED | OTHERS)
    for name in names:
        (tmp_path / name).write_bytes(bytes(64))
    tests = tmp_path / "test_loads.py"
    tests.write_text(TESTS.format(names=names, folder=str(tmp_path)))
    plugins = ("-p", foreign_runtimes.__name__, "-p", "no:cacheprovider")
    environment = {**os.environ, "PYTHONPATH": str(Path(foreign_runtimes.__file__).parents[2])}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(tmp_path), "-c", os.devnull, str(tests)],
        env=environment, capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout
    errors = re.findall(r"^test_loads\.py::test_maps\[(.+)\] loads (.+) into pytest's own process;", ended.stdout, re.M)
    assert {name for name, _ in errors} == GUARDED
    assert all(loaded == name for name, loaded in errors)
    assert f"{len(names) + 1} passed, {len(GUARDED)} errors" in ended.stdout
