"""`taskloom bisect` and `compare --commit` against a server and a worker whose step times depend on the commit."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpt2core.spec.version import recorded
from taskloom import watch
from taskloom.cli import main
from taskloom.worker import builds
from taskloom.worker.commits import keep
from tests.support.patience import until
from tests.support.repository import Repository

NOISE = (1.0, 1.004, 0.996, 1.002, 0.998, 1.006, 0.994)


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Commits by subject, oldest first: GOOD, eight that change the trainer, and others between them."""
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(watch, "POLL_S", 0.01)
    repository = Repository(tmp_path / "checkout")
    found = {"good": repository.trainer("good", "0")}
    for number in range(1, 9):
        repository.commit("a document", docs=str(number))
        found[f"c{number}"] = repository.trainer(f"c{number}", str(number))
    found["head"] = repository.commit("another document", docs="last")
    monkeypatch.chdir(repository.folder)
    return found


@pytest.fixture
def execute(api: Any, make_result: Any) -> Iterator[Callable[[Callable[[str], float]], None]]:
    """Execute all runs from now on, with the step time of their commit, in seconds; 0: the run fails."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def start(step_s: Callable[[str], float]) -> None:
        node, done = api.worker(), 0

        def loop() -> None:
            nonlocal done
            while not over.wait(0.01):
                node.register(labels=builds.labels())
                body = {"worker_id": node.worker_id, "boot_id": "boot-1", "wait_s": 0}
                answer = api.http.post("/api/v1/leases", json=body)
                if answer.status_code == 201:
                    lease, done = answer.json(), done + 1
                    origin = recorded(builds.folder() / lease["build"])
                    s = step_s(str(origin and origin.commit)) * NOISE[done % len(NOISE)]
                    environment = {"core_hash": lease["build"]}
                    if s:
                        node.upload(lease, make_result([9, s, s], environment=environment))
                    else:
                        node.upload(lease, error={"slug": "boom", "detail": "it does not train"})

        threads.append(threading.Thread(target=loop))
        threads[-1].start()

    yield start
    over.set()
    for thread in threads:
        thread.join()


def bisect(api: Any, *arguments: str, code: int = 0) -> str:
    return said(api, "bisect", *arguments, code=code)


def said(api: Any, *arguments: str, code: int = 0) -> str:
    server = ("--server", str(api.http.base_url))
    done = CliRunner().invoke(main, [*arguments, *server], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output if "--json" not in arguments else done.stdout


SETTINGS = ("--model", "tiny", "--token-slice", "64", "--batch-slice", "1")


def test_the_first_slower_commit_is_found_and_a_repeated_call_asks_for_nothing(api, commits, execute):
    slow = {commits[f"c{number}"] for number in (6, 7, 8)}
    execute(lambda commit: 1.1 if commit in slow else 1.0)
    found = json.loads(bisect(api, commits["good"], "HEAD", *SETTINGS, "--json"))
    assert (found["first_bad"], found["bad"]) == (commits["c6"], commits["c8"])
    assert found["ratio"] == pytest.approx(1.1, rel=0.01)
    assert found["low"] < 1.1 < found["high"]
    assert [(step["commit"], step["decision"]["side"]) for step in found["steps"]] == [
        (commits["c8"], "bad"), (commits["c4"], "good"), (commits["c6"], "bad"), (commits["c5"], "good")
    ]  # fmt: skip
    assert found["runs"] == 7 * 2 + 3 * 7 * 3
    (opening, *rest) = api.get("/experiments", sort="id")["items"]
    assert (opening["commit"], len(rest)) == (commits["c8"], 3)
    assert opening["name"].endswith(commits["c8"][:10])
    again = bisect(api, commits["good"], "HEAD", *SETTINGS)
    assert f"the first bad commit is {commits['c6'][:10]} (c6): 1.096 times the step time of GOOD" in again
    assert again.count("experiment ") == 4
    assert len(api.get("/experiments")["items"]) == 4
    assert api.get("/analysis/history")["items"] == []  # runs of chosen builds are no history of the trainer
    assert api.get("/analysis/alerts")["items"] == []


def test_an_experiment_over_two_commits_compares_them_in_pairs(api, commits, execute):
    slow = commits["c8"]
    execute(lambda commit: 1.1 if commit == slow else 1.0)
    kept = [keep(Path(), commit) for commit in (commits["good"], slow)]
    primary = {"a": {"build": kept[0]}, "b": {"build": kept[1]}}
    made = api.submit(base={"model": "tiny", "token_slice": 64, "batch_slice": 1}, builds=kept, primary=primary)
    path = f"/experiments/{made['id']}"
    until(lambda: api.get(path)["state"] == "finished", "the runs")
    runs = api.runs(made["id"])
    assert made["runs"] == len(runs) >= 2 * 6
    for block in {run["block"] for run in runs}:
        assert {run["variant"]["build"] for run in runs if run["block"] == block} == {*kept}
    found = api.get("/analysis/sweep", experiment_id=made["id"])
    assert (found["primary"]["a"], found["primary"]["b"], found["primary"]["unit"]) == (*kept, "pairs")
    assert found["verdict"]["ratio"] == pytest.approx(1 / 1.1, rel=0.01)
    assert (found["verdict"]["verdict"], found["verdict"]["primary"]) == ("slower", True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "commits.toml"
    path.write_text('[base]\nmodel = "tiny"\ntoken_slice = 64\nbatch_slice = 1\n')
    return path


def test_two_commits_are_measured_in_pairs_and_compared_by_one_command(api, commits, execute, file):
    execute(lambda commit: 1.1 if commit == commits["c8"] else 1.0)
    compare = ("compare", "--commit", commits["good"], commits["c8"], "--experiment", str(file))
    found = json.loads(said(api, *compare, "--json"))
    assert (found["paired"], found["verdict"], found["unit"]) == (True, "slower", "pairs")
    assert found["ratio"] == pytest.approx(1 / 1.1, rel=0.01)
    assert (found["family"]["experiment_id"], found["family"]["primary"]) == (1, True)
    (made,) = api.get("/experiments")["items"]
    assert (made["commit"], made["name"]) == (commits["c8"], f"commit {commits['good'][:10]} or {commits['c8'][:10]}?")
    assert len(found["a"]["runs"]) == len(found["b"]["runs"]) == made["runs"] / 2 >= 6
    text = said(api, *compare, "--fail-on", "slower", code=1)
    assert f"A is commit {commits['good']}, B is commit {commits['c8']}; their runs are paired by block" in text
    assert text.endswith("/ui/experiment?id=1\n")
    assert "--experiment FILE" not in text
    assert api.get("/experiments", total=True)["total"] == 1
    file.write_text(f'name = "again"\nrepetitions = 7\n{file.read_text()}')
    json.loads(said(api, *compare, "--json"))
    assert [each["runs"] for each in api.get("/experiments")["items"]][:1] == [14]


def test_a_commit_whose_runs_fail_is_not_compared(api, commits, execute, file):
    execute(lambda commit: 0.0 if commit == commits["c1"] else 1.0)
    text = said(api, "compare", "--commit", commits["good"], commits["c1"], "--experiment", str(file), code=1)
    assert "failed, such as run " in text
    assert "error: no run of B has succeeded in experiment 1" in text


def test_undecided_commits_are_said_and_get_no_more_blocks_than_allowed(api, commits, execute):
    slow, between = {commits[f"c{number}"] for number in (6, 7, 8)}, {commits["c5"], commits["c4"]}
    execute(lambda commit: 1.1 if commit in slow else 1.1**0.5 if commit in between else 1.0)
    found = json.loads(bisect(api, commits["good"], "HEAD", *SETTINGS, "--json", "--most-blocks", "10", code=1))
    assert found["first_bad"] is None
    assert [each["subject"] for each in found["candidates"]] == ["c4", "c5", "c6"]
    blocks = {step["commit"]: step["decision"]["blocks"] for step in found["steps"]}
    assert blocks[commits["c4"]] == blocks[commits["c5"]] == 10
    assert blocks[commits["c6"]] == 7
    text = bisect(api, commits["good"], "HEAD", *SETTINGS, "--most-blocks", "10", code=1)
    assert f"{commits['c4'][:10]} (c4), {commits['c5'][:10]} (c5) or {commits['c6'][:10]} (c6)" in text


def test_a_commit_that_fails_is_undecided(api, commits, execute):
    execute(lambda commit: 0.0 if commit == commits["c1"] else 1.0 if commit == commits["good"] else 1.1)
    text = bisect(api, commits["good"], commits["c2"], *SETTINGS, code=1)
    assert f"{commits['c1'][:10]}: undecided (no block is complete; 7 runs did not succeed)" in text
    assert f"{commits['c1'][:10]} (c1) or {commits['c2'][:10]} (c2)" in text


def test_nothing_is_searched_without_a_difference(api, commits, execute):
    execute(lambda _: 1.0)
    text = bisect(api, commits["good"], "HEAD", *SETTINGS, "--most-blocks", "7", code=1)
    assert "not known that BAD differs from GOOD (7 blocks do not exclude equal step times); 14 runs asked" in text


def test_a_trainer_that_was_reverted_needs_no_run(api, commits, execute):
    repository = Repository.__new__(Repository)
    repository.folder = Path()
    reverted, slower = repository.trainer("reverted", "0"), repository.trainer("slower", "9")
    execute(lambda commit: 1.1 if commit == slower else 1.0)
    found = json.loads(bisect(api, commits["c8"], slower, *SETTINGS, "--json"))
    assert [step["commit"] for step in found["steps"]] == [slower, reverted]
    found = json.loads(bisect(api, commits["good"], slower, *SETTINGS, "--json"))
    assert (found["first_bad"], found["steps"][-1]["commit"]) == (slower, reverted)
    assert (found["steps"][-1]["runs"], found["steps"][-1]["decision"]["side"]) == (0, "good")


def test_bad_input_names_what_is_accepted(api, commits, file):
    single = file.read_text()
    file.write_text('[base]\nmodel = "tiny"\n[axes]\nthreads = [1, 2]\n')
    good, bad = commits["good"], commits["c8"]
    for arguments, reason in (
        (("nonsense", bad, *SETTINGS), "good = 'nonsense'"),
        ((bad, good, *SETTINGS), "an ancestor of"),
        ((bad, commits["head"], *SETTINGS), "whose trainer (gpt2core) is not that of"),
        ((good, bad), "give either --experiment FILE or settings"),
        ((good, bad, "--experiment", str(file)), "commits are compared in one configuration"),
        ((good, bad, "--threads", "1,2"), "commits are compared in one configuration"),
        ((good, bad, *SETTINGS, "--most-blocks", "6"), "--most-blocks"),
    ):
        assert reason in " ".join(bisect(api, *arguments, code=2).split())
    paired = ("--experiment", str(file))
    for of_compare, reason in (
        ((good, bad, *paired), "--experiment needs --commit"),
        ((good, bad, "--commit", *paired), "commits are compared in one configuration"),
        ((good, bad, "--commit", *paired, "--filter", "threads = 1"), "give one of both"),
    ):
        assert reason in " ".join(said(api, "compare", *of_compare, code=2).split())
    file.write_text(single)
    for arguments, reason in (
        ((good, "nonsense"), "b = 'nonsense'"), ((bad, commits["head"]), "whose trainer differs"),
    ):  # fmt: skip
        assert reason in " ".join(said(api, "compare", "--commit", *arguments, *paired, code=2).split())
    assert api.get("/experiments")["items"] == []
