import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from taskloom.server.neighbours import LISTENER
from tests.support.patience import DEADLINE_S, until

pytestmark = pytest.mark.both_databases


def test_a_claim_gives_the_whole_spec_and_its_times(api):
    api.submit(base={"batch": 2, "threads": 2}, limits={"timeout_s": 100})
    lease = api.worker().claim()
    assert (lease["attempt_no"], lease["lease_s"], lease["heartbeat_s"], lease["deadline_s"]) == (1, 60, 15, 100)
    assert lease["spec"]["batch"] == 2
    assert lease["spec"]["scheduler"] == "task"
    assert api.get(f"/runs/{lease['run_id']}")["state"] == "leased"
    attempt = api.get(f"/attempts/{lease['attempt_id']}")
    assert (attempt["state"], attempt["worker_id"], attempt["progress"]) == ("leased", "w1", None)
    assert attempt["expires_at"] == lease["expires_at"]


def test_nothing_to_do_is_an_empty_answer(api):
    assert api.worker().claim(204) is None


def test_runs_go_out_by_priority_then_in_their_order(api):
    low = api.submit(axes={"seed": [1, 2]}, order="sequential")["id"]
    high = api.submit(priority=5)["id"]
    given = [api.worker(f"w{i}").claim() for i in range(3)]
    assert [lease["experiment_id"] for lease in given] == [high, low, low]
    assert given[1]["run_id"] < given[2]["run_id"]


@pytest.mark.parametrize(
    ("request_", "has", "fits"),
    [
        ({"base": {"threads": 2}}, {"cores": [0, 1]}, True),
        ({"base": {"threads": 3}}, {"cores": [0, 1]}, False),
        ({"requires": {"cores": 2}}, {"cores": [0]}, False),
        ({"base": {"cores": [1]}}, {"cores": [1, 2]}, True),
        ({"base": {"cores": [0]}}, {"cores": [1, 2]}, False),
        ({"requires": {"memory_bytes": 1 << 30}}, {"memory_bytes": 1 << 29}, False),
        ({"base": {"batch": 4}}, {"memory_bytes": 1000}, False),
        ({"requires": {"labels": {"site": "a", "gen": "2"}}}, {"labels": {"site": "a", "gen": "2", "x": ""}}, True),
        ({"requires": {"labels": {"site": "a", "gen": "2"}}}, {"labels": {"site": "a"}}, False),
        ({"requires": {"labels": {"site": "a"}}}, {"labels": {"site": "b"}}, False),
        ({"requires": {"labels": {"site": "a"}}}, {}, False),
    ],
)
def test_a_worker_gets_only_what_fits_it(api, request_, has, fits):
    api.submit(**request_)
    api.worker(**has).claim(201 if fits else 204)


def test_a_block_goes_only_to_a_worker_that_can_run_all_of_it(api):
    wide = api.submit(axes={"threads": [1, 2]})["id"]
    narrow = api.submit()["id"]
    small, large = api.worker("small", cores=[0]), api.worker("large", cores=[1, 2])
    assert small.claim()["experiment_id"] == narrow
    place = api.get(f"/runs/{api.runs(wide)[0]['id']}")["queue"]
    assert (place["reason"], place["position"]) == ("next", 1)
    assert large.claim()["experiment_id"] == wide


def test_a_block_goes_only_where_all_of_its_cores_are(api):
    api.submit(axes={"cores": [[0], [0, 1]]})
    api.worker("small", cores=[0]).claim(204)
    assert api.get("/runs/1")["queue"]["reason"] == "too-few-cores"
    api.worker("other", cores=[0, 2]).claim(204)
    assert api.get("/runs/1")["queue"]["reason"] == "other-cores"
    api.worker("right", cores=[0, 1]).claim()


def test_the_blocks_of_a_worker_that_leaves_are_free_at_once(api, make_result):
    api.submit(axes={"seed": [1, 2]})
    first, second = api.worker("w1"), api.worker("w2", cores=[7])
    lease = first.claim()
    first.upload(lease, make_result())
    second.claim(204)
    assert api.get("/runs/2")["queue"]["reason"] == "next"
    api.post("/workers/w1/leave", {"boot_id": "another"}, status=409)
    second.claim(204)
    api.post("/workers/w1/leave", {"boot_id": api.get("/workers/w1")["boot_id"]}, status=204)
    assert api.get("/workers/w1")["left_at"] is not None
    assert second.claim()["run_id"] == 2
    api.worker("w1")
    assert api.get("/workers/w1")["left_at"] is None


