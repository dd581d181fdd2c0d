"""llm.c's file header, with a separate error for each defect."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from gpt2core.spec.errors import BadMagic, BadVersion, TruncatedFile

HEADER_INTS = 256
HEADER_BYTES = HEADER_INTS * 4

Header = NDArray[np.int32]


def new_header(magic: int, version: int, *values: int) -> Header:
    """llm.c's header: 256 little-endian int32, the rest zero."""
    header = np.zeros(HEADER_INTS, dtype="<i4")
    header[: 2 + len(values)] = magic, version, *values
    return header


def read_header(path: str | Path, stream: BinaryIO, magic: int, versions: dict[int, str]) -> Header:
    """llm.c's header. Raises BadMagic, BadVersion (naming those accepted) or TruncatedFile."""
    raw = stream.read(HEADER_BYTES)
    if len(raw) < 4:
        raise TruncatedFile(path, f"{len(raw)} bytes; a header alone has {HEADER_BYTES}")
    found = int(np.frombuffer(raw[:4], dtype="<i4")[0])
    if found != magic:
        raise BadMagic(path, f"begins with {found}, not with {magic}")
    if len(raw) < HEADER_BYTES:
        raise TruncatedFile(path, f"{len(raw)} bytes; a header alone has {HEADER_BYTES}")
    header = np.frombuffer(raw, dtype="<i4")
    if int(header[1]) not in versions:
        known = ", ".join(f"{number} ({what})" for number, what in versions.items())
        raise BadVersion(path, f"version {header[1]} is not supported; supported: {known}")
    return header
