import hashlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = pytest.mark.both_databases

TRACE = b"\x1f\x8b not really gzip, which is nobody's matter" * 50_000


@pytest.fixture
def node(api):
    return api.worker()


@pytest.fixture
def lease(api, node):
    """The lease of an experiment's only run."""
    api.submit()
    return node.claim()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def stored(api):
    """Files in the store, by their paths."""
    root = api.context.store.root
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.name != "lock")


def get(api, lease, name, **headers):
    return api.http.get(f"/api/v1/runs/{lease['run_id']}/artifacts/{name}", headers=headers)


def test_a_file_comes_back_as_it_was_left(api, node, lease):
    receipt = node.leave(lease, "trace.json.gz", TRACE, "application/gzip")
    assert receipt == {
        "attempt_id": lease["attempt_id"], "name": "trace.json.gz", "sha256": sha256(TRACE), "size_bytes": len(TRACE)
    }  # fmt: skip
    answer = get(api, lease, "trace.json.gz")
    assert answer.content == TRACE
    assert answer.headers["content-type"] == "application/gzip"
    assert answer.headers["etag"] == f'"{sha256(TRACE)}"'
    assert answer.headers["content-disposition"] == 'attachment; filename="trace.json.gz"'
    assert answer.headers["attempt-no"] == "1"
    (item,) = api.get(f"/runs/{lease['run_id']}/artifacts")["items"]
    assert (item["name"], item["media_type"], item["size_bytes"]) == ("trace.json.gz", "application/gzip", len(TRACE))
    assert stored(api) == [f"{sha256(TRACE)[:2]}/{sha256(TRACE)}"]


def test_who_has_the_file_is_not_sent_it_again(api, node, lease):
    node.leave(lease, "a.txt", b"one")
    assert get(api, lease, "a.txt", If_None_Match='"nothing"').status_code == 200
    answer = api.http.get(
        f"/api/v1/runs/{lease['run_id']}/artifacts/a.txt", headers={"If-None-Match": f'W/"x", "{sha256(b"one")}"'}
    )
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", f'"{sha256(b"one")}"')


def test_the_same_file_again_is_the_same_answer_and_another_a_conflict(api, node, lease):
    first = node.leave(lease, "a.txt", b"one")
    assert node.leave(lease, "a.txt", b"one") == first
    assert node.leave(lease, "a.txt", b"two", status=409)["sha256"] == sha256(b"one")
    assert node.leave(lease, "a.txt", b"one", "text/csv", status=409)["type"] == "/problems/artifact-conflict"
    assert get(api, lease, "a.txt").content == b"one"


def test_the_same_bytes_are_stored_once(api, node, lease, make_result):
    node.leave(lease, "a.txt", b"same")
    node.leave(lease, "b.csv", b"same", "text/csv")
    node.upload(lease, make_result())
    api.submit()
    node.leave(node.claim(), "c.txt", b"same")
    assert len(stored(api)) == 1
    assert api.sql("SELECT count(*) FROM artifact") == [(3,)]


def test_a_file_may_come_after_the_attempts_end(api, node, lease, make_result):
    node.upload(lease, make_result())
    node.leave(lease, "late.txt", b"late")
    assert get(api, lease, "late.txt").content == b"late"


def test_the_attempt_whose_result_counts_comes_first_then_the_newest(api, node, lease, make_result):
    node.leave(lease, "a.txt", b"first")
    node.leave(lease, "b.txt", b"first")
    api.let_lease_run_out(lease["attempt_id"])
    api.reap()
    second = node.claim()
    node.leave(second, "a.txt", b"second")
    assert get(api, lease, "a.txt").content == b"second"  # the newest
    assert get(api, lease, "b.txt").content == b"first"  # the only one
    node.upload(second, make_result())
    api.sql("UPDATE run SET state = 'queued', finished_at = NULL WHERE id = :id", id=lease["run_id"])
    third = node.claim()
    node.leave(third, "a.txt", b"third")
    assert get(api, lease, "a.txt").content == b"second"  # the one that counts
    items = api.get(f"/runs/{lease['run_id']}/artifacts")["items"]
    assert [(i["name"], i["attempt_no"], i["chosen"]) for i in items] == [
        ("a.txt", 2, True), ("a.txt", 3, False), ("a.txt", 1, False), ("b.txt", 1, True),
    ]  # fmt: skip
    path = f"/api/v1/runs/{lease['run_id']}/artifacts/a.txt?attempt_no="
    assert [api.http.get(path + no).content for no in "123"] == [b"first", b"second", b"third"]
    assert api.http.get(path + "4").status_code == 404