def test_a_run_that_fits_nobody_does_not_hold_up_the_others(api):
    for cores in ([5], [6], [0, 5]):
        api.submit(base={"cores": cores}, priority=9)
    api.submit(requires={"labels": {"no": "body"}}, priority=9)
    wanted = api.submit()["id"]
    assert api.worker().claim()["experiment_id"] == wanted


def test_a_block_stays_on_the_node_and_cores_of_its_first_run(api, make_result):
    api.submit(axes={"seed": [1, 2]}, repetitions=2)
    first, second = api.worker("w1"), api.worker("w2")
    block_of = {run["id"]: run["block"] for run in api.runs(1)}
    a, b = first.claim(), second.claim()
    assert (block_of[a["run_id"]], block_of[b["run_id"]]) == (0, 1)
    first.upload(a, make_result())
    assert block_of[first.claim()["run_id"]] == 0
    api.worker("w3").claim(204)


def test_a_block_leaves_a_node_that_is_heard_of_no_more(api, make_result):
    api.submit(axes={"seed": [1, 2]})
    first, second = api.worker("w1"), api.worker("w2")
    first.upload(first.claim(), make_result())
    second.claim(204)
    api.sql("UPDATE worker SET seen_at = seen_at - 1000 WHERE worker_id = 'w1'")
    assert second.claim()["attempt_no"] == 1


def test_sequential_runs_are_bound_to_no_node(api):
    api.submit(axes={"seed": [1, 2]}, order="sequential")
    api.worker("w1").claim()
    api.worker("w2").claim()


def test_a_claim_whose_answer_was_lost_gets_the_same_lease_again(api):
    api.submit(repetitions=2)
    node = api.worker()
    first = node.claim()
    again = node.claim()
    assert (again["attempt_id"], again["attempt_no"]) == (first["attempt_id"], first["attempt_no"])
    node.beat(first)
    assert node.claim(409)["type"] == "/problems/worker-busy"


def test_only_the_registered_process_of_a_worker_claims(api):
    node = api.worker()
    api.submit()
    node.identity["boot_id"] = "boot-0"
    assert node.claim(409)["type"] == "/problems/stale-boot"
    node.worker_id = "stranger"
    assert node.claim(409)["type"] == "/problems/unknown-worker"


def test_cores_run_one_attempt_at_a_time(api, make_result):
    api.submit(repetitions=3)
    first = api.worker("w1", node="n", cores=[0, 1])
    lease = first.claim()
    api.worker("w2", node="n", cores=[1, 0]).claim(204)
    api.worker("w3", node="n", cores=[1, 2]).claim(204)
    other = api.worker("w4", node="n", cores=[2, 3]).claim()
    assert other["run_id"] != lease["run_id"]
    first.upload(lease, make_result())
    api.worker("w5", node="m", cores=[0]).claim()


@pytest.mark.on_postgres
def test_cores_that_overlap_are_not_given_twice_at_the_same_moment(api):
    api.submit(repetitions=2, order="sequential")
    nodes = [api.worker("w1", node="n", cores=[0, 1]), api.worker("w2", node="n", cores=[1, 2])]
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"

    def claim(node):
        body = {"worker_id": node.worker_id, "boot_id": node.identity["boot_id"], "wait_s": 0}
        return api.http.post("/api/v1/leases", json=body).status_code

    with ThreadPoolExecutor(2) as pool:
        with api.context.database.write() as session:
            session.execute(text("LOCK TABLE attempt IN SHARE MODE"))  # other transactions may read it, but not write
            claims = [pool.submit(claim, node) for node in nodes]
            until(lambda: api.sql(waiting) == [(2,)])
        assert sorted(one.result(DEADLINE_S) for one in claims) == [201, 204]


def test_a_waiting_worker_is_woken_by_a_submission(api):
    node = api.worker()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(node.claim, 201, 20)
        until_waiting(api)
        made = api.submit()
        assert waiting.result(18)["experiment_id"] == made["id"]


