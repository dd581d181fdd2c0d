"""On a terminal, a worker prints what a person needs; elsewhere every event."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from taskloom.worker.report import Report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tell(report: Report) -> None:
    report.say("registered", "worker w1 registered")
    for _ in range(3):
        report.say("retrying", "server: refused; retrying in 1.0 s")
    report.say("claimed", "run 1, attempt 1: started", run_id=1)
    report.say("finished", "run 1, attempt 1: succeeded", outcome="succeeded", run_id=1)
    report.say("delivered", "result of attempt 1 delivered", attempt_id=1)
    report.say("finished", "run 2, attempt 1: failed (oom\x1b[2J)", outcome="failed", run_id=2)


SERVER = "server: refused; retrying in 1.0 s"
FAILED = "run 2, attempt 1: failed (oom\N{REPLACEMENT CHARACTER}[2J)"


@pytest.mark.parametrize(
    ("quiet", "lines"),
    [
        (False, ["worker w1 registered", SERVER, "run 1, attempt 1: succeeded", FAILED]),
        (True, [SERVER, FAILED]),
    ],
)
def test_on_a_terminal(monkeypatch: pytest.MonkeyPatch, quiet: bool, lines: list[str]) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    tell(Report(as_json=False, quiet=quiet))
    shown = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in terminal.getvalue().split("\n")[:-1]]
    assert shown == lines


def test_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Report(as_json=True, quiet=True))
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 8
    assert [json.loads(line)["event"] for line in printed.out.splitlines()] == [
        "registered", *["retrying"] * 3, "claimed", "finished", "delivered", "finished",
    ]  # fmt: skip


def test_a_message_is_one_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    Report(as_json=False).say("retrying", "server: a\nb\x1b[2Jc")
    assert capsys.readouterr().err.count("\n") == 1
