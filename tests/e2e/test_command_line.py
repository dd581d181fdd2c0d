"""`taskloom` and a server: output and exit codes. Commands that start processes, wait or serve run as processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest

from gpt2core.spec.result import NODE_TIME
from taskloom import Client
from tests.support.command_line import TINY, cli, json_of, taskloom
from tests.support.patience import until
from tests.support.processes import House
from tests.support.trace_checks import check_chrome, check_paraver

NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens there


@pytest.mark.parametrize(
    "command",
    [
        ("runs", "list"),
        ("runs", "show", "1"),
        ("experiments", "list"),
        ("compare", "1", "2"),
        ("submit", "--threads", "1"),
    ],
)
def test_without_a_server_every_question_ends_with_3(command: tuple[str, ...]) -> None:
    done = taskloom(*command, "--server", NOBODY)
    assert done.returncode == 3
    assert NOBODY in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("command", "named", "begins"),
    [
        (("worker", "--cores", "4000"), "4000", "error: "),
        (("provision", "no-such.toml"), "no-such.toml", "error: "),
        (("serve", "--database-url", "mysql://here"), "mysql", "taskloom: "),
    ],
)
def test_a_daemon_that_cannot_start_says_so_in_one_json_line(command: tuple[str, ...], named: str, begins: str) -> None:
    done = taskloom(*command, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert named in json.loads(line)["error"]
    plain = taskloom(*command)
    assert (plain.returncode, plain.stderr.startswith(begins)) == (2, True)


OUTPUTS = (
    ("metg", "--plot"), ("export", "runs", "-o"), ("report", "1", "-o"), ("experiments", "report", "1", "-o"),
    ("runs", "artifacts", "1", "a", "-o"), ("runs", "trace", "1", "-o"),
    ("tune", *TINY, "--space", "scheduler=task,serial", "--wait", "--export"), ("workload", *TINY, "--wait", "-o"),
    ("train", *TINY, "--graph"), ("train", *TINY, "--save"), ("train", *TINY, "--trace"),
)  # fmt: skip


@pytest.mark.parametrize("command", OUTPUTS, ids=lambda command: f"{command[0]} {command[-1]}")
def test_an_output_file_that_cannot_be_written_is_refused_before_the_work(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.json").mkdir()
    named = {"--plot": "plot", "--export": "export", "-o": "output"}.get(command[-1], command[-1][2:])
    for unusable in ("missing/x.json", "folder.json", "file/x.json", "/proc/x.json"):
        done = cli(*command, unusable, "--json", server=NOBODY, folder=tmp_path)
        error = json.loads(done.stderr)
        assert (done.returncode, error["field"], error["value"]) == (2, named, unusable)
        assert error["accepted"].startswith("a file in a folder that exists and can be written (")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder.json"]


def test_a_report_that_no_option_names_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "report-1.html").mkdir()
    done = cli("report", "1", server=NOBODY, folder=tmp_path)
    assert (done.returncode, done.stderr[:34]) == (2, "error: output = 'report-1.html' is")
    for summary in ("missing/summary.md", "report-1.html"):
        done = cli("report", "1", "--format", "github-summary", server=NOBODY, folder=tmp_path,
                   GITHUB_STEP_SUMMARY=summary)  # fmt: skip
        assert (done.returncode, f"GITHUB_STEP_SUMMARY = '{summary}' is not" in done.stderr) == (2, True)


def test_from_submission_to_comparison(home: House, client: Client, tmp_path: Path) -> None:
    home.start_worker(trainer=None)
    axes = ("--scheduler", "fork-join,task", "--primary", "scheduler=task vs scheduler=fork-join")
    run = json_of(
        taskloom("submit", *TINY, *axes, "--repetitions", "1", "--wait", "--json", server=home.url),
    )
    assert run["experiment"]["state"] == "finished"
    assert run["experiment"]["verdict"]["verdict"] == "undecided"
    assert "a verdict needs at least 6 pairs of runs" in run["experiment"]["verdict"]["sentence"]
    assert [each["state"] for each in run["runs"]] == ["succeeded", "succeeded"]
    ids = [str(each["id"]) for each in run["runs"]]
    assert run["runs"][0]["final_loss"] == run["runs"][1]["final_loss"]
    result = client.result(int(ids[0]))
    assert result["threads"][0]["observed_cores"] == [result["threads"][0]["core"]]
    parts = [f"{part}_s" for part in NODE_TIME]
    spent = [client.run(each["id"]).node_time or {} for each in run["runs"]]
    assert [list(each) for each in spent] == [parts, parts]
    assert client.experiment(run["experiment"]["id"]).node_time == pytest.approx(
        {part: sum(each[part] for each in spent) for part in parts}
    )

    shown = json_of(cli("runs", "show", ids[0], "--json", server=home.url))
    assert shown["spec"]["seq"] == 16
    assert len(json_of(cli("runs", "samples", ids[0], "--json", server=home.url))["items"]) == 3
    many = cli("runs", "samples", f"experiment_id={shown['experiment_id']}", "--json", server=home.url).stdout
    assert [len(json.loads(line)["items"]) for line in many.splitlines()] == [3, 3]
    listed = json_of(cli("runs", "list", "--state", "succeeded", "--json", server=home.url))
    assert sorted(str(each["id"]) for each in listed) == sorted(ids)
    assert json_of(cli("experiments", "list", "--json", server=home.url))[0]["runs"] == 2
    experiment_id = str(run["experiment"]["id"])
    rows = json_of(cli("experiments", "scaling", experiment_id, "--json", server=home.url))["rows"]
    assert {row["scheduler"] for row in rows} == {"fork-join", "task"}
    compared = json_of(cli("compare", *ids, "--json", server=home.url))
    assert compared["verdict"] in ("faster", "slower", "same", "undecided")
    declared = ("--noise-floor", "0.25", "--leave-out-flagged", "--json")
    assert json_of(cli("compare", *ids, *declared, server=home.url))["noise_floor"] == 0.25
    page, document = tmp_path / "report.html", tmp_path / "report.json"
    for target in (page, document):
        reported = cli("experiments", "report", experiment_id, "--json", "-o", str(target), server=home.url)
        assert json_of(reported)["schema"] == "taskloom.report/1"
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(document.read_text()) == json_of(reported)
    sentence, summary = run["experiment"]["verdict"]["sentence"], tmp_path / "summary.md"
    tests = cli("report", experiment_id, "--format", "junit", "--fail-on", "undecided", server=home.url)
    assert (tests.returncode, len(ElementTree.fromstring(tests.stdout).findall(".//failure"))) == (1, 1)
    summary.write_text("before\n")
    appended = ("report", experiment_id, "--format", "github-summary", "--fail-on", "slower")
    done = cli(*appended, server=home.url, GITHUB_STEP_SUMMARY=str(summary))
    assert (done.returncode, sentence in done.stdout) == (0, True)
    assert summary.read_text().startswith("before\n## ")
    assert sentence.partition(":")[0] in summary.read_text()
    missing = cli(*appended, server=home.url, GITHUB_STEP_SUMMARY="")
    assert missing.returncode == 2
    assert "GITHUB_STEP_SUMMARY names no file" in missing.stderr
    for command in (
        ("runs", "list"),
        ("runs", "show", ids[0]),
        ("runs", "samples", ids[0]),
        ("runs", "samples", ",".join(ids)),
        ("experiments", "list"),
        ("experiments", "show", experiment_id),
        ("experiments", "scaling", experiment_id),
        ("compare", *ids),
    ):
        done = cli(*command, server=home.url)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
        assert ("Node time" in done.stdout) == (command[1] == "show")


def test_submit_waits_and_ends_with_1_if_a_run_failed(home: House) -> None:
    home.start_worker("crash")
    done = taskloom("submit", *TINY, "--wait", server=home.url)
    assert done.returncode == 1
    assert "failed" in done.stdout
    assert "failed, such as run 1: the trainer ended" in done.stderr
    *_, following, address, verdict = done.stdout.splitlines()
    assert following == "next: taskloom experiments report 1"
    assert address == f"see: {home.url}/ui/experiment?id=1"
    assert verdict == "verdict: No run has succeeded."


@pytest.mark.slow
def test_submit_that_is_interrupted_says_that_the_experiment_goes_on(home: House, client: Client) -> None:
    process = home.start("submit", "-m", "taskloom.cli", "submit", *TINY, "--wait", "--server", home.url)
    until(lambda: list(client.experiments()), "the experiment")
    until(lambda: "/experiments/1:" in home.server.log.read_text(), "a look at it")
    process.popen.send_signal(signal.SIGINT)
    assert process.wait() == 1
    assert "experiment 1 continues" in process.log.read_text()
    assert "taskloom experiments cancel 1" in process.log.read_text()
    assert client.experiment(1).state == "active"


@pytest.mark.slow
def test_a_trace_of_a_run_that_was_not_traced_names_the_option(home: House, tmp_path: Path) -> None:
    cli("submit", *TINY, server=home.url)
    done = cli("runs", "trace", "1", "-o", str(tmp_path / "t.json"), server=home.url)
    assert done.returncode == 2
    assert "run 1 was not traced: submit it with --trace" in done.stderr
    assert cli("runs", "trace", "9", "-o", str(tmp_path / "t.json"), server=home.url).returncode == 2


def test_a_setting_that_there_is_not_is_named(home: House) -> None:
    done = cli("compare", "experiment_id=1,schedular=task", "experiment_id=1,scheduler=serial", server=home.url)
    assert done.returncode == 2
    assert "there is no setting 'schedular' (did you mean 'scheduler'?)" in done.stderr


def test_submit_reads_files_and_dry_runs_queue_nothing(home: House, client: Client, tmp_path: Path) -> None:
    request = tmp_path / "sweep.toml"
    request.write_text(
        'repetitions = 2\n[base]\nmodel = "tiny"\nseq = 16\n[axes]\nthreads = [1]\nbatch_slice = [1, 2]\n'
    )
    plan = json_of(cli("submit", str(request), "--dry-run", "--json", server=home.url))
    assert (plan["runs"], plan["variants"]) == (4, 2)
    assert list(client.experiments()) == []
    json_of(cli("submit", str(request), "--json", server=home.url))
    assert len(list(client.runs())) == 4
    ruled = ("submit", str(request), "--repetitions", "1", "--trace-first", "--stop", "rel_ci=0.5,max_repetitions=1")
    asked = json_of(cli(*ruled, "--json", server=home.url))["request"]
    assert (asked["stop"], asked["trace"]) == ({"rel_ci": 0.5, "max_repetitions": 1}, "first")
    shown = cli("experiments", "show", "2", server=home.url).stdout
    assert "stopping rule: continues after 0 repetitions and 0 s of workers' time; no interval yet" in shown


def test_what_the_server_refuses_names_the_field(home: House) -> None:
    done = cli("submit", "--model", "tiny", "--seq", "16,4096", "--json", server=home.url)
    assert done.returncode == 2
    error = json.loads(done.stderr)
    assert error["errors"][0]["field"] == "seq"
    assert error["errors"][0]["value"] == 4096


@pytest.mark.slow
def test_a_calibration_goes_to_the_node_that_is_named(home: House, client: Client) -> None:
    asked = ("experiments", "calibrate", *TINY, "--repetitions", "6", "--json", "--require", "node=a1")
    made = json_of(cli(*asked, server=home.url))
    request = client.experiment(made["id"]).request
    assert (request["calibrates"], request["requires"]) == (True, {"labels": {"node": "a1"}})
    assert cli(*asked, "--require", "a1", server=home.url).returncode == 2


def test_runs_are_cancelled_and_retried(home: House) -> None:
    json_of(cli("submit", *TINY, "--json", server=home.url))
    assert json_of(cli("runs", "cancel", "1", "--json", server=home.url))["state"] == "cancelled"
    assert json_of(cli("runs", "retry", "1", "--json", server=home.url))["state"] == "queued"
    again = cli("runs", "retry", "1", "--json", server=home.url)
    assert again.returncode == 3
    assert json.loads(again.stderr)["type"] == "/problems/invalid-transition"
    assert json_of(cli("experiments", "cancel", "1", "--json", server=home.url))["by_state"]["cancelled"] == 1
    assert json_of(cli("experiments", "retry", "1", "--json", server=home.url))["by_state"] == {"queued": 1}
    assert cli("runs", "show", "99", server=home.url).returncode == 2


@pytest.mark.slow
def test_serve_and_worker_become_the_processes_they_start(home: House, client: Client, tmp_path: Path) -> None:
    server = home.start(
        "serve", "-m", "taskloom.cli", "serve", "--port", "0", "--database-url", f"sqlite:///{tmp_path}/b.db"
    )
    listening = server.event("listening")
    assert listening["pid"] == server.popen.pid
    assert listening["url"] != home.url
    json_of(cli("submit", *TINY, "--json", server=home.url))
    options = ("--server", home.url, "--spool", str(home.spool), "--once", "--json")
    worker = home.start("cli-worker", "-m", "taskloom.cli", "worker", *options)
    assert worker.wait() == 0
    assert client.run(1).state == "succeeded"


@pytest.mark.slow
def test_serve_says_on_a_terminal_where_the_dashboard_is(tmp_path: Path) -> None:
    ours, terminal = os.openpty()
    command = [sys.executable, "-P", "-m", "taskloom.cli", "serve", "--port", "0"]
    command += ["--database-url", f"sqlite:///{tmp_path}/a.db"]
    with subprocess.Popen(command, stdout=terminal, stderr=terminal) as server:
        try:
            os.close(terminal)
            said = b""
            while not (found := re.search(rb"the dashboard is at (\S+)/\r?\n", said)):
                said += os.read(ours, 4096)
            url = found[1].decode()
            shown = httpx.get(f"{url}/", follow_redirects=True)
            assert (shown.status_code, shown.url.path) == (200, "/ui/")
        finally:
            server.terminate()
            os.close(ours)


def test_serve_says_when_its_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = taskloom("serve", "--port", str(port), "--database-url", f"sqlite:///{tmp_path}/a.db")
    assert done.returncode == 2
    assert str(port) in done.stderr


def test_doctor_names_every_check() -> None:
    found = json_of(taskloom("doctor", "--json"))
    names = {check["name"] for check in found["checks"]}
    assert {"cores", "affinity", "SMT", "governor", "turbo", "load", "memory", "BLAS", "perf counters"} <= names
    assert all(check["status"] in ("ok", "warn") for check in found["checks"])
    assert all(check["advice"] for check in found["checks"] if check["status"] == "warn")


@pytest.mark.slow
def test_runs_are_traced_in_attempts_of_their_own_and_shown_beside_each_other(home: House, tmp_path: Path) -> None:
    home.start_worker(None)
    axes = ("--scheduler", "fork-join,task", "--repetitions", "1", "--trace", "--wait", "--json")
    done = json_of(cli("submit", *TINY, *axes, server=home.url))
    assert [run["state"] for run in done["runs"]] == ["succeeded", "succeeded"]
    run = json_of(cli("runs", "show", "1", "--json", server=home.url))
    assert [attempt["purpose"] for attempt in run["history"]] == ["timing", "tracing"]
    one = ("runs", "trace", "1", "--format", "paraver", "-o", "one.prv", "--json")
    files = json_of(cli(*one, server=home.url, folder=tmp_path))["files"]
    assert files == ["one.prv", "one.pcf", "one.row"]
    check_paraver((tmp_path / "one.prv").read_text())
    json_of(cli("runs", "trace", "1", "2", "-o", "both.json", "--json", server=home.url, folder=tmp_path))
    events = check_chrome((tmp_path / "both.json").read_text())
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {name.split(": ")[1].split(",")[0] for name in names} == {"fork-join", "task sync step"}
    begins = [(e["pid"], e["ts"]) for e in events if e["name"] == "step 2"]
    assert len({ts for _, ts in begins}) == 1
    assert {pid for pid, _ in begins} == {1, 2}
    with Client(home.url) as client:
        assert client.result(1)["config"]["trace"] is None
    missing = cli("runs", "trace", "99", "-o", "x.json", server=home.url, folder=tmp_path)
    assert missing.returncode == 2


@pytest.mark.slow
def test_what_a_run_left_is_listed_and_fetched(home: House, tmp_path: Path) -> None:
    request = tmp_path / "one.json"
    request.write_text(json.dumps({"base": {"model": "tiny", "seq": 16}}))
    json_of(cli("submit", str(request), "--json", server=home.url))
    assert "position 1: no worker is registered" in cli("runs", "show", "1", server=home.url).stdout
    worker = home.start_worker("leaving", "--once")
    assert worker.wait() == 0
    items = json_of(cli("runs", "artifacts", "1", "--json", server=home.url))["items"]
    assert [item["name"] for item in items] == ["profile.json.gz", "trace.json.gz"]
    assert "application/gzip" in cli("runs", "artifacts", "1", server=home.url).stdout
    done = json_of(cli("runs", "artifacts", "1", "profile.json.gz", "--json", server=home.url, folder=tmp_path))
    assert (tmp_path / done["path"]).read_bytes() == b"profile"
    assert cli("runs", "artifacts", "1", "nothing", server=home.url, folder=tmp_path).returncode == 2
    assert not (tmp_path / "nothing").exists()
    unwritable = cli("runs", "artifacts", "1", "profile.json.gz", "-o", "/proc/x", server=home.url)
    assert unwritable.returncode == 2
    assert "/proc/x" in unwritable.stderr


@pytest.mark.slow
def test_histories_are_shown(home: House, tmp_path: Path) -> None:
    request = tmp_path / "one.json"
    request.write_text(json.dumps({"base": {"model": "tiny", "seq": 16}}))
    json_of(cli("submit", str(request), "--json", server=home.url))
    assert home.start_worker("train", "--once").wait() == 0
    of_run = json_of(cli("runs", "changes", "1", "--json", server=home.url))
    assert [(each["verb"], each["state"]) for each in of_run] == [
        ("submit", "queued"), ("claim", "leased"), ("start", "running"), ("succeed", "succeeded"),
    ]  # fmt: skip
    assert json_of(cli("experiments", "changes", "1", "--json", server=home.url)) == of_run
    assert len(json_of(cli("runs", "changes", "1", "--limit", "2", "--json", server=home.url))) == 2
    shown = cli("runs", "changes", "1", server=home.url).stdout
    assert "succeed" in shown
    assert "worker:" in shown
    assert json_of(cli("experiments", "alerts", "--json", server=home.url)) == []
    assert cli("runs", "changes", "99", server=home.url).returncode == 2


@pytest.mark.slow
def test_what_trainers_print_is_followed_and_shown(home: House, tmp_path: Path) -> None:
    request = tmp_path / "two.json"
    request.write_text(json.dumps({"base": {"model": "tiny", "seq": 16}, "axes": {"seed": [1, 2]}}))
    home.start_worker("crash")
    done = cli("submit", str(request), "--wait", "--follow-logs", "--json", server=home.url)
    assert done.returncode == 1
    assert sorted(done.stderr.splitlines()) == ["run 1: the reactor is melting", "run 2: the reactor is melting"]
    assert cli("runs", "log", "1", "--follow", server=home.url).stdout == "the reactor is melting\n"
    assert cli("runs", "log", "1", "--tail", "1", server=home.url).stdout == "the reactor is melting\n"
    line = json_of(cli("runs", "log", "2", "--json", server=home.url))
    assert (line["run_id"], line["line_no"], line["text"]) == (2, 1, "the reactor is melting")
    assert cli("submit", str(request), "--follow-logs", server=home.url).returncode == 2


@pytest.mark.slow
def test_old_runs_are_pruned(home: House, tmp_path: Path) -> None:
    request = tmp_path / "two.json"
    request.write_text(json.dumps({"base": {"model": "tiny", "seq": 16}, "axes": {"seed": [1, 2]}}))
    home.start_worker("leaving")
    json_of(cli("submit", str(request), "--wait", "--json", server=home.url))
    would = json_of(cli("prune", "--older-than", "0s", "--dry-run", "--json", server=home.url))
    assert (would["runs"], would["artifacts"], would["files"]) == (2, 4, 2)
    assert "deleted 2 runs with 2 attempts" in cli("prune", "--older-than", "0s", server=home.url).stdout
    assert json_of(cli("runs", "list", "--json", server=home.url)) == []
    assert cli("prune", "--older-than", "soon", server=home.url).returncode == 2
