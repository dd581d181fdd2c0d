"""The dashboard's files as the server sends them. They are read and compressed once; their version is a hash of all."""

from __future__ import annotations

import functools
import gzip
import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from taskloom.analysis.report import tokens
from taskloom.server.read.dashboard import shortened

FOLDER = Path(__file__).parents[2] / "ui"
SHELL, TOKENS, VERSION, MODULES = "index.html", "tokens.css", "%VERSION%", "%MODULES%"
SIGN_IN = "%SIGN_IN%\n"
LINK = '<nav class="offer" aria-label="Session"><a href="../sign-in">Sign in or out</a>&emsp;</nav>\n'
FIRST = "now"
IMPORT = re.compile(rb"""(?:^|;)(?:import|export)\b(?:[^'"();=]*?\bfrom)?'(\.[^']+)'""")
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

    @functools.cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.plain, mtime=0)

    @functools.cached_property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.plain).hexdigest()}"'


@dataclass(frozen=True)
class Files:
    """version: of all files together; a URL that contains it always returns the same bytes. pages: HTML shells by path.
    unknown: the shell of a page that does not exist; it says so, with the navigation.
    """

    version: str
    by_path: Mapping[str, File]
    pages: Mapping[str, File]
    unknown: File

    def loaded(self, page: str) -> list[str]:
        """Modules that a page imports, directly or through others."""
        return imported(self.by_path, ["app.js", f"pages/{page or FIRST}.js"])


@functools.cache
def read(folder: Path = FOLDER, sign_in: bool = False) -> Files:
    """Files of the dashboard. A page is a module of `pages/`. Its HTML shell names the version and all modules of the
    page, so the browser requests them at once instead of import by import. sign_in: whether it links to /sign-in.
    """
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in MEDIA_TYPES)
    plain = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    for name, content in plain.items():
        if name.endswith(".js") and not name.startswith("vendor/"):
            plain[name] = shortened.script(content.decode()).encode()
        if name.endswith(".css"):
            plain[name] = shortened.style(content.decode()).encode()
    plain[TOKENS] = tokens.stylesheet().encode()
    whole = hashlib.sha256()
    for name, content in sorted(plain.items()):
        whole.update(f"{name} {len(content)}\n".encode() + content)
    version = whole.hexdigest()[:16]
    shell = plain.pop(SHELL).decode().replace(SIGN_IN, LINK if sign_in else "")
    by_path = {name: File(MEDIA_TYPES[Path(name).suffix], content) for name, content in plain.items()}

    def page(modules: list[str]) -> File:
        links = (f'<link rel="modulepreload" href="{VERSION}/{name}">' for name in modules)
        filled = shell.replace(MODULES, "\n".join(links)).replace(VERSION, version)
        return File(MEDIA_TYPES[".html"], filled.encode())

    names = ("", *sorted(path.stem for path in (folder / "pages").glob("*.js")))
    pages = {name: page(imported(by_path, ["app.js", f"pages/{name or FIRST}.js"])) for name in names}
    return Files(version, by_path, pages, unknown=page(imported(by_path, ["app.js"])))


def imported(by_path: Mapping[str, File], modules: list[str]) -> list[str]:
    """These modules, and those that they import, directly or through others."""
    found = list(modules)
    for name in found:  # the list grows meanwhile
        folder = posixpath.dirname(name)
        paths = (path.decode() for path in IMPORT.findall(by_path[name].plain))
        imports = (posixpath.normpath(posixpath.join(folder, path)) for path in paths)
        found += [path for path in dict.fromkeys(imports) if path not in found]
    return found
