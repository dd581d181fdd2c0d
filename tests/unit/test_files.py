"""A file that is being replaced is complete at every moment."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from gpt2core.node.files import replacing
from gpt2core.spec import files
from gpt2core.spec.errors import UnreadableFile
from taskloom.server.artifact_store import Store


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_the_new_file_takes_the_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_text("old")
    with replacing(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file.bin"]


@pytest.mark.parametrize(("raised", "seen"), [(OSError(28, "No space left"), UnreadableFile), (KeyError(), KeyError)])
def test_an_exception_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, raised: Exception, seen: type[Exception]
) -> None:
    path = tmp_path / "file.bin"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path) as part:
            part.write_text("half")
            raise raised

    with pytest.raises(seen):
        write_half()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file.bin"]


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file.bin").mkdir()
    with pytest.raises(UnreadableFile, match="neither a file, a pipe nor a device"), replacing(tmp_path / "file.bin"):
        pass
    assert names(tmp_path) == ["file.bin"]


def test_a_pipe_gets_what_is_complete_and_nothing_of_what_failed(tmp_path: Path) -> None:
    """As `-o /dev/stdout` in a pipeline, or `-o >(program)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    files.check(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def write_half() -> None:
        with replacing(pipe) as part:
            part.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        write_half()
    assert os.read(reader, 100) == b""
    with replacing(pipe) as part:
        part.write_text("new")
    assert os.read(reader, 100) == b"new"
    os.close(reader)
    assert names(tmp_path) == ["pipe"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link.bin").symlink_to(tmp_path / "kept" / "file.bin")
    with replacing(tmp_path / "link.bin") as part:
        part.write_text("new")
    assert (tmp_path / "link.bin").is_symlink()
    assert (tmp_path / "kept" / "file.bin").read_text() == "new"
    assert names(tmp_path / "kept") == ["file.bin"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_syncs_no_folders_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    synced = os.fsync

    def refuse_folders(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(number, os.strerror(number))
        synced(fd)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    files.write_text(tmp_path / "a", "kept")
    assert (tmp_path / "a").read_text() == "kept"
    store = Store(tmp_path / "store")
    with store.incoming() as incoming:
        incoming.write(b"kept")
        with store.keeping(incoming):
            pass
    assert store.path(incoming.sha256).read_bytes() == b"kept"


def test_a_disk_that_fails_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        files.sync(tmp_path)


def test_where_modes_cannot_be_set_files_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, _: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(self))

    monkeypatch.setattr(Path, "chmod", refused)
    files.write_text(tmp_path / "a", "kept")
    assert (tmp_path / "a").read_text() == "kept"


def test_a_file_that_cannot_be_synced_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(OSError, match="cannot be synced to the disk") as raised:
        files.write_text(tmp_path / "a", "kept")
    assert str(tmp_path) in str(raised.value.filename)


def test_what_cannot_be_replaced_is_known_before_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    for name in ("file", "new"):
        files.check(tmp_path / name)
    for unusable in (".", "missing/a", "file/a", 300 * "x"):
        with pytest.raises(OSError, match=r"neither a file|No such|Not a directory|too long"):
            files.check(tmp_path / unusable)
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "old"
