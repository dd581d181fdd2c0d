"""The parts of compile/ import each other in one direction, also inside functions and by name."""

from __future__ import annotations

import graphlib
import re
from pathlib import Path

import gpt2core.compile

FOLDER = Path(gpt2core.compile.__path__[0])
IMPORT = re.compile(
    r"^\s*(?:from gpt2core\.compile\.(\w+) import|from gpt2core\.compile import ([\w, ]+))"
    r"|\"gpt2core\.compile\.(\w+)\"", re.MULTILINE,
)  # fmt: skip


def imported(text: str) -> set[str]:
    """Modules of the folder that a source names."""
    found = {name.strip() for each in IMPORT.findall(text) for name in ",".join(each).split(",") if name.strip()}
    if 'module(f"gpt2core.compile.{name}")' in text:  # jit
        found |= {"calls", "compiler", "objects"}
    return found


def test_there_is_no_circle() -> None:
    graph = {path.stem: imported(path.read_text()) for path in FOLDER.glob("*.py") if path.stem != "__init__"}
    assert graph["jit"] >= {"arrays", "calls", "compiler", "later", "objects"}
    assert graph["objects"] >= {"code", "compiler", "linker"}
    leaves = graph.pop("later")
    assert leaves == {"bfloat16", "vector"}  # names that kernels resolve when they are compiled, not what it imports
    assert {each for found in graph.values() for each in found} <= graph.keys() | {"later"}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError
