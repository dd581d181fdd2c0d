"""Processes of two trees run in turn; their ratio comes from pairs of turns, with an interval over pairs of
processes."""

from __future__ import annotations

import itertools
import json
import random
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.record import ROOT
from bench.revisions import METG_TURNS, Case, guard, main, metg, row, steps, table, turns_of
from bench.turns import Runner, Turn, alternate

PROGRAM = """
import json, pathlib, sys, time
asked = json.load(sys.stdin)
ends = [time.monotonic()]
for step in range(1, asked["steps"] + 1):
    while time.monotonic() < ends[-1] + asked["step_s"]:
        pass
    ends.append(time.monotonic())
    print("a line that is no report", json.dumps({"event": "step", "step": step}), sep="\\n", flush=True)
pathlib.Path(sys.argv[1]).write_text(json.dumps(ends))
if asked["code"]:
    print(json.dumps({"event": "error", "detail": "no room"}), flush=True)
sys.exit(asked["code"])
"""
STEPS = 300


def pairs_of_turns(tmp_path: Path, code: int = 0) -> tuple[list[dict[str, Turn]], dict[str, list[float]]]:
    """Turns of two processes, and the times at which their steps ended."""
    results = {name: tmp_path / name for name in ("ours", "before")}
    with ExitStack() as running:
        runners, last = {}, {}
        for name, result in results.items():
            command = [sys.executable, "-c", PROGRAM, str(result)]
            asked = {"steps": STEPS, "step_s": 0.001, "code": code}
            runners[name] = running.enter_context(Runner(command, asked, ROOT, "step"))
            first = runners[name].next_report()
            assert first is not None
            last[name] = first
            runners[name].stop()
        turns = alternate(runners, last, 0.01, random.Random(1))
    return turns, {name: json.loads(result.read_text()) for name, result in results.items()}


def test_no_step_that_counts_ran_beside_the_other_process(tmp_path: Path) -> None:
    turns, ends = pairs_of_turns(tmp_path)
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in ends}
    for pair in turns:
        for name, turn in pair.items():
            began = turn.since["step"]
            lengths = [b - a for a, b in itertools.pairwise(ends[name])]
            whole = turn.whole(lengths)
            spans[name] += [(ends[name][i], ends[name][i + 1]) for i in range(began, turn.until["step"])
                            if lengths[i] in whole]  # fmt: skip
    both = sorted(span for mine in spans.values() for span in mine)
    assert all(second[0] >= first[1] for first, second in itertools.pairwise(both))


def test_each_pair_has_a_turn_of_both_and_turns_follow_each_other(tmp_path: Path) -> None:
    turns, ends = pairs_of_turns(tmp_path)
    assert {len(mine) for mine in ends.values()} == {STEPS + 1}  # both ran to the end
    assert all(set(pair) == {"ours", "before"} for pair in turns)
    for name in ends:
        mine = [pair[name] for pair in turns]
        assert all(b.since == a.until for a, b in itertools.pairwise(mine))
    order = random.Random(1)
    assert [list(pair) for pair in turns] == [order.sample(["ours", "before"], 2) for _ in turns]


def test_both_trees_keep_their_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reporting.py").write_text("import event")
    (tmp_path / "event.py").write_text(f"print({json.dumps({'event': 'step'})!r})")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with Runner([sys.executable, "-P", "-m", "reporting"], {}, tmp_path, "step") as runner:
        assert runner.next_report() is not None
    assert list((tmp_path / "__pycache__").glob("event.*"))


def test_a_process_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ended with 3: no room"):
        pairs_of_turns(tmp_path, code=3)


def turn(first: int, last: int, pause_s: float = 0.2) -> Turn:
    return Turn({"step": first, "done": first}, {"step": last, "done": last}, pause_s)


def test_the_step_that_was_stopped_does_not_count() -> None:
    step_s = [9.0, 0.01, 0.25, 0.02, 0.03, 0.3]
    assert turn(1, 5).whole(step_s) == [0.01, 0.02, 0.03]
    assert turn(1, 5, pause_s=0.0).whole(step_s) == [0.01, 0.25, 0.02, 0.03]  # without a pause, no step was stopped


def test_a_turn_counts_by_its_median_and_only_beside_one_of_the_other_tree() -> None:
    got = {"ours": {"step_s": [0.25, 1e-3, 2e-3, 5e-3, 0.3]}, "before": {"step_s": [0.25, 4e-3, 4e-3, 9e-3, 0.3]}}
    pairs = [{"ours": turn(0, 4), "before": turn(0, 4)}, {"ours": turn(4, 5), "before": turn(1, 3)}]
    assert steps(pairs, got) == {"step_s": {"ours": [2e-3], "before": [4e-3]}}
    assert steps(pairs[1:], got) == {}


def sweep(overhead_s: float, scheduler: str = "task") -> dict[str, Any]:
    points = [{"grain": 1 << i, "tasks": 1000, "threads": 2, "elapsed_s": 500 * (4e-9 * (1 << i) + overhead_s)}
              for i in range(13, -1, -1)]  # fmt: skip
    points[0]["elapsed_s"] = 1e-9  # stopped
    return {"scheduler": scheduler, "points": points}


