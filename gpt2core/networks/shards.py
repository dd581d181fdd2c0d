"""Tensors in safetensors files, as Hugging Face's libraries lay them out: one file, several files with an index, or the
folder that contains them.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from gpt2core.networks import halves
from gpt2core.node.files import open_regular
from gpt2core.spec.errors import BadMagic, BadVersion, CountMismatch, ShapeMismatch, TruncatedFile

ONE_FILE, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # those that are read
LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000  # the format's own limit
CONVERTED_AT_ONCE = 1 << 20
ZIP, PICKLE = b"PK\x03\x04", b"\x80"
PICKLES = (b"\x02", b"\x03", b"\x04", b"\x05")  # protocols
CONVERT = (
    "is a pickle of PyTorch, which is not read, since it may contain any code; convert its folder: "
    "python -c \"from transformers import GPT2LMHeadModel as M; M.from_pretrained('FOLDER').save_pretrained('NEW')\", "
    "and name the folder NEW"
)


@dataclass(frozen=True)
class Stored:
    """A tensor in a file. dtype: the format's name, such as BF16."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int  # in bytes

    def values(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """The values as float32, to which they are widened exactly: the index of a part's first row, and the part."""
        stored = np.memmap(self.file, DTYPES[self.dtype], "r", self.offset, self.shape)
        rows = max(1, CONVERTED_AT_ONCE // max(1, math.prod(self.shape[1:])))
        for first in range(0, self.shape[0], rows):
            part = stored[first : first + rows]
            if self.dtype == "BF16":  # the upper half of the float32 of the same value
                yield first, (part.astype(np.uint32) << np.uint32(16)).view(np.float32)
            else:
                yield first, part.astype(np.float32, copy=False)

    def copy_to(self, out: NDArray[Any]) -> None:
        """Fill `out`, which has this shape, float32 or bfloat16."""
        for first, part in self.values():
            halves.fill(out[first : first + len(part)], part)

    def same_values(self, other: Stored) -> bool:
        """Whether another tensor of this shape has the same values."""
        if other.dtype not in DTYPES or self.dtype not in DTYPES:
            return False
        parts = zip(self.values(), other.values(), strict=True)
        return all(np.array_equal(mine, its, equal_nan=True) for (_, mine), (_, its) in parts)


@dataclass(frozen=True)
class Tensors:
    """The tensors of a model by name, in one or several files, with the first file's metadata."""

    path: Path  # of the file, the index or the folder
    folder: Path
    stored: Mapping[str, Stored]
    metadata: Mapping[str, str]


def is_safetensors(path: str | Path) -> bool:
    """Whether it is a folder, or by its content or its name a safetensors file or its index. Raises BadMagic for a
    pickle, UnreadableFile.
    """
    if Path(path).is_dir():
        return True
    with open_regular(path) as (stream, _):
        start = stream.read(LENGTH_BYTES + 1)
    if start[LENGTH_BYTES:] == b"{" or start[:1] == b"{":
        return True
    if start.startswith(ZIP) or (start.startswith(PICKLE) and start[1:2] in PICKLES):
        raise BadMagic(path, CONVERT)
    return Path(path).suffix in (".safetensors", ".json")


def read_tensors(path: str | Path) -> Tensors:
    """Names, shapes and places of all tensors, from the headers alone.

    Raises UnreadableFile, BadMagic, TruncatedFile, CountMismatch, ShapeMismatch for a name that no file contains.
    """
    path = Path(path)
    file = _in_folder(path) if path.is_dir() else path
    if not _is_json(file):
        metadata, stored = _header(file)
        return Tensors(path, file.parent, stored, metadata)
    found: dict[str, Stored] = {}
    about: dict[str, str] = {}
    placed = _weight_map(file)
    for name in dict.fromkeys(placed.values()):
        metadata, stored = _header(file.with_name(name))
        about = about or dict(metadata)
        found |= {tensor: each for tensor, each in stored.items() if placed.get(tensor) == name}
    missing = next((tensor for tensor in placed if tensor not in found), None)
    if missing is not None:
        raise ShapeMismatch(file, f"places {missing} in {placed[missing]}, which has no such tensor")
    return Tensors(path, file.parent, found, about)


def check_tensors(
    path: str | Path, stored: Mapping[str, Stored], expected: Mapping[str, tuple[int, ...]], what: str
) -> None:
    """Raise ShapeMismatch or BadVersion for the first tensor that is missing, has another shape or dtype, or is
    superfluous."""
    for name, shape in expected.items():
        if name not in stored:
            raise ShapeMismatch(path, f"has no tensor {name}; {what} needs one of shape {shape}")
        if stored[name].shape != shape:
            raise ShapeMismatch(path, f"{name} has shape {stored[name].shape} in the file; {what} needs {shape}")
        if stored[name].dtype not in DTYPES:
            raise BadVersion(path, f"{name} is {stored[name].dtype}; supported: " + ", ".join(DTYPES))
    for name in sorted(stored):
        if name not in expected:
            raise ShapeMismatch(path, f"has tensor {name}, which {what} does not have")


def few(names: Set[str]) -> str:
    """The first names of a file."""
    return ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "") if names else "no tensors"


def _in_folder(folder: Path) -> Path:
    """The one file, or else the index, of a folder."""
    for name in (ONE_FILE, INDEX):
        if (folder / name).exists():
            return folder / name
    pickle = next(folder.glob("*.bin"), None)
    if pickle is not None:
        is_safetensors(pickle)  # raises for a pickle
    raise BadMagic(folder, f"contains neither {ONE_FILE} nor {INDEX}")


def _is_json(file: Path) -> bool:
    with open_regular(file) as (stream, _):
        start = stream.read(LENGTH_BYTES + 1)
    return start[:1] == b"{" and start[LENGTH_BYTES:] != b"{"


def _weight_map(file: Path) -> dict[str, str]:
    """The file of each tensor, from an index. Its files are beside it."""
    try:
        placed = json.loads(file.read_text(encoding="utf-8-sig"))["weight_map"]
        names = {str(tensor): str(name) for tensor, name in placed.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadMagic(file, f"is no index of safetensors files ({INDEX}): it has no weight_map") from error
    other = next((name for name in names.values() if "/" in name or "\0" in name or name in ("", ".", "..")), None)
    if other is not None:
        raise BadMagic(file, f"places a tensor in {other!r}; accepted: a file beside the index")
    return names


def _header(file: Path) -> tuple[Mapping[str, str], dict[str, Stored]]:
    """The metadata and the tensors of one file, whose header and size were checked."""
    with opened(file) as checked:
        metadata = checked.metadata() or {}
    with open_regular(file) as (stream, _):
        header_bytes = int.from_bytes(stream.read(LENGTH_BYTES), "little")
        entries = json.loads(stream.read(header_bytes))
    start = LENGTH_BYTES + header_bytes
    return metadata, {
        name: Stored(file, entry["dtype"], tuple(entry["shape"]), start + entry["data_offsets"][0])
        for name, entry in entries.items()
        if name != "__metadata__"
    }


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """Open the safetensors file. The library has one error for all faults; the header tells them apart."""
    with open_regular(path) as (stream, size_bytes):
        try:
            with safe_open(path, framework="numpy") as file:
                yield file
        except SafetensorError as error:
            raw = stream.read(LENGTH_BYTES + 1)
            header_bytes = int.from_bytes(raw[:LENGTH_BYTES], "little")
            if len(raw) > LENGTH_BYTES and (raw[-1:] != b"{" or header_bytes > MOST_HEADER_BYTES):
                raise BadMagic(path, "does not begin with a safetensors header") from error
            if size_bytes < LENGTH_BYTES + header_bytes:
                raise TruncatedFile(path, f"{size_bytes} bytes; fewer than its header needs") from error
            stream.seek(LENGTH_BYTES)
            expected_bytes = _described_bytes(stream.read(header_bytes))
            if expected_bytes is None:
                raise BadMagic(path, f"has no safetensors header: {error}") from error
            expected_bytes += LENGTH_BYTES + header_bytes
            if size_bytes < expected_bytes:
                raise TruncatedFile(path, f"{size_bytes} bytes; its header's tensors need {expected_bytes}") from error
            raise CountMismatch(path, f"{size_bytes} bytes, {expected_bytes} by its header: {error}") from error


def _described_bytes(header: bytes) -> int | None:
    """The end of the last tensor according to the header, or None for an invalid header."""
    try:
        entries = json.loads(header)
        return max(int(entry["data_offsets"][1]) for name, entry in entries.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return None


def read_config(folder: Path) -> dict[str, Any] | None:
    """The folder's config.json, or None if there is none. Raises BadMagic, UnreadableFile."""
    file = folder / CONFIG
    if not file.exists():
        return None
    with open_regular(file) as (stream, _):
        raw = stream.read()
    try:
        found = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise BadMagic(file, f"is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadMagic(file, "is no JSON object")
    return found

