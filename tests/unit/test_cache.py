"""A file of the node's cache is made by one process at a time, and read only as it was written."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpt2core.node import cache
from gpt2core.spec.errors import MachineError, UnreadableFile
from gpt2core.spec.locks import Taken


def test_other_inputs_are_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path))
    inputs: list[list[Any]] = [["a", "b"], ["ab"], ["a", ["b"]], ["a", "c"]]
    assert len({cache.path("made", each, ".o") for each in inputs}) == len(inputs)
    file = cache.path("made", inputs[0], ".o")
    assert (file.parent, file.suffix) == (tmp_path, ".o")
    assert cache.path("made", inputs[0], ".o", tmp_path / "inner") == tmp_path / "inner" / file.name


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:0], lambda b: b + b"x", lambda b: b"0" + b[1:]])
def test_a_damaged_file_counts_as_missing(tmp_path: Path, damage) -> None:
    file = tmp_path / "inner" / "made.o"
    assert cache.read(file) is None
    cache.write(file, b"z one\ntwo")
    assert cache.read(file) == b"z one\ntwo"
    file.write_bytes(damage(b"z" + file.read_bytes()[1:]))
    assert cache.read(file) is None


def test_a_file_under_another_files_name_counts_as_missing(tmp_path: Path) -> None:
    cache.write(tmp_path / "one.o", b"content")
    (tmp_path / "one.o").rename(tmp_path / "other.o")
    assert cache.read(tmp_path / "other.o") is None


def test_a_missing_or_damaged_file_is_made_by_one_of_those_who_ask(tmp_path: Path) -> None:
    file, made, enter = tmp_path / "inner" / "made.o", list[int](), threading.Barrier(4)

    def make() -> bytes:
        made.append(1)
        return b"content"

    def ask() -> tuple[bytes, bool]:
        enter.wait(60)
        return cache.read_or_make(file, make)

    for times in (1, 2):
        with ThreadPoolExecutor(4) as pool:
            found = [each.result(60) for each in [pool.submit(ask) for _ in range(4)]]
        assert {content for content, _ in found} == {b"content"}
        assert not all(was_there for _, was_there in found)
        assert len(made) == times
        assert cache.read_or_make(file, make) == (b"content", True)
        file.write_bytes(file.read_bytes()[:-1])


def test_json_is_what_was_written(tmp_path: Path) -> None:
    file = tmp_path / "inner" / "table.json"
    assert cache.read_json(file) is None
    cache.write_json(file, {"a": [1, None]})
    assert cache.read_json(file) == {"a": [1, None]}
    file.write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        cache.read_json(file)


def test_a_revised_object_is_stored_if_it_changed_and_nothing_failed(tmp_path: Path) -> None:
    file = tmp_path / "inner" / "table.json"
    with cache.revising(file) as empty:
        assert empty == {}
    assert not file.exists()
    with cache.revising(file) as value:
        value["a"] = 1
        assert (tmp_path / "inner" / "table.lock").exists()
    with pytest.raises(KeyError), cache.revising(file) as value:
        del value["a"], value["b"]
    assert cache.read_json(file) == {"a": 1}


@pytest.mark.parametrize("content", ["{", "[1]", "7"])
def test_what_is_not_an_object_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "table.json"
    file.write_text(content)
    with pytest.raises(MachineError, match="remove it"), cache.revising(file):
        pass


def test_one_holder_at_a_time_also_when_the_lock_is_deleted_meanwhile(tmp_path: Path) -> None:
    """A waiter holds the lock of a deleted file when its turn comes; it must not enter beside a newer holder."""
    file, inside, most, rounds, enter = tmp_path / "table.json", [], [], 200, threading.Barrier(4)

    def make() -> None:
        enter.wait(60)
        for _ in range(rounds):
            with cache.locked(file):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(make) for _ in range(4)]:
            each.result(60)
    assert set(most) == {1}
    assert len(most) == 4 * rounds
    assert list(tmp_path.iterdir()) == []


def test_who_may_not_wait_is_refused(tmp_path: Path) -> None:
    with cache.locked(tmp_path / "peaks"), pytest.raises(Taken), cache.locked(tmp_path / "peaks", wait=False):
        pass
    with cache.locked(tmp_path / "peaks", wait=False):
        assert (tmp_path / "peaks.lock").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for store in (lambda file: cache.write(file, b""), lambda file: cache.locked(file).__enter__()):
        with pytest.raises(UnreadableFile, match="file"):
            store(tmp_path / "file" / "made.o")
