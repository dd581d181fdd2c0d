"""Locks where a file system has none: what flock fails with is no other process."""

import contextlib
import errno
import fcntl
import os
import time

import pytest

from gpt2core.spec.locks import Taken, lock
from taskloom.provisioner.jobs import AlreadyRunning, Jobs
from taskloom.server.artifact_store import LEFT_S, Store
from taskloom.server.errors import StoreUnavailable
from taskloom.worker.spool import Spool, SpoolTaken, stranded


@pytest.fixture
def failing(monkeypatch):
    """Let every flock fail with this error."""

    def make(number):
        def flock(*_):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", flock)

    return make


def test_one_of_two_holds_a_lock(tmp_path):
    with (tmp_path / "lock").open("w") as one, (tmp_path / "lock").open("w") as other:
        assert lock(one, wait=False)
        for shared in (False, True):
            with pytest.raises(Taken):
                lock(other, shared, wait=False)


# What file systems without locks, and sandboxes, answer.
WITHOUT = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL, errno.EPERM, errno.ENOTTY, 524)


@pytest.mark.parametrize("number", WITHOUT)
def test_without_locks_everything_goes_on(failing, tmp_path, number):
    failing(number)
    with contextlib.closing(Spool(tmp_path / "spool")) as spool, contextlib.closing(Jobs("a", tmp_path / "b")) as jobs:
        assert not spool.is_locked
        assert not jobs.is_locked
    store = Store(tmp_path / "artifacts")
    store.try_out()
    with store.incoming() as file:
        file.write(b"x")
        with store.keeping(file):
            pass
    # A sweep that cannot be excluded deletes only what nobody is about to record.
    assert store.sweep(list, dry_run=False) == (0, 0)
    old = time.time() - 2 * LEFT_S
    os.utime(store.path(file.sha256), (old, old))
    assert store.sweep(list, dry_run=False) == (1, 1)


def test_without_locks_no_spool_of_another_worker_is_adopted(failing, tmp_path):
    for name in ("n:0", "n:1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").touch()
        (tmp_path / name / "1.json").write_text("{}")
    (tmp_path / "n:1/attempt-7").mkdir()
    assert [spool.folder.name for spool in stranded(tmp_path / "n:0", "n:")] == ["n:1"]
    (tmp_path / "n:1/attempt-7").mkdir()
    failing(errno.ENOSYS)
    assert list(stranded(tmp_path / "n:0", "n:")) == []
    assert (tmp_path / "n:1/attempt-7").exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_disk_error_is_neither_a_missing_lock_nor_a_taken_one(failing, tmp_path, number):
    failing(number)
    for make in (lambda: Spool(tmp_path / "spool"), lambda: Jobs("a", tmp_path / "b"), Store(tmp_path / "c").try_out):
        with pytest.raises((OSError, StoreUnavailable), match=os.strerror(number)):
            make()
    with (tmp_path / "d").open("w") as file, pytest.raises(OSError, match=rf"{tmp_path}/d") as raised:
        lock(file)
    assert raised.value.errno == number


def test_another_process_is_named_as_such(tmp_path):
    with contextlib.closing(Spool(tmp_path / "spool")), contextlib.closing(Jobs("a", tmp_path / "b")):
        with pytest.raises(SpoolTaken):
            Spool(tmp_path / "spool")
        with pytest.raises(AlreadyRunning):
            Jobs("a", tmp_path / "b")