def test_a_token_that_is_not_the_attempts_is_refused(api, node, lease):
    stranger = api.worker("w2")
    assert stranger.leave(lease, "a.txt", b"x", status=409)["type"] == "/problems/wrong-fencing-token"
    assert node.leave(lease, "a.txt", b"x", attempt_no=2, status=409)["worker_id"] == "w1"
    assert node.leave({"attempt_id": 99, "attempt_no": 1}, "a.txt", b"x", status=404)
    assert stored(api) == []


def test_what_is_damaged_on_its_way_leaves_nothing(api, node, lease):
    problem = node.leave(lease, "a.txt", b"x", sha256="0" * 64, status=422)
    assert (problem["type"], problem["sha256"]) == ("/problems/artifact-damaged", sha256(b"x"))
    assert stored(api) == []
    assert api.get(f"/runs/{lease['run_id']}/artifacts")["items"] == []


def test_half_a_file_leaves_nothing(api, node, lease):
    path = f"/api/v1/attempts/{lease['attempt_id']}/artifacts/a.txt?worker_id=w1&attempt_no=1&sha256={'0' * 64}"
    host, port = api.http.base_url.host, api.http.base_url.port
    with socket.create_connection((host, port)) as half:
        half.sendall(f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n".encode() + b"x" * 500)
        half.shutdown(socket.SHUT_WR)
        while half.recv(1000):
            pass
    assert stored(api) == []
    node.leave(lease, "a.txt", b"whole")
    assert get(api, lease, "a.txt").content == b"whole"


def test_only_plain_names_are_taken(api, lease):
    query = f"worker_id=w1&attempt_no=1&sha256={sha256(b'x')}"
    for name in ("..", ".hidden", "a%2Fb", "a%5Cb", "%2e%2e%2fetc", "a%00", "x" * 101, "ä", "a%0A", "-"):
        answer = api.http.put(f"/api/v1/attempts/{lease['attempt_id']}/artifacts/{name}?{query}", content=b"x")
        assert answer.status_code in (404, 405, 422), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    assert api.sql("SELECT count(*) FROM artifact") == [(0,)]


def test_only_declared_kinds_are_taken(api, node, lease):
    problem = node.leave(lease, "page.html", b"<script>", "text/html; charset=utf-8", status=415)
    assert problem["type"] == "/problems/unknown-media-type"
    assert "application/gzip" in problem["accepted"]
    node.leave(lease, "notes.txt", b"x", "Text/Plain; charset=utf-8")
    node.leave(lease, "raw", b"x", None)
    kinds = [item["media_type"] for item in api.get(f"/runs/{lease['run_id']}/artifacts")["items"]]
    assert kinds == ["text/plain", "application/octet-stream"]


def test_files_larger_or_more_than_are_kept_are_refused(start_server):
    api = start_server(max_artifact_bytes=1000, max_artifacts=2, max_body_bytes=500)
    api.submit()
    node = api.worker()
    lease = node.claim()
    node.leave(lease, "a.txt", b"x" * 1000)
    problem = node.leave(lease, "b.txt", b"x" * (32 << 20), status=413)  # far more than any buffer has room for
    assert (problem["type"], problem["max_bytes"]) == ("/problems/artifact-too-large", 1000)
    url = f"/api/v1/attempts/{lease['attempt_id']}/artifacts/b.txt?worker_id=w1&attempt_no=1&sha256={'0' * 64}"
    undeclared = api.http.put(url, content=iter([b"x" * 600, b"x" * 600]))  # no Content-Length
    assert undeclared.status_code == 413
    node.leave(lease, "b.txt", b"")
    assert node.leave(lease, "c.txt", b"", status=422)["type"] == "/problems/too-many-artifacts"
    node.leave(lease, "b.txt", b"")
    assert len(stored(api)) == 2


def test_a_file_that_is_gone_from_the_store_is_not_found(api, node, lease):
    node.leave(lease, "a.txt", b"x")
    api.context.store.path(sha256(b"x")).unlink()
    assert get(api, lease, "a.txt").status_code == 404
    assert api.http.get("/api/v1/runs/99/artifacts").status_code == 404


def test_two_servers_keep_one_file(start_server):
    first, second = start_server(), start_server()
    first.submit()
    node = first.worker()
    lease = node.claim()
    callers = [first, second] * 4
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(type(node)(api, "w1").leave, lease, "a.txt", TRACE) for api in callers]:
            done.result()
    assert get(second, lease, "a.txt").content == TRACE
    assert len(stored(first)) == 1
