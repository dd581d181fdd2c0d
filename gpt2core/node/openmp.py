"""OpenMP runtimes of this node: files, found and described without loading them. Standard library only."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpt2core.spec.errors import MachineError
from gpt2core.spec.schedulers import AUTO, RUNTIMES

FILES = {
    "libomp": ("libomp.so.5", "libomp.so"),
    "libiomp5": ("libiomp5.so",),
    "libgomp": ("libgomp.so.1", "libgomp-*.so.1*"),  # wheels rename theirs
}
# Functions that we call. GOMP_taskwait_depend was introduced with the present form of depend clauses (GCC 9, LLVM 14):
# a runtime without it would misread them.
ENTRY_POINTS = (
    "GOMP_parallel", "GOMP_barrier", "GOMP_task", "GOMP_taskwait", "GOMP_taskwait_depend", "omp_get_thread_num",
    "GOMP_loop_nonmonotonic_dynamic_start", "GOMP_loop_nonmonotonic_dynamic_next", "GOMP_loop_end_nowait",
)  # fmt: skip
ANY = re.compile(r"/lib(gomp|iomp5|omp)(-[^/]*)?\.so[^/]*$")


@dataclass(frozen=True)
class RuntimeFile:
    """An OpenMP runtime on this node. `version` comes from the file."""

    name: str  # libgomp, libiomp5 or libomp; for a path, its file name
    path: Path
    version: str
    sha256: str


def find() -> dict[str, Path]:
    """Usable file of each runtime on this node, in the order of `auto`."""
    return {name: path for name in RUNTIMES if (path := next(_usable(name), None)) is not None}


def choose(runtime: str) -> RuntimeFile:
    """The runtime for the setting `runtime`. Raises MachineError if it is not here, or lacks an entry point."""
    if "/" in runtime:
        path = Path(runtime)
        if not path.is_file():
            raise MachineError(f"runtime = {runtime!r}: there is no such file")
        missing = _missing(path)
        if missing:
            raise MachineError(f"{path} has no {missing[0]}: OpenMP by GCC 9, LLVM 14 or later is needed")
        return describe(path.name, path)
    here = find()
    name = next(iter(here), "") if runtime == AUTO else runtime
    if name in here:
        return describe(name, here[name])
    found = ", ".join(here) or "none"
    unusable = next(_candidates(runtime), None) if runtime in FILES else None
    if unusable is not None:
        raise MachineError(f"{unusable} has no {_missing(unusable)[0]}: OpenMP by GCC 9, LLVM 14 or later is needed")
    raise MachineError(f"runtime = {runtime!r}: this node does not have it; it has {found}")


def describe(name: str, path: Path) -> RuntimeFile:
    """A runtime's version and hash, from its file."""
    path = path.resolve()
    content = path.read_bytes()
    return RuntimeFile(name, path, _version(content), hashlib.sha256(content).hexdigest())


def loaded() -> list[Path]:
    """The OpenMP runtimes that are loaded into this process."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    mapped = dict.fromkeys(line[line.index("/") :] for line in lines if "/" in line)
    return [Path(name) for name in mapped if ANY.search(name)]


def _version(content: bytes) -> str:
    """The version that LLVM's and Intel's runtimes name; for GCC's, the newest version of its symbols."""
    named = re.search(rb"@\(#\) ([^\0]*OMP) version: ([\d.]+)", content)
    if named:
        return f"{named[1].decode()} {named[2].decode()}"
    symbols = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"\0GOMP_(\d[\d.]*)\0", content)}
    return "GOMP_" + ".".join(map(str, max(symbols))) if symbols else "unknown"


def _missing(path: Path) -> list[str]:
    """Entry points that a library lacks."""
    content = path.read_bytes()
    return [name for name in ENTRY_POINTS if b"\0" + name.encode() + b"\0" not in content]


def _usable(name: str) -> Iterator[Path]:
    return (path for path in _candidates(name) if not _missing(path))


def _candidates(name: str) -> Iterator[Path]:
    """Files of a runtime for this processor, in the order in which they are tried."""
    for folder in _folders():
        for pattern in FILES[name]:
            yield from (path for path in sorted(folder.glob(pattern)) if path.is_file() and _machine(path) == _own())


def _folders() -> Iterator[Path]:
    """Folders to search: LD_LIBRARY_PATH, this Python environment, the loader's cache, LLVM's folders, wheels."""
    yield from (Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part)
    yield Path(sys.prefix) / "lib"
    yield from _loaders_folders()
    yield from sorted(Path("/usr/lib").glob("llvm-*/lib"), reverse=True)
    packages = Path(sysconfig.get_path("platlib"))
    yield from sorted([*packages.glob("*.libs"), *packages.glob("*/lib"), *packages.glob("*/.libs")])


@functools.cache
def _loaders_folders() -> tuple[Path, ...]:
    """The folders of the dynamic loader's cache; none where there is no such cache, as with musl."""
    try:
        done = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False)
    except OSError:
        return ()
    return tuple(dict.fromkeys(Path(path).parent for path in re.findall(r"=> (/.*)", done.stdout)))


def _machine(path: Path) -> bytes:
    """Word size and processor of an ELF file; nothing for another file."""
    with path.open("rb") as file:
        head = file.read(20)
    return head[4:6] + head[18:20] if head.startswith(b"\x7fELF") else b""


@functools.cache
def _own() -> bytes:
    return _machine(Path("/proc/self/exe"))
