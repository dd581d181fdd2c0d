"""Tokens: their sources, and every defect of a token file."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpt2core.data import sources as data
from gpt2core.data.sources import NotEnoughTokens, open_tokens, stdlib_tokens, write_tokens
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import (
    BadMagic,
    BadVersion,
    ConfigError,
    CountMismatch,
    TokenOutOfRange,
    TruncatedFile,
    UnreadableFile,
)

SMALL = {"layers": 1, "heads": 1, "channels": 8, "vocab": 50, "context": 16}


def config(**settings: Any) -> TrainConfig:
    return TrainConfig(**{"model": SMALL, "batch": 2, "seq": 8, "steps": 3, "data": "synthetic", **settings})


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.bin"
    write_tokens(path, np.arange(100) % 50)
    return path


def patch_header(path: Path, index: int, value: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[4 * index : 4 * index + 4] = value.to_bytes(4, "little", signed=True)
    path.write_bytes(raw)


@pytest.mark.parametrize("distribution", ["zipf", "uniform"])
def test_synthetic_tokens_follow_the_seed_alone(distribution: str) -> None:
    tokens = open_tokens(config(distribution=distribution, steps=100, seed=7))
    assert tokens.dtype == np.uint16
    assert tokens.shape == (2 * 8 * 100 + 1,)
    assert tokens.max() < 50
    assert not tokens.flags.writeable
    np.testing.assert_array_equal(tokens, open_tokens(config(distribution=distribution, steps=100, seed=7)))
    fewer = open_tokens(config(distribution=distribution, steps=4, seed=7))
    np.testing.assert_array_equal(tokens[: len(fewer)], fewer)
    assert not np.array_equal(tokens, open_tokens(config(distribution=distribution, steps=100, seed=8)))


def test_synthetic_tokens_have_the_chosen_distribution() -> None:
    counts = {
        name: np.bincount(open_tokens(config(distribution=name, steps=5000)), minlength=50) / (2 * 8 * 5000 + 1)
        for name in ("zipf", "uniform")
    }
    expected = 1 / np.arange(1, 51)
    np.testing.assert_allclose(counts["zipf"], expected / expected.sum(), atol=0.005)
    np.testing.assert_allclose(counts["uniform"], np.full(50, 1 / 50), atol=0.005)


def test_synthetic_tokens_are_bounded_but_fill_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "SYNTHETIC_TOKENS", 40)
    assert len(open_tokens(config(steps=1000))) == 40
    assert len(open_tokens(config(batch=20, steps=1000))) == 20 * 8 + 1


def test_every_token_of_the_largest_vocabulary_is_drawn_in_range() -> None:
    tokens = open_tokens(config(model={**SMALL, "vocab": 65536}, distribution="uniform", steps=20000))
    assert tokens.max() > 65000


def test_stdlib_tokens_are_the_bytes_of_its_sources() -> None:
    first = sorted(Path(os.__file__).parent.glob("*.py"))[0]
    head = np.frombuffer(first.read_bytes(), dtype=np.uint8)
    tokens = open_tokens(config(model={**SMALL, "vocab": 256}, data="stdlib", steps=data.STDLIB_TOKENS))
    np.testing.assert_array_equal(tokens[: len(head)], head)
    assert len(tokens) == data.STDLIB_TOKENS
    assert not tokens.flags.writeable
    assert bytes(tokens.astype(np.uint8)).decode(errors="replace").count("import ") > 1000
    np.testing.assert_array_equal(stdlib_tokens(1000), tokens[:1000])


def test_the_standard_library_s_files_are_in_the_order_of_their_paths(tmp_path: Path) -> None:
    paths = ["a.py", "a/b.py", "a/b/c.py", "a-b.py", "ab/c.py", "test/x.py", "b/tests/x.py", "b/other.txt", "b/z.py"]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    wanted = sorted(path for path in paths if path.endswith(".py") and "test" not in path)
    assert [path.relative_to(tmp_path).as_posix() for path in data._sources(tmp_path)] == wanted


def test_a_standard_library_without_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for root, reason in ((tmp_path, "found no .py file"), (tmp_path / "missing", "No such file")):
        monkeypatch.setattr(sysconfig, "get_path", lambda _, root=root: str(root))
        with pytest.raises(UnreadableFile, match=reason):
            stdlib_tokens(10)


def test_no_more_of_the_standard_library_is_read_than_the_steps_use(monkeypatch: pytest.MonkeyPatch) -> None:
    found, read = data._sources(Path(os.__file__).parent), []
    monkeypatch.setattr(data, "_sources", lambda _: (read.append(path) or path for path in found))
    used = config(model={**SMALL, "vocab": 256}, data="stdlib", batch=2, seq=8, grad_accum=3, steps=5)
    tokens = open_tokens(used)
    assert len(tokens) == 2 * 8 * 3 * 5 + 1
    assert len(read) == 1
    monkeypatch.undo()
    np.testing.assert_array_equal(tokens, stdlib_tokens()[: len(tokens)])


def test_stdlib_needs_a_byte_sized_vocabulary() -> None:
    with pytest.raises(ConfigError, match="256") as caught:
        open_tokens(config(data="stdlib"))
    assert caught.value.field == "data"


def test_a_token_file_reads_as_written(token_file: Path) -> None:
    tokens = open_tokens(config(data=str(token_file)))
    np.testing.assert_array_equal(tokens, np.arange(100) % 50)
    assert isinstance(tokens, np.memmap)
    assert not tokens.flags.writeable
    header = np.frombuffer(token_file.read_bytes()[:1024], dtype="<i4")
    assert header[:3].tolist() == [20240520, 1, 100]
    assert not header[3:].any()
    assert [entry.name for entry in token_file.parent.iterdir()] == [token_file.name]


@settings(deadline=None, max_examples=50)  # it waits for the disk
@given(arrays(np.uint16, st.integers(1, 300)))
def test_any_tokens_round_trip(tmp_path_factory: pytest.TempPathFactory, tokens: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("tokens") / "tokens.bin"
    write_tokens(path, tokens)
    np.testing.assert_array_equal(data.map_tokens(path), tokens)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="No such file"):
        open_tokens(config(data=str(tmp_path / "none.bin")))


def test_a_folder_is_no_token_file(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="not a regular file"):
        open_tokens(config(data=str(tmp_path)))


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFile, match="not a regular file"):
        open_tokens(config(data=str(tmp_path / "pipe")))


def test_wrong_magic(token_file: Path) -> None:
    patch_header(token_file, 0, 20240326)
    with pytest.raises(BadMagic, match=r"20240326.*20240520"):
        open_tokens(config(data=str(token_file)))


def test_a_short_text_file_has_the_wrong_magic_rather_than_being_truncated(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("some text")
    with pytest.raises(BadMagic):
        open_tokens(config(data=str(tmp_path / "notes.txt")))


def test_wrong_version(token_file: Path) -> None:
    patch_header(token_file, 1, 7)
    with pytest.raises(BadVersion, match=r"version 7.*1"):
        open_tokens(config(data=str(token_file)))


@pytest.mark.parametrize("size_bytes", [0, 3, 500, 1023])
def test_truncated_in_the_header(token_file: Path, size_bytes: int) -> None:
    token_file.write_bytes(token_file.read_bytes()[:size_bytes])
    with pytest.raises(TruncatedFile, match="1024"):
        open_tokens(config(data=str(token_file)))


def test_truncated_in_the_tokens(token_file: Path) -> None:
    token_file.write_bytes(token_file.read_bytes()[:-1])
    with pytest.raises(TruncatedFile, match=r"1223 bytes.*100 tokens need 1224"):
        open_tokens(config(data=str(token_file)))


@pytest.mark.parametrize("count", [99, -1])
def test_a_count_that_disagrees_with_the_size(token_file: Path, count: int) -> None:
    patch_header(token_file, 2, count)
    with pytest.raises(CountMismatch, match=f"{count} tokens"):
        open_tokens(config(data=str(token_file)))


def test_a_token_outside_the_vocabulary_is_named(token_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "CHECKED_AT_ONCE", 16)
    tokens = np.arange(100) % 50
    tokens[[70, 71, 99]] = 50, 60, 999
    write_tokens(token_file, tokens)
    with pytest.raises(TokenOutOfRange, match=r"token 50 at index 70; .* has 50"):
        open_tokens(config(data=str(token_file)))
    tokens[[70, 71]] = 49
    write_tokens(token_file, tokens)
    with pytest.raises(TokenOutOfRange, match="token 999 at index 99"):
        open_tokens(config(data=str(token_file)))


def test_a_batch_needs_one_token_more_than_it_has(token_file: Path) -> None:
    write_tokens(token_file, np.zeros(16, dtype=np.uint16))
    with pytest.raises(NotEnoughTokens, match="16 tokens; a batch of 2 x 8 needs 17"):
        open_tokens(config(data=str(token_file)))
    write_tokens(token_file, np.zeros(17, dtype=np.uint16))
    assert len(open_tokens(config(data=str(token_file)))) == 17
    write_tokens(token_file, np.zeros(0, dtype=np.uint16))
    with pytest.raises(NotEnoughTokens):
        open_tokens(config(data=str(token_file)))


@pytest.mark.parametrize(
    "tokens",
    [np.array([[1]]), np.array([1.0]), np.array([-1]), np.array([65536])],
    ids=["two dimensions", "not integers", "below", "above"],
)
def test_what_is_no_token_is_not_written(tmp_path: Path, tokens: np.ndarray) -> None:
    with pytest.raises(ValueError, match="tokens"):
        write_tokens(tmp_path / "tokens.bin", tokens)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="No such file"):
        write_tokens(tmp_path / "none" / "tokens.bin", np.arange(3))
