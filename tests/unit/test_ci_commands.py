"""Commands for CI against a real HTTP server: exit codes, summaries of warnings, tags, webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from taskloom.cli import main
from tests.support.http_double import Script, scripted

SIDE = {
    "variant": {},
    "step_s": {
        "median": 1.0, "low": None, "high": None, "n": 6, "processes": 6, "over": "steps", "q1": 0.9, "q3": 1.1,
        "cv": 0.1,
    },
}  # fmt: skip
MARKS = [f"run {i}: foreign load: other processes used {10 * i}.0% of its cores" for i in (1, 2)]
EXPERIMENT: dict[str, Any] = {
    "id": 3, "name": "which?", "tags": ["ci"], "notes": "old", "state": "finished", "runs": 0, "by_state": {},
    "created_at": "2026-01-01T00:00:00Z", "request": {},
}  # fmt: skip
WEBHOOK: dict[str, Any] = {
    "id": 1, "url": "https://ci.example.org/", "events": ["alert"], "owner": "local",
    "created_at": "2026-01-01T00:00:00Z",
}  # fmt: skip


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as found:
        yield found


def taskloom(script: Script, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--server", script.url])


def comparison(verdict: str) -> dict[str, Any]:
    return {
        "a": {**SIDE, "runs": [1], "run_ids": [1]}, "b": {**SIDE, "runs": [2], "run_ids": [2]}, "verdict": verdict,
        "ratio": 0.9, "ratio_low": None, "ratio_high": None, "p_value": 0.2, "superiority": 0.6, "noise_floor": 0.01,
        "paired": False, "differs": [], "reason": "because", "marks": MARKS, "sentence": f"It is {verdict}.",
        "brief": ["2 of 2 runs disturbed (foreign load 10 to 20 %)"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "options", "code"),
    [
        ("slower", (), 0),
        ("slower", ("--fail-on", "slower"), 1),
        ("slower", ("--fail-on", "slower", "--json"), 1),
        ("refused", ("--fail-on", "slower"), 0),
        ("refused", ("--fail-on", "slower, refused"), 1),
        ("faster", ("--fail-on", "slower,refused,undecided"), 0),
    ],
)
def test_a_comparison_fails_on_the_verdicts_that_are_named(
    script: Script, verdict: str, options: tuple[str, ...], code: int
) -> None:
    script.answer(200, comparison(verdict))
    done = taskloom(script, "compare", "1", "2", *options)
    assert done.exit_code == code, done.stderr
    assert verdict in done.stdout


def test_a_verdict_that_there_is_not_is_bad_usage(script: Script) -> None:
    done = taskloom(script, "compare", "1", "2", "--fail-on", "slow")
    assert done.exit_code == 2
    assert "'slow' is not one of faster, slower" in done.stderr
    assert script.asked == []


def test_disturbed_runs_are_one_line_unless_all_are_wanted(script: Script) -> None:
    for _ in range(2):
        script.answer(200, comparison("same"))
    brief, full = (taskloom(script, "compare", "1", "2", *options).stdout for options in ((), ("-v",)))
    assert "warning: 2 of 2 runs disturbed (foreign load 10 to 20 %): -v lists them\n" in brief
    assert not any(mark in brief for mark in MARKS)
    assert all(f"warning: {mark}\n" in full for mark in MARKS)
    assert "-v lists them" not in full


def test_an_experiment_is_edited_and_keeps_what_is_not_named(script: Script) -> None:
    answers: list[dict[str, Any]] = [EXPERIMENT, EXPERIMENT, {"items": [], "next_cursor": None}]
    for answer in answers:
        script.answer(200, answer)
    done = taskloom(script, "experiments", "edit", "3", "--tag", "kept", "--tag", "new", "--untag", "ci")
    assert done.exit_code == 0, done.stderr
    assert [(asked.method, asked.path) for asked in script.asked[:2]] == [
        ("GET", "/api/v1/experiments/3"), ("PATCH", "/api/v1/experiments/3")
    ]  # fmt: skip
    assert json.loads(script.asked[1].body) == {"tags": ["kept", "new"]}
    assert taskloom(script, "experiments", "edit", "3").exit_code == 2


def test_tags_are_submitted_and_filtered_by(script: Script) -> None:
    script.answer(201, EXPERIMENT)
    submitted = taskloom(script, "submit", "--threads", "1", "--tag", "ci", "--tag", "b", "--notes", "why")
    assert submitted.exit_code == 0, submitted.stderr
    body = json.loads(script.asked[0].body)
    assert (body["tags"], body["notes"]) == (["ci", "b"], "why")
    script.answer(200, {"items": [EXPERIMENT], "next_cursor": None})
    listed = taskloom(script, "experiments", "list", "--tag", "ci", "--tag", "b")
    assert script.asked[1].path == "/api/v1/experiments?tag=ci&tag=b"
    assert "ci" in listed.stdout


def test_webhooks_are_made_listed_looked_at_and_deleted(script: Script) -> None:
    script.answer(201, {**WEBHOOK, "secret": "s" * 64})
    made = taskloom(script, "webhooks", "create", WEBHOOK["url"], "--event", "alert")
    assert "s" * 64 in made.stdout
    assert json.loads(script.asked[0].body) == {"url": WEBHOOK["url"], "events": ["alert"]}
    script.answer(200, {"items": [WEBHOOK], "next_cursor": None})
    assert "https://ci.example.org/" in taskloom(script, "webhooks", "list").stdout
    delivery = {
        "id": 7, "event": "alert", "state": "waiting", "tries": 2, "created_at": "2026-01-01T00:00:00Z",
        "next_at": "2026-01-01T00:01:00Z", "delivered_at": None, "status": 503, "error": "status 503",
    }  # fmt: skip
    script.answer(200, {"items": [delivery], "next_cursor": None})
    assert "status 503" in taskloom(script, "webhooks", "deliveries", "1").stdout
    script.answer(204)
    assert taskloom(script, "webhooks", "delete", "1").exit_code == 0
    assert [(asked.method, asked.path) for asked in script.asked[2:]] == [
        ("GET", "/api/v1/webhooks/1/deliveries"), ("DELETE", "/api/v1/webhooks/1")
    ]  # fmt: skip
