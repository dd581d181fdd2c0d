"""Importing the trainer reads no file, no fact of the machine and no variable of the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys

WATCH = """
import json, os, pkgutil, sys
import gpt2core
names = sorted(each.name for each in pkgutil.walk_packages(gpt2core.__path__, "gpt2core."))
import llvmlite.ir, numba, numpy, threadpoolctl  # other people's modules read what they want, before ours

def ours():
    "The module of ours that is being imported and led here, or None."
    frame, found = sys._getframe(2), None
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "<module>" and name.partition(".")[0] == "gpt2core":
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back

seen = []
def watch(event, arguments):
    if event in ("open", "subprocess.Popen", "ctypes.dlopen"):
        what = str(arguments[0])
        if "__pycache__" not in what and not what.endswith((".py", ".so")):
            where = ours()
            if where is not None:
                seen.append([where, what])

class Watched(type(os.environ)):
    def __getitem__(self, key):
        where = ours()
        if where is not None:
            seen.append([where, f"environment {key}"])
        return super().__getitem__(key)

    def __iter__(self):
        where = ours()
        if where is not None:
            seen.append([where, "environment"])
        return super().__iter__()

os.environ.__class__ = Watched
sys.addaudithook(watch)
for name in names:
    if not name.endswith("__main__"):
        __import__(name)
EXTRA
print(json.dumps([len(names), seen]))
"""


def seen(extra: str = "", **environment: str) -> tuple[int, list[list[str]]]:
    done = subprocess.run(
        [sys.executable, "-B", "-c", WATCH.replace("EXTRA", extra)], capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip  # -B: in a new checkout Python writes what it compiles of each module, which is an open, too
    assert done.returncode == 0, done.stderr
    count, found = json.loads(done.stdout)
    return count, found


def test_importing_every_module_reads_nothing() -> None:
    count, found = seen(TASKLOOM_CLOCK="sundial", NUMBA_CPU_NAME="pentium-5", TASKLOOM_CACHE_DIR="/proc/nope")
    assert count > 100
    # compiler.py settles two settings of Numba before it loads Numba, which reads them when it is imported.
    assert {where.partition(":")[0] for where, _ in found} <= {"gpt2core.compile.compiler"}
    assert {what for _, what in found} <= {
        "environment NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "environment NUMBA_DISABLE_JIT"
    }  # fmt: skip


def test_a_module_that_reads_would_be_noticed() -> None:
    extra = """
import types
module = types.ModuleType("gpt2core.invented")
exec("import os; open('/proc/cpuinfo').close(); os.environ.get('TASKLOOM_CLOCK')", vars(module))
"""
    _, found = seen(extra)
    assert ["gpt2core.invented:1", "/proc/cpuinfo"] in found
    assert ["gpt2core.invented:1", "environment TASKLOOM_CLOCK"] in found