def test_a_waiting_worker_is_woken_by_what_another_server_queues(start_server):
    ours, theirs = start_server(poll_s=0.05), start_server()
    node = ours.worker()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(node.claim, 201, 20)
        until_waiting(ours)
        made = theirs.submit()
        assert waiting.result(18)["experiment_id"] == made["id"]


@pytest.mark.on_postgres
def test_servers_on_postgresql_tell_each_other_at_once_and_again_after_a_lost_connection(start_server):
    ours, theirs = start_server(poll_s=3600), start_server(poll_s=3600)  # so that neither finds it by polling
    listening = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = :name"
    before = until(lambda: two(ours.sql(listening, name=LISTENER)))
    node = ours.worker()
    for round_no in range(2):
        with ThreadPoolExecutor(1) as pool:
            ours.sql("UPDATE worker SET seen_at = registered_at")
            waiting = pool.submit(node.claim, 201, 20)
            until_waiting(ours)
            made = theirs.submit()
            lease = waiting.result(18)
        assert lease["experiment_id"] == made["id"]
        node.upload(lease, error={"slug": "null-trainer"})
        if round_no == 0:
            ours.sql(f"SELECT pg_terminate_backend(pid) FROM ({listening}) AS found", name=LISTENER)
            until(lambda: two(set(ours.sql(listening, name=LISTENER)) - set(before)))


def two(found):
    return found if len(found) == 2 else None


def until_waiting(api):
    """Wait until a claim has found no run. From then on it either waits or sees the runs queued later."""
    changed = threading.Event()
    while api.sql("SELECT count(*) FROM worker WHERE seen_at > registered_at") == [(0,)]:
        changed.wait(0.01)


def test_many_claimers_get_every_run_once(start_server):
    apis = [start_server(), start_server()]  # two servers, one database
    apis[0].submit(axes={"seed": list(range(60))}, order="sequential")
    nodes = [apis[i % 2].worker(f"w{i}") for i in range(20)]
    lock, got = threading.Lock(), []

    def drain(node):
        for _ in range(3):
            lease = node.claim()
            node.beat(lease)
            node.upload(lease, error={"slug": "null-trainer"})
            with lock:
                got.append(lease["run_id"])

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(drain, nodes))
    assert sorted(got) == sorted(run["id"] for run in apis[0].runs(1))
    assert apis[0].sql("SELECT state, count(*) FROM run GROUP BY state") == [("failed", 60)]
    assert apis[0].sql("SELECT count(*), count(DISTINCT run_id) FROM attempt") == [(60, 60)]


def test_waiting_workers_leave_the_api_its_threads(api):
    nodes = [api.worker(f"w{i}") for i in range(60)]  # more than the threads that answer requests
    with ThreadPoolExecutor(60) as pool:
        waiting = [pool.submit(node.claim, 204, 5) for node in nodes]
        for _ in range(20):
            assert api.get("/runs")["items"] == []
        api.context.waiting.close_soon()
        assert [one.result(DEADLINE_S) for one in waiting] == [None] * 60


def test_a_worker_gets_no_run_that_may_take_longer_than_it_lives(api):
    long = api.runs(api.submit(limits={"timeout_s": 100})["id"])[0]["id"]
    short = api.runs(api.submit(limits={"timeout_s": 50})["id"])[0]["id"]
    node = api.worker()
    node.claim(204, remaining_s=49.9)
    worker = api.get("/workers/w1")
    assert worker["ends_at"] > worker["seen_at"]
    assert api.get(f"/runs/{long}")["queue"]["reason"] == "too-little-time"
    lease = node.claim(remaining_s=99)
    assert lease["run_id"] == short
    node.upload(lease, error={"slug": "x"})
    assert node.claim()["run_id"] == long  # a worker that reports no end has no limit
    assert api.get("/workers/w1")["ends_at"] is None


def test_time_passes_while_a_worker_waits(api):
    node = api.worker()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(node.claim, 204, wait_s=1.0, remaining_s=60.0)
        api.submit(limits={"timeout_s": 60})  # less than 60 s are left
        waiting.result()
    node.claim(remaining_s=90.0)
