"""Servers of tests, in this process."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.caller import Caller
from tests.support.servers import StartServer, server_on_copy, servers_on
from tests.support.signing_on import ada, issuer, issuer_key, signing, site  # noqa: F401 (fixtures)


@pytest.fixture(scope="module")
def file_api(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A server shared by tests of one file that read what a fixture of the file stored."""
    with server_on_copy(migrated, tmp_path_factory.mktemp("file")) as api:
        yield api


@pytest.fixture
def start_server(database_url: str, tmp_path: Path) -> Iterator[StartServer]:
    """Start a server with these settings. Two on one database are two replicas."""
    with servers_on(database_url, tmp_path / "artifacts") as start:
        yield start


@pytest.fixture
def api(start_server: StartServer) -> Caller:
    return start_server()


@pytest.fixture(scope="session")
def shared_api(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """The server of `empty_api`."""
    with server_on_copy(migrated, tmp_path_factory.mktemp("shared")) as api:
        yield api


@pytest.fixture
def empty_api(shared_api: Caller) -> Iterator[Caller]:
    """A server shared by tests that send only rejected requests."""
    yield shared_api
    stored = "SELECT (SELECT count(*) FROM experiment), (SELECT count(*) FROM worker), (SELECT count(*) FROM api_key)"
    assert shared_api.sql(stored) == [(0, 0, 0)], "this test stores something: it takes a server of its own (api)"


@pytest.fixture
def house(api: Caller, make_result: Callable[..., dict[str, Any]]) -> Caller:
    """A server with keys of every kind, a succeeded run, a run leased to w1, and a queued run."""

    def key(scope: str) -> str:
        token: str = api.post("/keys", {"scope": scope}, 201)["token"]
        return token

    tokens: dict[str, str | None] = {"none": None, "unknown": "tlk_99_" + "0" * 64, "admin": key("admin")}
    api.use(tokens["admin"])
    tokens |= {"read": key("read"), "submit": key("submit"), "worker": key("worker"), "other-worker": key("worker")}
    for kind in ("revoked", "expired", "spare"):  # keys 6, 7, 8
        tokens[kind] = key("admin")
    api.post("/keys/6/revoke")
    api.sql("UPDATE api_key SET expires_at = created_at WHERE id = 7")
    api.submit(axes={"seed": [1, 2, 3]}, order="sequential")
    cancelled = api.submit(priority=-1)["id"]
    api.post(f"/experiments/{cancelled}/cancel")
    api.use(tokens["worker"])
    node = api.worker()
    finished = node.claim()
    node.leave(finished, "kept.txt", b"")
    node.upload(finished, make_result())
    node.claim()
    api.use(tokens["other-worker"])
    api.worker("w2")
    api.tokens = tokens
    return api


PEAKS = {"peaks": {"threads": {"1": {"gflop_per_s": 200.0, "triad_gb_per_s": 10.0},
                               "2": {"gflop_per_s": 400.0, "triad_gb_per_s": 12.0}}}}  # fmt: skip
# Two rows of two tasks each: a barrier between the ops costs 2 of 6 s on two cores.
PROFILE = {
    "schema": "taskloom-profile-1", "config": {"sync": "step"}, "environment": {}, "ops": [["fc", "forward"]],
    "tasks": {"op": [0] * 4, "layer": [None] * 4, "label": [""] * 4, "mean_s": [1.0, 3.0, 3.0, 1.0],
              "flop": [10**12] * 4, "bytes": [10**6] * 4},
    "op_first": [0, 2, 4], "nodes": [-1, 0, 1, 2, 3, -1],
    "edges": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 5], [4, 5]], "crossing": [[5, 0]],
}  # fmt: skip


@pytest.fixture
def explained(api: Caller, make_result: Callable[..., dict[str, Any]]) -> int:
    """Both schedulers on one and two threads, one run each, with complete results and profiles."""
    made = api.submit(
        base={"model": "tiny", "token_slice": 64, "batch_slice": 1},
        axes={"scheduler": ["fork-join", "task"], "threads": [1, 2]},
    )
    node = api.worker()
    step_s = {("fork-join", 1): 8.0, ("fork-join", 2): 6.0, ("task", 1): 8.0, ("task", 2): 4.0}
    for _ in range(made["runs"]):
        lease = node.claim()
        spec = lease["spec"]
        threads, s = spec["threads"], step_s[spec["scheduler"], spec["threads"]]
        result = make_result([9, s, s], scheduler=spec["scheduler"], threads=threads, environment=PEAKS)
        split = {"barrier_s": 2 * s - 16 / threads, "starvation_s": 0.0, "scheduling_s": 0.0, "idle_s": 0.0}
        result["threads"] = [{"thread": i, "useful_s": 16 / threads, **split} for i in range(threads)]
        result["graph"] = {"t1_s": 8.0, "tinf_s": 4.0, "fork_join_tinf_s": 6.0}
        result["ops"] = [{"op": "fc", "phase": "forward", "calls": 8, "time_s": 16.0, "flop": 10**12, "bytes": 10**9}]
        result["memory_bytes"] = {"weights": 1, "peak_rss": 10**9}
        result["resident_bytes"] = {"interpreter": 9 * 10**8, "arenas": 5 * 10**7}
        if threads == 1:
            node.leave(lease, "profile.json.gz", gzip.compress(json.dumps(PROFILE).encode()))
        node.upload(lease, result)
    return int(made["id"])
