"""Files of keys: only their owner can read them."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

from gpt2core.spec.errors import FileError
from gpt2core.spec.settings import expanded
from taskloom.contract import edited
from taskloom.contract.keys import TOKEN_ACCEPTED, is_token

TOKEN, TOKEN_FILE = "TASKLOOM_TOKEN", "TASKLOOM_TOKEN_FILE"


def token(environment: Mapping[str, str], file: Path | None = None) -> str | None:
    """The key in TASKLOOM_TOKEN, in this file or in TASKLOOM_TOKEN_FILE; None if none of them is set. Raises
    FileError."""
    given = environment.get(TOKEN, "").strip()  # files of variables may have line ends of Windows
    named = file or environment.get(TOKEN_FILE)
    if given or not named:
        return given or None
    path = expanded(Path(named), f"a whole path, not {named}")
    found = read(path)
    if not is_token(found):
        raise FileError(path, f"not a file of a key: it must hold {TOKEN_ACCEPTED}")
    return found


def read(path: Path) -> str:
    """The secret in a file, alone or as `token` in the JSON of `keys create --json`. Raises FileError, also if another
    user can read the file."""
    try:
        with edited.open_text(path) as file:
            status = os.fstat(file.fileno())
            # Of another owner's file, such as root's for a service, only the others' permission can be judged.
            mine = status.st_uid == os.geteuid()
            if stat.S_ISREG(status.st_mode) and status.st_mode & (0o077 if mine else 0o007):
                mode = stat.S_IMODE(status.st_mode)
                raise FileError(path, f"other users can read this key (mode {mode:04o}): chmod 600 {path}")
            text = file.read(edited.MOST_CHARS).strip()
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise FileError(path, "not a file of a key: it is not text") from error
    if text.startswith("{"):
        try:
            tokens = [value for name, value in json.loads(text, object_pairs_hook=list) if name == "token"]
        except (ValueError, RecursionError) as error:
            raise FileError(path, "not a file of a key: JSON without `token`") from error
        if len(tokens) != 1:
            raise FileError(path, f"not a file of a key: JSON {'with two' if tokens else 'without'} `token`")
        text = tokens[0]
    if not isinstance(text, str) or not text:
        raise FileError(path, "not a file of a key: it holds no token")
    if not text.isascii() or not text.isprintable() or " " in text:  # two keys, a comment, or an editor's mark within
        raise FileError(path, "not a file of a key: it must hold one alone, in printable ASCII characters")
    return text


@contextlib.contextmanager
def new(path: Path) -> Iterator[TextIO]:
    """A new file that only its owner can read; it is removed again if the block fails. Raises FileError, also if the
    file exists, before anything is created."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise FileError(path, "exists; a key's file is never overwritten") from error
    except OSError as error:
        raise FileError(path, error.strerror or str(error)) from error
    with contextlib.suppress(OSError):  # a umask may keep its owner out; some file systems have no modes
        os.fchmod(descriptor, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
