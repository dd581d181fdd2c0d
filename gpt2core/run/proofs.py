"""A cache of proven graphs: the graph of a program that is planned again is neither derived nor proven again.

A file's name is a hash of everything on which the graph and its proof depend: the sync, every task with its accesses,
and the sources that derive and prove. So it is valid for any way to build the program. A damaged file, or one with
another name, is replaced. The most recently used files stay.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from gpt2core.node import cache, host
from gpt2core.spec import settings
from gpt2core.spec.errors import NotEnoughMemory, UnreadableFile
from gpt2core.spec.sources import source_hash
from gpt2core.step import graph
from gpt2core.step.graph import Graph
from gpt2core.step.ops import Program
from gpt2core.step.paths import Edges

SOURCES = ("step", "spec/phases.py", "run/proofs.py")  # sources that determine a graph, its proof and its file
FOLDER_BYTES, EDGES_BYTES = 128 << 20, 4 << 20  # 124M has 0.1 MB of edges; writing more would need memory of the plan
TABLES = ("edges", "crossing")


def proven(program: Program, sync: str, anew: bool = False, run_bytes: int = 0) -> Graph:
    """Return the graph of a program, proven race-free now or before. anew: derive and prove it in any case. run_bytes:
    what the run will allocate.

    Raises GraphError if the program is wrong, NotEnoughMemory if deriving and proving would not fit beside the run.
    """
    path = settings.cache_folder() / "proofs" / f"{identity(program, sync)}.graph"
    found = None if anew or settings.proves_always() else read(path)
    if found is None:
        needed, available = graph.planning_bytes(program) + run_bytes, host.available_memory_bytes()
        if needed > available:
            fits = f"its graph has {len(program.tasks)} tasks; larger slices or a smaller batch give fewer"
            raise NotEnoughMemory(needed, available, fits)
        found = graph.build(program, sync)
        graph.validate(program, found)
        with contextlib.suppress(UnreadableFile, OSError):  # with a full disk the next start derives and proves again
            keep(path, found)
    return found


def identity(program: Program, sync: str) -> str:
    """Hash of everything on which the graph and its proof depend."""
    about = [source_hash(SOURCES), sys.byteorder, sync, sorted(program.constants)]
    digest = hashlib.sha256(json.dumps(about).encode())
    for op in program.ops:
        tiles = [(tile.label, tile.accesses) for tile in op.tiles]
        digest.update(json.dumps((op.label, op.phase, op.filler, op.beside, tiles)).encode())
    return digest.hexdigest()


def read(path: Path) -> Graph | None:
    """The graph in a file, which is marked as used now. None: the file is missing or damaged."""
    content = cache.read(path)
    if content is None:
        return None
    cache.used(path)
    head, _, ends = content.partition(b"\n")
    fields: dict[str, Any] = json.loads(head)
    at = 0
    for name in TABLES:
        size = fields[name]
        fields[name] = Edges.of_ends(ends[at : at + size])
        at += size
    lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
    return Graph(**{**fields, **lists})


def keep(path: Path, found: Graph) -> None:
    """Write a proven graph, unless it is too large, and delete the least recently used.

    Raises UnreadableFile or OSError if it cannot be written.
    """
    if 8 * (len(found.edges) + len(found.crossing)) > EDGES_BYTES:
        return
    tables = {name: getattr(found, name).ends() for name in TABLES}
    fields = {item.name: getattr(found, item.name) for item in dataclasses.fields(Graph)}
    head = json.dumps({**fields, **{name: len(ends) for name, ends in tables.items()}})
    cache.write(path, b"\n".join([head.encode(), b"".join(tables.values())]))
    cache.prune(path.parent, FOLDER_BYTES)
