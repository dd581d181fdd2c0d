from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskloom.contract.attempts import ResultUpload
from taskloom.worker.spool import Entry, Spool, SpoolTaken, stranded


def entry(attempt_id: int, payload: str = "{}") -> Entry:
    upload = ResultUpload(worker_id="n:0", attempt_no=1, outcome="failed", sha256="0" * 64, payload=payload)
    return Entry(attempt_id, upload)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "spool")
    yield made
    made.close()


def test_what_is_put_waits_in_order_of_attempts_until_it_is_removed(spool: Spool) -> None:
    for attempt_id in (10, 9, 100):
        spool.put(entry(attempt_id))
    assert [each.attempt_id for each in spool.entries()] == [9, 10, 100]
    spool.remove(10)
    spool.remove(10)
    assert [each.attempt_id for each in spool.entries()] == [9, 100]


def test_a_folder_is_reached_from_elsewhere_however_the_spool_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer reaches its artifacts through a link in another folder."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    relative = Spool(Path("spool"))
    folder = relative.new_folder(3)
    monkeypatch.chdir(tmp_path / "elsewhere")
    (folder / "artifacts" / "profile").write_text("left")
    assert [path.name for path in relative.artifacts(3)] == ["profile"]
    relative.close()


def test_an_entry_comes_back_as_it_was_put(spool: Spool) -> None:
    put = entry(3, payload='{"result": null, "error": {"detail": "\\u00e4\\n"}}')
    spool.put(put)
    assert list(spool.entries()) == [put]


def test_half_an_entry_is_set_aside_and_the_others_come_through(spool: Spool) -> None:
    spool.put(entry(1))
    whole = (spool.folder / "1.json").read_text()
    (spool.folder / "2.json").write_text(whole[: len(whole) // 2])
    (spool.folder / "3.json").write_text('{"attempt_id": 3}')
    spool.put(entry(4))
    assert [each.attempt_id for each in spool.entries()] == [1, 4]
    assert sorted(path.name for path in (spool.folder / "refused").iterdir()) == ["2.json", "3.json"]


def test_a_full_disk_leaves_neither_half_an_entry_nor_rubbish(spool: Spool) -> None:
    spool.put(entry(1, payload="first"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError):
            spool.put(entry(1, payload="x" * 5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each.upload.payload for each in spool.entries()] == ["first"]
    assert sorted(path.name for path in spool.folder.iterdir()) == ["1.json", "id", "lock"]


def test_a_spool_has_one_owner(spool: Spool) -> None:
    with pytest.raises(SpoolTaken):
        Spool(spool.folder)
    spool.close()
    Spool(spool.folder).close()


def test_spools_of_others_are_taken_up_only_where_something_waits_and_nobody_works(tmp_path: Path) -> None:
    mine, empty, busy, left = (Spool(tmp_path / name) for name in ("mine", "empty", "busy", "left"))
    (tmp_path / "no-spool").mkdir()
    for spool in (mine, busy, left):
        spool.put(entry(1))
    empty.close()
    left.close()
    assert [spool.folder.name for spool in stranded(mine.folder, "n:")] == ["left"]
    Spool(tmp_path / "left").close()  # it is free again
    mine.close()
    busy.close()


def test_attempts_that_killed_workers_of_this_node_left_without_a_result_are_deleted(tmp_path: Path) -> None:
    names = ("n:0", "n:1", "n:2", "n2:0")
    spools = mine, dead, busy, elsewhere = [Spool(tmp_path / name) for name in names]
    for spool in spools:
        (spool.new_folder(3) / "artifacts" / "trace.json.gz").touch()
        (spool.new_folder(4) / "artifacts" / "trace.json.gz").touch()
        spool.put(entry(4))
        (spool.new_folder(5) / "artifacts" / "trace.json.gz").touch()
    dead.close()
    elsewhere.close()
    assert [spool.folder.name for spool in stranded(mine.folder, "n:")] == ["n2:0", "n:1"]
    left = {spool.folder.name: sorted(path.name for path in spool.folder.glob("attempt-*")) for spool in spools}
    assert left == {name: ["attempt-4"] if name == "n:1" else ["attempt-4", "attempt-5"] for name in names}
    (dead.folder / "4.json").unlink()
    assert [spool.folder.name for spool in stranded(mine.folder, "n:")] == ["n2:0"]
    assert not list(dead.folder.glob("attempt-*"))
    mine.close()
    busy.close()


def test_what_a_killed_worker_had_not_finished_writing_goes(spool: Spool) -> None:
    """The state after SIGKILL: the new file exists, but its entry does not."""
    spool.put(entry(1))
    (spool.folder / ".2.json.0123456789ab.part").write_text('{"attempt_id": 2, "upl')
    spool.close()
    again = Spool(spool.folder)
    assert sorted(path.name for path in again.folder.iterdir()) == ["1.json", "id", "lock"]
    again.close()


def test_what_was_refused_is_taken_back_with_its_artifacts(spool: Spool) -> None:
    spool.put(entry(7))
    left = spool.new_folder(7) / "artifacts" / "profile.json.gz"
    left.write_bytes(b"profile")
    spool.set_artifact_aside(7, left)
    spool.set_aside(7)
    (spool.folder / "refused" / "notes").write_text("people's own")
    assert (list(spool.entries()), spool.artifacts(7)) == ([], [])
    assert spool.take_back() == 2
    assert list(spool.entries()) == [entry(7)]
    assert [path.read_bytes() for path in spool.artifacts(7)] == [b"profile"]
    assert [path.name for path in (spool.folder / "refused").iterdir()] == ["notes"]


def test_what_waits_is_not_replaced_by_what_was_refused(spool: Spool) -> None:
    spool.put(entry(7, payload="refused"))
    spool.set_aside(7)
    spool.put(entry(7, payload="waits"))
    assert spool.take_back() == 0
    assert [each.upload.payload for each in spool.entries()] == ["waits"]
    assert [path.name for path in spool.refused()] == ["7.json"]


def test_a_spool_is_known_again_wherever_it_is_and_no_other_is_taken_for_it(tmp_path: Path) -> None:
    first = Spool(tmp_path / "first")
    other = Spool(tmp_path / "other")
    assert first.id != other.id
    first.close()
    other.close()
    (tmp_path / "first").rename(tmp_path / "moved")
    moved = Spool(tmp_path / "moved")
    assert moved.id == first.id
    moved.close()
