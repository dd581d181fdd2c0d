"""The demo with the real trainer: its table, the files that it stores, and the processes that it stops."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.patience import until
from tests.support.processes import Process, has_ended

pytestmark = pytest.mark.slow

DEMO = "import sys; from taskloom.cli import main; sys.argv[0] = 'taskloom'; main(['demo', *sys.argv[1:]])"


def test_the_demo_prints_one_table_and_stops_what_it_started(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [sys.executable, "-P", "-c", DEMO, "--repetitions", "1", "--folder", str(folder)]
    demo = Process(command, tmp_path / "demo.log")
    try:
        started = until(lambda: two_or_more(demo.popen.pid), "server and worker")
        assert demo.wait(deadline_s=240) == 0, demo.log.read_text()
    finally:
        demo.end()
    output = "".join(demo.lines)
    for word in ("fork-join", "serial", "task", "speedup", "tokens/s", "final loss", "scaling.json"):
        assert word in output
    rows = json.loads((folder / "scaling.json").read_text())["rows"]
    cores = len(os.sched_getaffinity(0))
    expected = {("serial", 1), *((scheduler, p) for scheduler in ("fork-join", "task") for p in (1, cores))}
    assert {(row["scheduler"], row["threads"]) for row in rows} == expected
    assert all(row["agrees"] for row in rows)
    assert all(has_ended(process) for process in started)
    see = (
        r"taskloom (up .*)\nsee: http://127\.0\.0\.1:8321(/ui/\S+)\nsee: \S+id=2\nthe second experiment, .* 3 runs\n"
        r"share of .*: (?:\d+% under (?:fork-join|fork-join by diagonals|task)(?:, |\n)){3}"
        r"verdict: (.*)\nverdict: (.*)\n$"
    )
    printed = re.search(see, output)
    assert printed is not None, output
    assert "2 threads" in printed[3] or cores != 2
    up = [sys.executable, "-P", "-m", "taskloom.cli", *shlex.split(printed[1]), "--port", "0", "--json"]
    server = Process([*up, "--peaks", "never"], tmp_path / "up.log", TASKLOOM_SPOOL=str(tmp_path / "spool"))
    try:
        url = server.event("listening")["url"]
        assert "<title>Taskloom" in httpx.get(url + printed[2]).raise_for_status().text
        kept = judged(url, 1)
        assert kept["by_state"] == {"succeeded": len(rows)}
        assert printed[3] == kept["verdict"]["sentence"]
        noted = demo.log.read_text()  # before the second experiment
        assert re.search(rf"^the first answer, after \d+ s: {re.escape(printed[3])}$", noted, re.M), noted
        second = judged(url, 2)
        assert printed[4] == second["verdict"]["sentence"]
        assert second["verdict"]["primary"] is True
    finally:
        server.end()


def test_an_interrupted_demo_stops_what_it_started(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", DEMO, "--folder", str(tmp_path / "demo")]
    demo = Process(command, tmp_path / "demo.log")
    try:
        started = until(lambda: two_or_more(demo.popen.pid), "server and worker")
        demo.popen.send_signal(signal.SIGINT)
        assert demo.wait() == 1
    finally:
        demo.end()
    assert all(has_ended(process) for process in started)


def judged(url: str, number: int) -> dict[str, Any]:
    """An experiment once its verdict is stored, which may be after the server that it ended on."""

    def experiment() -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{url}/api/v1/experiments/{number}").raise_for_status().json()
        return found

    until(lambda: experiment()["verdict"] is not None, "the stored verdict")
    return experiment()


def two_or_more(pid: int) -> list[psutil.Process]:
    """Child processes of a process, once there are at least two."""
    found = psutil.Process(pid).children(recursive=True)
    return found if len(found) >= 2 else []
