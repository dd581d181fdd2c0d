"""The dashboard's files as they are sent: read once, named by what is in all of them, compressed once."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from taskloom.analysis.report import tokens

FOLDER = Path(__file__).parents[2] / "ui"
SHELL, TOKENS, VERSION = "index.html", "tokens.css", "%VERSION%"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class File:
    """A file's bytes, plain and as gzip."""

    media_type: str
    plain: bytes

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.plain, mtime=0)

    @cached_property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.plain).hexdigest()}"'


@dataclass(frozen=True)
class Files:
    """version: of all files together; an address that names it always means the same bytes."""

    version: str
    shell: File
    by_path: Mapping[str, File]
    pages: frozenset[str]


def read(folder: Path = FOLDER) -> Files:
    """Files of the dashboard. A page is a module of `pages/`; every page is the same shell, which names the version."""
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in MEDIA_TYPES)
    plain = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    plain[TOKENS] = tokens.stylesheet().encode()
    whole = hashlib.sha256()
    for name, content in sorted(plain.items()):
        whole.update(f"{name} {len(content)}\n".encode() + content)
    version = whole.hexdigest()[:16]
    shell = plain.pop(SHELL).decode().replace(VERSION, version)
    return Files(
        version=version,
        shell=File(MEDIA_TYPES[".html"], shell.encode()),
        by_path={name: File(MEDIA_TYPES[Path(name).suffix], content) for name, content in plain.items()},
        pages=frozenset(path.stem for path in (folder / "pages").glob("*.js")),
    )