def test_metg_of_a_round_is_that_of_its_sweeps_medians_without_points_that_were_stopped() -> None:
    got = {name: {"sweeps": [{}, *[sweep(each * of) for each in (1e-7, 1e-7, 9e-7)], sweep(3e-7, "fork-join")]}
           for name, of in (("ours", 1), ("before", 2))}  # fmt: skip
    pairs = [{"ours": turn(i, i + 1), "before": turn(i, i + 1)} for i in (1, 2, 3, 4)]
    found = metg(pairs, got)
    assert found["task"]["ours"] == [pytest.approx(2e-7, rel=0.05)]
    assert found["task"]["before"] == [pytest.approx(4e-7, rel=0.05)]
    assert found["fork-join"]["ours"] == [pytest.approx(6e-7, rel=0.05)]
    got["ours"]["sweeps"][1]["scheduler"] = "fork-join"
    with pytest.raises(SystemExit, match="differ in their order"):
        metg(pairs, got)


def test_the_interval_is_over_pairs_of_processes() -> None:
    by_process = [0.95, 0.96, 0.97, 0.98, 0.99, 1.0, 1.01]
    rounds = [
        {"case": "tiny:task:2", "same_losses": True, "turns": 50,
         "of": {"step_s": {"ours": [1e-3 * r] * 50, "before": [1e-3] * 50}}}
        for r in by_process
    ]  # fmt: skip
    found = row(rounds, "tiny:task:2", "step_s")
    assert found["round_ratios"] == pytest.approx(by_process)
    assert (found["rounds"], found["turns"], found["same_losses"]) == (7, 350, True)
    assert found["ratio"] == pytest.approx(0.98, abs=1e-3)
    assert found["ratio_interval"] == pytest.approx([0.96, 1.0], abs=6e-3)
    machine = {"cpu_model": "CPU", "cores": 2, "kernel": "6", "load_average": [0.0], "load_average_after": [0.0]}
    revisions = {"ours": "a", "before": "b"}
    report = {"at": "2026-11-22T00:00:00", "machine": machine, "revisions": revisions, "rows": [found]}
    assert "| 0.98" in table(report)


def test_a_case_says_what_is_run_in_turns() -> None:
    tiny, large, sweeps = (Case.parse(name, 20) for name in ("tiny:task:1", "gpt2-124m:fork-join:1", "metg"))
    assert (tiny.report, tiny.turn_s, large.turn_s, sweeps.report, sweeps.turn_s) == ("step", 0.2, 2.5, "sweep", 0.0)
    assert (large.settings["scheduler"], large.settings["threads"]) == ("fork-join", 1)
    variant = Case.parse("tiny:task none 1x16:2", 20).settings
    assert (variant["sync"], variant["batch_slice"], variant["token_slice"]) == ("none", 1, 16)
    assert (variant["precision"], Case.parse("tiny:task:2:bf16", 20).settings["precision"]) == ("fp32", "bf16")
    patterns = [Case.parse(name, 20).settings["pattern"] for name in ("metg", "metg:no_comm")]
    assert patterns == [["stencil_1d"], ["no_comm"]]
    assert sweeps.warm({})
    assert not large.warm({"step": 2})
    assert large.warm({"step": 3})


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("tiny:task:1:bf16:8", "case = 'tiny:task:1:bf16:8' is not accepted: MODEL:VARIANT:THREADS, "),
        ("tiny:task", "case = 'tiny:task' is not accepted: MODEL:VARIANT:THREADS, "),
        ("huge:task:1", "model = 'huge' is not accepted: one of tiny, "),
        ("tiny:task nonne 1x16:1", "variant = 'task nonne 1x16' is not accepted: one of serial, fork-join, task, "),
        ("tiny:task:two", "threads = 'two' is not accepted: 1 to "),
        ("tiny:task:4000", "threads = '4000' is not accepted: 1 to "),
        ("metg:nothing", "pattern = 'nothing' is not accepted: one of trivial, "),
        ("tiny:task:1:fp16", "precision = 'fp16' is not accepted: one of fp32, bf16"),
    ],
)
def test_a_case_that_cannot_run_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--before", str(tmp_path), "--cases", f"metg,{case}"])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_metg_has_enough_turns() -> None:
    assert [turns_of("metg", wanted) for wanted in (6, 50)] == [METG_TURNS, 50]
    assert turns_of("metg:no_comm", 6) == METG_TURNS
    assert turns_of("tiny:task:2", 6) == 6


@pytest.mark.parametrize(
    ("ratio", "interval", "what", "status"),
    [
        (1.05, [1.02, 1.08], "step", 1),
        (1.05, [0.98, 1.10], "step", 3),
        (1.05, None, "step", 3),
        (1.02, [1.01, 1.03], "step", 0),
        (0.90, [0.85, 0.95], "METG, task", 0),
        (1.20, [1.10, 1.30], "start to first step", 0),
    ],
)
def test_the_guard_fails_on_a_slower_figure(ratio, interval, what, status, capsys):
    rows = [{"case": "tiny:task:2", "what": what, "ratio": ratio, "ratio_interval": interval}]
    assert guard(rows, 1.03) == status
    assert ("tiny:task:2, step: 1.0500 is above 1.03" in capsys.readouterr().out) == (status != 0)
