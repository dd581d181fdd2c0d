"""The provisioner's decisions from demand and jobs, and its files."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from taskloom.contract.demand import Demand, Need, PresentWorker
from taskloom.provisioner import slurm
from taskloom.provisioner.decide import Decision, decide
from taskloom.provisioner.jobs import AlreadyRunning, Job, Jobs
from taskloom.provisioner.pools import Pools, PoolsFileRefused, read
from taskloom.provisioner.slurm import QueuedJob

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
FILE = """
[pools.small]
cores = 1
memory = "1GiB"
walltime = "00:30:00"
max_jobs = 3
max_pending = 2

[pools.large]
cores = 8
memory = "16GiB"
walltime = "04:00:00"
max_jobs = 2
max_pending = 2
nodes = 3
labels = {site = "a"}
"""


@pytest.fixture
def pools(tmp_path: Path) -> Pools:
    (tmp_path / "pools.toml").write_text(FILE)
    return read(tmp_path / "pools.toml")


def need(blocks: int = 1, **changes: Any) -> Need:
    given = {
        "cores": 1, "memory_bytes": 1 << 20, "pinned_cores": [], "labels": {}, "timeout_s": 60.0, "blocks": blocks,
        "kept_blocks": 0, "runs": 4, "oldest_queued_at": NOW,
    }  # fmt: skip
    return Need.model_validate(given | changes)


def worker(idle: bool = True, job: str | None = None, cores: int = 1, **changes: Any) -> PresentWorker:
    labels = {} if job is None else {"slurm_job": job}
    given = {
        "worker_id": "w", "cores": list(range(cores)), "memory_bytes": 1 << 30, "labels": labels, "remaining_s": None,
        "idle": idle,
    }  # fmt: skip
    return PresentWorker.model_validate(given | changes)


def job(number: int, state: str) -> Job:
    return Job(f"t.small.{number}", "small", str(number), state)


def small(pools: Pools, demand: Demand, *jobs: Job) -> Decision:
    return decide(demand, pools.pools, {"small": jobs})["small"]


def test_each_block_is_work_for_one_worker(pools: Pools) -> None:
    assert small(pools, Demand(needs=[need(1)], workers=[])).submit == 1
    assert small(pools, Demand(needs=[need(0, kept_blocks=5)], workers=[])).submit == 0
    assert small(pools, Demand(needs=[], workers=[])) == Decision(0, 0, (), "")


def test_limits_hold_and_say_so(pools: Pools) -> None:
    many = Demand(needs=[need(9)], workers=[])
    assert small(pools, many) == Decision(9, 2, (), "max_pending is 2")
    running = [job(1, "RUNNING"), job(2, "RUNNING")]
    assert small(pools, many, *running) == Decision(9, 1, (), "max_jobs is 3")


@pytest.mark.parametrize(
    ("workers", "jobs", "submit"),
    [
        ([worker()], [], 1),  # an idle worker takes one of two blocks
        ([worker(idle=False)], [], 2),
        ([worker(memory_bytes=1)], [], 2),  # idle, but does not fit
        ([worker(remaining_s=59.0)], [], 2),
        ([], [job(1, "PENDING")], 1),
        ([], [job(1, "SUBMITTING")], 1),  # it may exist
        ([], [job(1, "RUNNING")], 1),  # its worker has not registered yet
        ([worker(idle=False, job="1")], [job(1, "RUNNING")], 2),  # its worker has a block already
        ([worker(job="1")], [job(1, "RUNNING")], 1),
        ([], [job(1, "PENDING"), job(2, "RUNNING")], 0),
    ],
)
def test_who_is_there_or_on_the_way_counts(
    pools: Pools, workers: list[PresentWorker], jobs: list[Job], submit: int
) -> None:
    assert small(pools, Demand(needs=[need(2)], workers=workers), *jobs).submit == submit


def test_jobs_that_nothing_needs_are_surplus_newest_first_and_only_while_they_wait(pools: Pools) -> None:
    jobs = [job(1, "PENDING"), job(2, "PENDING"), job(3, "RUNNING"), job(4, "SUBMITTING")]
    jobs[3].job_id = ""
    assert small(pools, Demand(needs=[], workers=[]), *jobs).surplus == (jobs[1], jobs[0])
    assert small(pools, Demand(needs=[need(3)], workers=[]), *jobs[:3]).surplus == ()


@pytest.mark.parametrize(
    ("wish", "pool", "why"),
    [
        ({}, "small", None),
        ({"cores": 2}, "large", "needs 2 cores; the pool's workers have 1"),
        ({"memory_bytes": 2 << 30}, "large", "needs 2,147,483,648 bytes of memory"),
        ({"timeout_s": 3600.0}, "large", "may take 3600 s; the pool's workers have 1680 s for runs"),
        ({"labels": {"site": "a"}}, "large", "requires site=a"),
        ({"labels": {"site": "b"}}, None, "requires site=b"),
        ({"pinned_cores": [3]}, "large", "requires the cores 3"),
        ({"labels": {"pool": "large"}}, "large", "requires pool=large"),
        ({"labels": {"nodes": "3"}}, "large", "needs 3 nodes; the pool's jobs have 1"),
        ({"labels": {"nodes": "2"}}, None, "needs 2 nodes; the pool's jobs have 1"),
    ],
)
def test_a_block_is_served_by_the_first_pool_that_can_run_all_of_it(
    pools: Pools, wish: dict[str, Any], pool: str | None, why: str | None
) -> None:
    decisions = decide(Demand(needs=[need(**wish)], workers=[]), pools.pools, {})
    assert {name: decision.submit for name, decision in decisions.items()} == {
        name: int(name == pool) for name in ("small", "large")
    }
    lacks = pools.pools[0].lacks(need(**wish))
    assert (lacks is None) == (why is None)
    assert (why or "") in (lacks or "")


def test_the_command_is_an_argument_list_and_holds_no_secret(pools: Pools, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    (tmp_path / "key").chmod(0o600)
    with_key = pools.model_copy(update={"token_file": tmp_path / "key", "server": "https://a b"})
    assert with_key.token() == "secret"
    command, script = slurm.submission(with_key, pools.pools[1], "taskloom.large.1")
    assert command[:3] == ["sbatch", "--parsable", "--job-name=taskloom.large.1"]
    assert {"--cpus-per-task=8", "--mem=16384M", "--time=240", "--no-requeue", "--open-mode=append", "--exclusive"} <= {
        *command
    }
    assert {"--nodes=3", "--ntasks=3"} <= {*command}  # one task a node, each with the cores of the worker
    assert "nodes=3" not in script  # the worker itself says how many it has
    assert {"--nodes=1", "--ntasks=1"} <= {*slurm.submission(with_key, pools.pools[0], "taskloom.small.1")[0]}
    assert "secret" not in script + " ".join(command)
    assert f"export TASKLOOM_TOKEN_FILE={tmp_path}/key\n" in script
    assert "--server 'https://a b'" in script
    assert "--label site=a --label pool=large" in script


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "pools: Field required"),
        ("[pools]", "pools is []"),
        (FILE.replace("cores = 1", "cores = 0"), "pools.small.cores is 0"),
        (FILE.replace("nodes = 3", "nodes = 0"), "pools.large.nodes is 0"),
        (FILE.replace('"00:30:00"', '"soon"'), "pools.small.walltime is 'soon'"),
        (FILE.replace("max_jobs = 3", "max_job = 3"), "max_job is 3: there is no such key; accepted are partition"),
        ("intervall = 3\n" + FILE, "intervall is 3: there is no such key; accepted are name, server, token_file"),
        (FILE.replace("[pools.small]", '[pools."a b"]'), "pools.a b.name is 'a b'"),
        ("pools = 3", "pools is 3"),
        ("x = [", "not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_says_which_field_and_value(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "pools.toml").write_text(text)
    with pytest.raises(PoolsFileRefused) as raised:
        read(tmp_path / "pools.toml")
    assert said in str(raised.value)


def test_jobs_are_known_again_after_a_restart_and_gone_after_two_misses(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    first = Jobs("t", state)
    planned = first.plan("small")
    with pytest.raises(AlreadyRunning):
        Jobs("t", state)
    first.close()
    again = Jobs("t", state)
    assert [known.name for known in again.of("small")] == [planned.name]
    other = QueuedJob("9", "t.small.other", "RUNNING", "None")
    theirs = [QueuedJob("7", "somebody", "RUNNING", ""), QueuedJob("8", "t.unknown.x", "RUNNING", "")]
    assert again.update([other, *theirs], ["small"]) == []
    assert {known.job_id for known in again.of("small")} == {"", "9"}
    assert [gone.name for gone in again.update([other], ["small"])] == [planned.name]
    assert again.update([], ["small"]) == []
    assert [gone.job_id for gone in again.update([], ["small"])] == ["9"]
    assert again.of("small") == []
    again.close()


def test_a_job_is_explained_once_its_worker_came_also_after_a_restart(tmp_path: Path) -> None:
    jobs = Jobs("t", tmp_path / "state.json")
    first, second = jobs.plan("small"), jobs.plan("small")
    jobs.submitted(first, "7")
    assert jobs.explain({"", "7", "8"}) == [first]  # a job without an id yet has no worker
    assert jobs.explain({"7"}) == []
    jobs.close()
    again = Jobs("t", tmp_path / "state.json")
    again.update([QueuedJob("7", first.name, "RUNNING", "")], ["small"])
    assert {job.name: job.explained for job in again.of("small")} == {first.name: True, second.name: False}
    again.close()
