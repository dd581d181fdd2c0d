"""Full disks, and an SQLite file that is moved away, are problems with a type; nothing is stored halfway."""

import hashlib
import resource
from pathlib import Path

import pytest


@pytest.fixture
def small_files():
    """Files of this process, which is the server's, have at most 2 MiB, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def put(api, lease, content):
    query = {"worker_id": "w1", "attempt_no": lease["attempt_no"], "sha256": hashlib.sha256(content).hexdigest()}
    path = f"/api/v1/attempts/{lease['attempt_id']}/artifacts/trace.json.gz"
    return api.http.put(path, params=query, content=content, headers={"Content-Type": "application/gzip"})


@pytest.mark.usefixtures("small_files")
def test_an_artifact_that_finds_no_place_may_be_sent_again(api):
    api.submit()
    lease = api.worker().claim()
    answer = put(api, lease, b"x" * (3 << 20))
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-unavailable")
    assert "artifacts cannot be stored: File too large" in answer.json()["detail"]
    assert not list(api.context.store.root.rglob("tmp*"))
    assert put(api, lease, b"x").status_code == 200


@pytest.mark.parametrize("name", ["report", "scaling"])
def test_an_answer_that_cannot_be_kept(start_server, make_result, tmp_path, name):
    (tmp_path / "file").write_text("a file where the folder should be")
    api = start_server(answer_root=tmp_path / "file" / "answers")
    api.submit()
    node = api.worker()
    node.upload(node.claim(), make_result())
    answer = api.http.get(f"/api/v1/analysis/{name}?experiment_id=1")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-unavailable")
    assert "answers cannot be stored: Not a directory" in answer.json()["detail"]


def test_a_file_that_was_moved_away_is_not_used(api):
    file = Path(api.context.settings.database_url.removeprefix("sqlite:///"))
    api.submit()
    node = api.worker()
    for replaced in (False, True):
        file.rename(file.with_name("moved"))
        if replaced:
            file.write_bytes(b"")
        for answer in (
            api.http.get("/readyz"), api.http.get("/api/v1/runs"), api.http.post("/api/v1/experiments", json={}),
            api.http.post("/api/v1/leases", json={"worker_id": "w1", "boot_id": "boot-1"}),
        ):  # fmt: skip
            assert answer.status_code == 503, answer.text
            assert f"{file} was moved" in answer.json()["detail"]
        file.with_name("moved").replace(file)
    assert api.http.get("/readyz").status_code == 200
    assert node.claim()["run_id"] == 1
