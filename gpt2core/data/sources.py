"""The tokens of a run: synthetic, the standard library's text, or an llm.c token file."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpt2core.data.header import HEADER_BYTES, new_header, read_header
from gpt2core.node.files import open_regular, replacing, unreadable
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import TOKENS, form_of
from gpt2core.spec.errors import (
    ConfigError,
    CountMismatch,
    FileError,
    TokenOutOfRange,
    TruncatedFile,
    UnreadableFile,
)
from gpt2core.spec.networks import Model

MAGIC = 20240520
VERSIONS = {1: "uint16 tokens"}
TOKEN_BYTES = 2

SYNTHETIC_TOKENS = 1 << 22  # at most this many are drawn, unless one batch alone needs more
STDLIB_TOKENS = 1 << 22
STDLIB_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
CHECKED_AT_ONCE = 1 << 20
SYNTHETIC_STREAM = 1  # the seed's second word, so that weights and data of one seed are drawn independently

Tokens = NDArray[np.uint16]


class NotEnoughTokens(FileError):
    """The data has fewer tokens than one batch needs."""

    slug = "not-enough-tokens"


def open_tokens(config: TrainConfig) -> Tokens:
    """The run's tokens, read-only, at least B*T + 1 of them, each below V.

    Raises ConfigError, UnreadableFile, BadMagic, BadVersion, TruncatedFile, CountMismatch, TokenOutOfRange,
    NotEnoughTokens.
    """
    form, path = form_of(config.data)
    tokens: Tokens = form.opener(TOKENS)(config, path)
    needed = config.batch * config.seq + 1
    if len(tokens) < needed:
        raise NotEnoughTokens(
            config.data, f"{len(tokens)} tokens; a batch of {config.batch} x {config.seq} needs {needed}"
        )
    if form.has_path:
        check_tokens(config.data, tokens, config.model)
    tokens.flags.writeable = False
    return tokens


def _count(config: TrainConfig, batch: int, most: int) -> int:
    """As many tokens as all steps use, at most `most`, but enough for one batch."""
    return max(batch + 1, min(config.tokens_per_step * config.steps + 1, most))


def synthetic_tokens(config: TrainConfig, _path: str = "") -> Tokens:
    """Draw tokens independently: enough for all steps, but at most SYNTHETIC_TOKENS (4 Mi), which are then used again.

    zipf: token k with probability proportional to 1 / (k + 1); uniform: all V alike. The seed determines every token.
    """
    V, count = config.model.vocab, _count(config, config.tokens_per_step, SYNTHETIC_TOKENS)
    rng = np.random.Generator(np.random.PCG64([config.seed, SYNTHETIC_STREAM]))
    if config.distribution == "uniform":
        return rng.integers(V, size=count, dtype=np.uint16, endpoint=False)
    below = np.cumsum(1.0 / np.arange(1, V + 1))
    drawn: NDArray[np.intp] = np.searchsorted(below, rng.random(count) * below[-1], side="right")
    return np.minimum(drawn, V - 1).astype(np.uint16)


def open_stdlib(config: TrainConfig, _path: str) -> Tokens:
    """As many of stdlib_tokens as the run uses."""
    if config.model.vocab < 256:
        known = f"stdlib's tokens are bytes and need a vocab of 256 or more, not {config.model.vocab}"
        raise ConfigError("data", config.data, known)
    return stdlib_tokens(_count(config, config.batch * config.seq, STDLIB_TOKENS))


def open_file(_config: TrainConfig, path: str) -> Tokens:
    """The tokens of a llm.c file, which is mapped, not read."""
    return map_tokens(path)


def stdlib_tokens(most: int = STDLIB_TOKENS) -> Tokens:
    """The first `most` (default 4 Mi) UTF-8 bytes of the running Python's own standard library, as tokens 0..255.

    The text is that of all its .py files in the order of their paths, without tests and installed packages. It depends
    on the version of Python.
    """
    root = Path(sysconfig.get_path("stdlib"))
    text = bytearray()
    for path in _sources(root):
        try:
            text += path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from error
        if len(text) >= most:
            break
    if not text:
        raise UnreadableFile(root, "found no .py file of the standard library")
    return np.frombuffer(text, dtype=np.uint8)[:most].astype(np.uint16)


def _sources(folder: Path) -> Iterator[Path]:
    """The .py files in a folder and those below, in the order of their paths. Raises UnreadableFile."""
    try:
        inside = sorted(entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in os.scandir(folder))
    except OSError as error:
        raise unreadable(folder, error) from error
    for name in inside:
        if name.endswith(".py"):
            yield folder / name
        elif name.endswith("/") and name[:-1] not in STDLIB_LEFT_OUT:
            yield from _sources(folder / name)


def map_tokens(path: str | Path) -> Tokens:
    """A llm.c token file's tokens, mapped read-only; only the header is read.

    Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile, CountMismatch, NotEnoughTokens.
    """
    with open_regular(path) as (stream, size_bytes):
        count = int(read_header(path, stream, MAGIC, VERSIONS)[2])
        expected_bytes = HEADER_BYTES + count * TOKEN_BYTES
        if count < 0:
            raise CountMismatch(path, f"the header declares {count} tokens; expected 1 or more")
        if size_bytes < expected_bytes:
            raise TruncatedFile(path, f"{size_bytes} bytes; the header's {count} tokens need {expected_bytes}")
        if size_bytes > expected_bytes:
            raise CountMismatch(path, f"{size_bytes} bytes; the header's {count} tokens fill only {expected_bytes}")
        if count == 0:
            raise NotEnoughTokens(path, "the header declares 0 tokens; expected 1 or more")
        tokens: Tokens = np.memmap(stream, dtype=np.uint16, mode="r", offset=HEADER_BYTES, shape=(count,))
        return tokens


def check_tokens(path: str | Path, tokens: Tokens, model: Model) -> None:
    """Raise TokenOutOfRange, naming the first token of V or above. Reads 2 MiB at a time."""
    for start in range(0, len(tokens), CHECKED_AT_ONCE):
        part = tokens[start : start + CHECKED_AT_ONCE]
        if int(part.max()) >= model.vocab:
            at = int(np.argmax(part >= model.vocab))
            raise TokenOutOfRange(
                path, f"token {int(part[at])} at index {start + at}; the model's vocabulary has {model.vocab}"
            )


def write_tokens(path: str | Path, tokens: NDArray[np.integer]) -> None:
    """Write an llm.c token file, completely or not at all.

    Raises ValueError unless tokens are a one-dimensional array of integers from 0 to 65535, UnreadableFile if the file
    cannot be written.
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or len(tokens) > np.iinfo(np.int32).max:
        raise ValueError("tokens are a one-dimensional array of integers, fewer than 2**31")
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) <= 0xFFFF:
        raise ValueError(f"tokens from {tokens.min()} to {tokens.max()} are not all from 0 to 65535")
    with replacing(path) as part, part.open("wb") as stream:
        stream.write(new_header(MAGIC, 1, len(tokens)).tobytes())
        for start in range(0, len(tokens), CHECKED_AT_ONCE):
            stream.write(tokens[start : start + CHECKED_AT_ONCE].astype("<u2").tobytes())
