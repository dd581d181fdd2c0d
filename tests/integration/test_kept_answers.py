"""Analyses run in separate processes with a deadline, once for concurrent callers. Answers are cached by content."""

import contextlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from taskloom.server.db import Database
from taskloom.server.read import questions
from tests.support.patience import DEADLINE_S, until

SCALING = "/analysis/scaling?experiment_id=1"


@pytest.fixture
def measured(make_result):
    """An experiment of three runs, one of them open, and the worker that claimed them."""

    def measure(api):
        api.submit(base={"model": "tiny"}, axes={"seed": [1, 2, 3]}, order="sequential")
        node = api.worker()
        for _ in range(2):
            node.upload(node.claim(), make_result())
        return node

    return measure


def ask(api, kind="scaling", status=200):
    return api.get(f"/analysis/{kind}", status, experiment_id=1)


def files(api):
    return sorted(file.name for file in api.context.settings.answer_folder.glob("*.answer"))


def children():
    """Child processes for analyses, without those that have just ended."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "anyio.to_process" in child.cmdline():
                found.append(child)
    return found


def only_child():
    """The only child process for analyses, once those of an earlier test have ended."""
    return until(lambda: found[0] if len(found := children()) == 1 else None, "a single process")


@pytest.mark.both_databases
def test_an_answer_is_kept_until_a_result_is_added(api, measured, make_result):
    node = measured(api)
    first = api.http.get("/api/v1" + SCALING)
    again = api.http.get("/api/v1" + SCALING)
    assert (first.status_code, again.headers["etag"], again.content) == (200, first.headers["etag"], first.content)
    assert first.json()["rows"][0]["runs"] == 1
    assert [name.partition(".")[0] for name in files(api)] == [first.headers["etag"].strip('"')]
    unchanged = api.http.get("/api/v1" + SCALING, headers={"If-None-Match": first.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    node.upload(node.claim(), make_result())
    other = api.http.get("/api/v1" + SCALING, headers={"If-None-Match": first.headers["etag"]})
    assert other.status_code == 200
    assert other.headers["etag"] != first.headers["etag"]


def test_a_report_has_the_name_that_its_experiment_has_now(api, measured):
    measured(api)
    assert ask(api, "report")["experiment"]["name"] == api.get("/experiments/1")["name"] != "seeds?"
    renamed = api.http.patch("/api/v1/experiments/1", json={"name": "seeds?"})
    assert renamed.status_code == 200
    assert ask(api, "report")["experiment"]["name"] == ask(api, "report")["question"] == "seeds?"


@pytest.mark.both_databases
def test_an_artifact_makes_another_answer(api, measured):
    node = measured(api)
    before = api.http.get("/api/v1/analysis/report?experiment_id=1").headers["etag"]
    node.leave(node.claim(), "kept.txt", b"")
    assert api.http.get("/api/v1/analysis/report?experiment_id=1").headers["etag"] != before


def test_another_server_gives_the_same_answer_without_computing_it(start_server, measured, monkeypatch):
    one, other = start_server(), start_server()
    measured(one)
    first = one.http.get("/api/v1" + SCALING)
    monkeypatch.setattr(questions, "QUESTIONS", {})
    assert other.http.get("/api/v1" + SCALING).content == first.content


@pytest.mark.on_postgres
def test_databases_that_share_a_folder_share_no_answers(
    start_server, postgres, migrated_postgres, measured, make_result
):
    one = start_server()
    other = start_server(database_url=postgres.new(migrated_postgres))
    measured(one)
    other.submit(base={"model": "tiny"}, axes={"seed": [1, 2, 3]}, order="sequential")
    node = other.worker()
    for _ in range(2):
        node.upload(node.claim(), make_result([9, 3, 3, 3]))
    assert ask(one)["rows"][0]["step_s"]["median"] != ask(other)["rows"][0]["step_s"]["median"]


@pytest.mark.slow
def test_answers_unused_for_longest_go_first(start_server, measured):
    api = start_server(max_answer_bytes=1)
    measured(api)
    for kind in ("scaling", "efficiency"):
        ask(api, kind)
    assert len(files(api)) == 1


def test_who_asks_the_same_at_once_waits_for_one_answer(api, measured, monkeypatch):
    measured(api)
    asked, question = [], questions.QUESTIONS["scaling"]

    def find(sources, experiment_id):
        asked.append(experiment_id)
        time.sleep(0.5)
        return question.find(sources, experiment_id)

    monkeypatch.setattr(questions, "QUESTIONS", {"scaling": questions.Question(find, question.type)})
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: ask(api), range(5)))
    assert asked == [1]
    assert answers == [answers[0]] * 5


@pytest.mark.both_databases
def test_a_process_of_its_own_answers_what_the_server_would(start_server, measured):
    here, apart = start_server(), start_server(analysis_processes=1)
    measured(here)
    assert ask(apart) == ask(here)
    assert only_child()
    assert apart.get("/analysis/scaling", 404, experiment_id=7)["detail"] == "there is no experiment 7"
    request = {"base": {"model": "tiny"}, "repetitions": 2}
    assert apart.post("/experiments?dry_run=true", request) == here.post("/experiments?dry_run=true", request)
    refused = apart.post("/experiments?dry_run=true", {"base": {"model": "tiny"}, "axes": {"nothing": [1]}}, 422)
    assert refused["errors"][0]["pointer"] == "/axes/nothing"
    assert len(children()) == 1


def test_what_takes_too_long_is_given_up_and_its_process_ends(start_server, measured):
    api = start_server(analysis_processes=1)
    measured(api)
    ask(api)
    api.reading.answers.pool.longest_s = 0.5  # the process has started
    child = only_child()
    child.suspend()
    problem = ask(api, "memory", 504)
    assert (problem["type"], problem["max_s"]) == ("/problems/analysis-too-long", 0.5)
    assert "not repeated yet" in ask(api, "memory", 504)["detail"]
    child.wait(DEADLINE_S)
    assert not children()


def leave(api, kind):
    """Ask, and leave before there is an answer."""
    with pytest.raises(httpx.ReadTimeout):
        api.http.get(f"/api/v1/analysis/{kind}?experiment_id=1", timeout=1)


def test_what_is_begun_is_answered_to_who_asks_again_and_what_waits_ends_with_its_last_client(start_server, measured):
    api = start_server(analysis_processes=1)
    measured(api)
    ask(api)
    child = only_child()
    child.suspend()
    with ThreadPoolExecutor(2) as pool:
        leave(api, "memory")
        stays = pool.submit(ask, api, "roofline")
        leave(api, "efficiency")
        again = pool.submit(ask, api, "memory")
        until(lambda: len(api.reading.answers.pool.flights) == 2, "memory and roofline")
        child.resume()
        assert stays.result(DEADLINE_S)
        assert again.result(DEADLINE_S)
    assert only_child() == child
    assert len(files(api)) == 3


def test_with_the_last_client_of_a_dry_run_its_work_ends(start_server, measured):
    api = start_server(analysis_processes=1)
    measured(api)
    ask(api)
    child = only_child()
    child.suspend()
    with pytest.raises(httpx.ReadTimeout):
        api.http.post("/api/v1/experiments?dry_run=true", json={"base": {"model": "tiny"}}, timeout=1)
    child.wait(DEADLINE_S)
    assert ask(api, "memory")


@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced(start_server, measured):
    api = start_server(analysis_processes=1)
    measured(api)
    ask(api)
    child = only_child()
    child.suspend()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, api, "memory")
        time.sleep(0.3)  # the process may have received the request or not: both must be answered
        child.kill()
        assert answer.result(DEADLINE_S)


def test_more_questions_than_may_wait_are_refused(start_server, measured):
    api = start_server(analysis_processes=1, max_questions=1)
    measured(api)
    ask(api)
    child = only_child()
    child.suspend()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(ask, api, "memory")
        until(lambda: len(api.reading.answers.pool.flights))
        refused = api.http.get("/api/v1/analysis/roofline?experiment_id=1")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        child.resume()
        assert waits.result(DEADLINE_S)


SCANNED = """
import gc, os, sys
from taskloom.server.read import work
from taskloom.server.settings import Settings
given = Settings(database_url=sys.argv[1]).model_dump_json()
os.nice = lambda _: print(int("taskloom.server.read.questions" in sys.modules))
for _ in range(2):
    work.answer_in_process(given, "variants", (1,), None)
