"""Pairs of sequences: generated ones, or a folder with two token files, source.bin and target.bin.

Each file is an llm.c token file. Token 0 ends a sequence, token 1 begins a target for the decoder and is in no file,
all others are words. Sequence i of one file belongs to sequence i of the other. In memory both are padded to `seq`
positions with 0; a source's length is without its end, which the encoder does not read, a target's with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.data.sources import SYNTHETIC_STREAM, check_tokens, map_tokens
from gpt2core.node.files import open_regular
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import BEGIN, END, PAIRS, form_of, parts
from gpt2core.spec.errors import ConfigError, CountMismatch, FileError, TokenOutOfRange

SOURCE, TARGET = "source.bin", "target.bin"
SYNTHETIC_PAIRS = 1 << 16  # at most this many are drawn, unless one batch alone needs more
READ_AT_ONCE = 1 << 20
LEAST_POSITIONS = 2
FIRST_WORD = BEGIN + 1


class Pairs(NamedTuple):
    """Padded pairs: sources and targets (P, T) uint16, and their lengths (P, 2) int32."""

    sources: NDArray[np.uint16]
    targets: NDArray[np.uint16]
    lengths: NDArray[np.int32]


class NotEnoughPairs(FileError):
    """The data has fewer pairs than one batch needs."""

    slug = "not-enough-pairs"


class SequenceTooLong(FileError):
    """A sequence does not fit the run's positions."""

    slug = "sequence-too-long"


class BadSequence(FileError):
    """A sequence is empty or does not end."""

    slug = "bad-sequence"


def open_pairs(config: TrainConfig) -> Pairs:
    """The run's pairs, at least a batch of them. Raises what `open_folder` raises, ConfigError, NotEnoughPairs."""
    if config.seq < LEAST_POSITIONS:
        raise ConfigError("seq", config.seq, f"{LEAST_POSITIONS} or more, a word and the end of its sequence")
    form, path = form_of(config.data)
    found: Pairs = form.opener(PAIRS)(config, path)
    if len(found.lengths) < config.batch:
        raise NotEnoughPairs(config.data, f"{len(found.lengths)} pairs; a batch needs {config.batch}")
    for array in found:
        array.flags.writeable = False
    return found


def open_synthetic(config: TrainConfig, _path: str = "") -> Pairs:
    """Draw as many pairs as all steps use, at most SYNTHETIC_PAIRS (65,536), which are then used again.

    A source has half of `seq` to `seq` - 1 words, and its target is the same in reverse. Words are drawn as synthetic
    tokens are: zipf or uniform. A longer run begins with the pairs of a shorter one.
    """
    T = config.seq
    needed = config.batch * config.grad_accum * config.steps
    count = max(config.batch, min(needed, SYNTHETIC_PAIRS))
    rng, of_lengths = (np.random.Generator(np.random.PCG64([config.seed, SYNTHETIC_STREAM, i])) for i in range(2))
    longest = T - 1
    lengths = of_lengths.integers(max(1, T // 2), longest + 1, size=count)
    drawn = draw_words(config, rng, (count, longest))
    sources, targets = (np.full((count, T), END, np.uint16) for _ in range(2))
    for pair, length in enumerate(lengths):
        sources[pair, :length] = drawn[pair, :length]
        targets[pair, :length] = sources[pair, :length][::-1]
    return Pairs(sources, targets, np.stack([lengths, lengths + 1], axis=1).astype(np.int32))


def draw_words(config: TrainConfig, rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.intp]:
    """Words of a table, drawn independently: zipf or uniform."""
    words, first = config.model.vocab - FIRST_WORD, FIRST_WORD
    if config.distribution == "uniform":
        return rng.integers(words, size=shape) + first
    below = np.cumsum(1.0 / np.arange(1, words + 1))
    drawn: NDArray[np.intp] = np.searchsorted(below, rng.random(shape) * below[-1], side="right")
    return np.minimum(drawn, words - 1) + first


def open_folder(config: TrainConfig, path: str) -> Pairs:
    """The pairs of a folder.

    Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile, CountMismatch, NotEnoughTokens, TokenOutOfRange,
    BadSequence, SequenceTooLong.
    """
    sides = []
    for name in (SOURCE, TARGET):
        file, tokens = open_tokens_of(config, path, name)
        begins = np.flatnonzero(tokens == BEGIN)
        if len(begins):
            raise TokenOutOfRange(file, f"token {BEGIN} at index {begins[0]}; only the decoder begins with it")
        sides.append((file, tokens, ends_of(file, tokens)))
    (first, _, ends), (second, _, others) = sides
    if len(ends) != len(others):
        raise CountMismatch(second, f"{len(others)} sequences; {first} has {len(ends)}")
    longest = (config.seq, config.seq - 1, f"seq {config.seq}")
    (sources, of_sources), (targets, of_targets) = (pad(*side, *longest) for side in sides)
    return Pairs(sources, targets, np.stack([of_sources, of_targets + 1], axis=1).astype(np.int32))


def open_tokens_of(config: TrainConfig, path: str, name: str) -> tuple[Path, NDArray[np.uint16]]:
    """A token file of a folder, and its tokens, which are in the vocabulary."""
    file = Path(path) / name
    tokens = map_tokens(file)
    check_tokens(file, tokens, config.model)
    return file, tokens


def ends_of(file: Path, tokens: NDArray[np.uint16]) -> NDArray[np.intp]:
    """Index of the end of each sequence. Raises BadSequence."""
    if tokens[-1] != END:
        raise BadSequence(file, f"the last token is {tokens[-1]}; expected {END}, which ends a sequence")
    return np.flatnonzero(tokens == END)


def pad(
    file: Path, tokens: NDArray[np.uint16], ends: NDArray[np.intp], T: int, longest: int, limit: str
) -> tuple[NDArray[np.uint16], NDArray[np.intp]]:
    """The sequences, of at most `longest` words, padded to T positions, and their numbers of words. `limit`: what sets
    the limit, with its value. Raises BadSequence, SequenceTooLong."""
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    if not lengths.min():
        raise BadSequence(file, f"sequence {int(np.argmin(lengths))} has no words; expected 1 or more")
    if lengths.max() > longest:
        at = int(np.argmax(lengths > longest))
        raise SequenceTooLong(file, f"sequence {at} has {lengths[at]} words; {limit} leaves room for {longest}")
    padded = np.full((len(ends), T), END, np.uint16)
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        padded[row, :length] = tokens[start : start + length]
    return padded, lengths


def checksums(data: str, names: Sequence[str] = (SOURCE, TARGET)) -> dict[str, str]:
    """SHA-256 of each file of a folder, by default of pairs; none of generated data. Raises UnreadableFile."""
    prefix, path = parts(data)
    return {name: _sha256(Path(path) / name) for name in names} if prefix else {}


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with open_regular(path) as (stream, _):
        while chunk := stream.read(READ_AT_ONCE):
            found.update(chunk)
    return found.hexdigest()