print(len(gc.get_objects()), gc.get_freeze_count())
"""


def test_a_process_gives_way_once_analyses_are_loaded_and_its_collections_do_not_scan_them(api, measured, database_url):
    measured(api)
    ended = subprocess.run(
        [sys.executable, "-c", SCANNED, database_url], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    was_loaded, scanned, loaded = map(int, ended.stdout.split())
    assert was_loaded
    assert loaded > 50_000
    assert scanned < loaded / 5


BUSY = """
import sys
from taskloom.server.read import questions, work
from taskloom.server.settings import Settings
def find(sources, how):
    while how == "long":
        pass
    return [how]
questions.QUESTIONS = {"find": questions.Question(find, list)}
given = Settings(database_url="sqlite:///x.db", analysis_s=0.1).model_dump_json()
for how in ("long", "short"):
    print(work.answer_in_process(given, "find", (how,), None))
"""


def test_a_limit_is_one_of_processor_time():
    ended = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    refused, answered = ended.stdout.splitlines()
    assert "analysis-too-long" in refused
    assert "after 0.1 s of processor time" in refused
    assert answered == str(b'["short"]')


@pytest.mark.both_databases
def test_the_processes_open_the_database_read_only(database_url):
    database = Database(database_url, read_only=True)
    with pytest.raises(DBAPIError, match=r"readonly|read-only"), database.write() as session:
        session.execute(text("DELETE FROM run"))
    database.close()
