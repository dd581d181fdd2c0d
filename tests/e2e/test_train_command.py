"""`taskloom train` as a process with the real trainer: its output and exit code."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.command_line import TINY, json_of, taskloom
from tests.support.patience import until
from tests.support.processes import Process, gone
from tests.support.trace_checks import check_chrome, check_paraver


def test_train_prints_the_result_and_nothing_else(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))[:1]
    result = json_of(taskloom("train", *TINY, "--cores", str(cores[0]), "--json", folder=tmp_path))
    assert result["schema"] == "taskloom.result/2"
    assert len(result["losses"]) == len(result["step_s"]) == 3
    assert set(result["phase_s"]) == {"data", "forward", "loss", "backward", "update"}
    assert [thread["observed_cores"] for thread in result["threads"]] == [cores]


def test_a_checkpoint_says_what_model_it_holds(tmp_path: Path) -> None:
    sizes = ("--layers", "1", "--heads", "1", "--channels", "16", "--vocab", "256", "--context", "8")
    few = ("--batch", "1", "--seq", "8", "--steps", "1", "--json")
    json_of(taskloom("train", *sizes, *few, "--save", "model.bin", folder=tmp_path))
    again = json_of(taskloom("train", *few, "--checkpoint", "model.bin", folder=tmp_path))
    assert again["config"]["model"] | {"name": ""} == {
        "layers": 1, "heads": 1, "channels": 16, "vocab": 256, "context": 8, "name": "",
    }  # fmt: skip
    missing = taskloom("train", *few, "--checkpoint", "nothing.bin", folder=tmp_path)
    assert missing.returncode == 2
    assert "nothing.bin" in missing.stderr


def test_a_checkpoint_of_an_lstm_needs_no_sizes(tmp_path: Path) -> None:
    sizes = ("--network", "lstm", "--embedding", "6", "--hidden", "8", "--layers", "1", "--vocab", "256")
    few = ("--batch", "1", "--seq", "8", "--steps", "1", "--json")
    json_of(taskloom("train", *sizes, *few, "--save", "model.safetensors", folder=tmp_path))
    model = {"network": "lstm", "embedding": 6, "hidden": 8, "layers": 1, "vocab": 256, "context": 1024,
             "tied": False, "name": "lstm"}  # fmt: skip
    for named in ((), ("--network", "lstm")):
        again = json_of(taskloom("train", *named, *few, "--checkpoint", "model.safetensors", folder=tmp_path))
        assert again["config"]["model"] == model
        assert again["checkpoint"] == {"format": "safetensors", "dtype": "F32"}
    for other, reason in (
        (("--network", "gpt2", "--checkpoint", "model.safetensors"), "it is not a GPT-2"),
        (("--model", "lstm-tiny", "--checkpoint", "model.safetensors"), "the requested model needs (256, 32)"),
        (("--model", "lstm-tiny", "--save", "model.bin"), "the file format of an lstm"),
        (("--model", "lstm-tiny", "--heads", "2"), "no size of lstm"),
    ):
        refused = taskloom("train", *other, *few, folder=tmp_path)
        assert refused.returncode == 2, refused.stdout
        assert reason in refused.stderr


def test_train_prints_tables_for_people() -> None:
    done = taskloom("train", *TINY)
    assert done.returncode == 0, done.stderr
    for word in ("median step", "tokens/s", "backward", "attention"):
        assert word in done.stdout


@pytest.mark.slow
def test_train_writes_traces_for_both_viewers(tmp_path: Path) -> None:
    result = json_of(taskloom("train", *TINY, "--trace", "run.json.gz", "--json", folder=tmp_path))
    events = check_chrome(gzip.decompress((tmp_path / "run.json.gz").read_bytes()).decode())
    assert {"qkv", "adamw", "step 2"} <= {event["name"] for event in events}
    assert result["config"]["trace"] == "run.json.gz"
    json_of(taskloom("train", *TINY, "--trace", "run.prv", "--json", folder=tmp_path))
    assert check_paraver((tmp_path / "run.prv").read_text())["2"]
    assert "qkv forward" in (tmp_path / "run.pcf").read_text()
    assert (tmp_path / "run.row").read_text().startswith("LEVEL CPU SIZE 1")
    refused = taskloom("train", *TINY, "--trace", "run.svg", folder=tmp_path)
    assert refused.returncode == 2
    assert ".json.gz" in refused.stderr


def test_train_plans_without_running() -> None:
    plan = json_of(taskloom("train", "--model", "gpt2-124m", "--plan", "--json"))
    assert plan["memory_bytes"]["weights"] >= 4 * 124_000_000
    assert plan["tasks"] > 0


def test_an_lstm_is_planned_without_running() -> None:
    plan = json_of(taskloom("train", "--model", "lstm-deep", "--batch", "4", "--seq", "64", "--plan", "--json"))
    assert plan["memory_bytes"]["weights"] >= 4 * (2 * 10000 * 512 + 8 * 8 * 512 * 512)
    assert (plan["batch_slice"], plan["token_slice"]) == (4, 16)


def test_train_draws_the_graph(tmp_path: Path) -> None:
    json_of(taskloom("train", *TINY, "--plan", "--graph", str(tmp_path / "graph.dot"), "--json"))
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (("--threads", "0"), "threads", 0),
        (("--threads", "2", "--cores", "0"), "threads", 2),
        (("--cores", "4000"), "cores", [4000]),
        (("--channels", "65", "--heads", "4"), "channels", 65),
        (("--seq", "4096"), "seq", 4096),
        (("--batch-slice", "9"), "batch_slice", 9),
        (("--token-slice", "900"), "token_slice", 900),
        (("--batch-slice", "0"), "batch_slice", 0),
        (("--token-slice", "0"), "token_slice", 0),
        (("--lr", "nan"), "lr", None),
        (("--vocab", "0"), "vocab", 0),
    ],
)
def test_bad_settings_are_named_before_anything_starts(arguments: tuple[str, ...], field: str, value: object) -> None:
    done = taskloom("train", "--json", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    error = json.loads(done.stderr)
    assert error["field"] == field
    assert error["accepted"]
    if value is not None:
        assert error["value"] == value


def test_an_unknown_scheduler_is_refused_with_those_there_are() -> None:
    done = taskloom("train", "--scheduler", "magic")
    assert done.returncode == 2
    assert "magic" in done.stderr
    assert "fork-join" in done.stderr


def test_the_trainers_own_refusals_keep_their_exit_code(tmp_path: Path) -> None:
    missing = tmp_path / "missing.bin"
    done = taskloom("train", *TINY, "--data", str(missing), "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert json.loads(done.stderr)["slug"] == "unreadable-file"
    assert str(missing) in json.loads(done.stderr)["error"]


def test_what_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    for option, name in (("--save", "model.bin"), ("--trace", "run.json")):
        done = taskloom("train", *TINY, option, str(tmp_path / "missing" / name), "--json")
        assert done.returncode == 2
        assert json.loads(done.stderr)["field"] == option[2:]


@pytest.mark.slow
def test_a_run_in_which_nothing_moves_ends_with_1_and_says_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of 512 rows with the vocabulary takes longer than TASKLOOM_STALL_S."""
    monkeypatch.setenv("TASKLOOM_STALL_S", "0.1")
    sizes = ("--layers", "1", "--heads", "12", "--channels", "768", "--vocab", "50257", "--context", "512")
    one_slice = ("--batch", "1", "--seq", "512", "--token-slice", "512", "--steps", "1")
    done = taskloom("train", *sizes, *one_slice)
    assert done.returncode == 1
    assert "no task has ended for 0.1 s" in done.stderr
    assert "'cross_entropy s0' waits on 'logits s0'" in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 1), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_stopped_training_leaves_no_trainer(tmp_path: Path, number: int, status: int) -> None:
    command = ["-m", "taskloom.cli", "train", *TINY, "--steps", "10000000", "--json"]
    process = Process([sys.executable, *command], tmp_path / "log", TMPDIR=str(tmp_path))
    try:
        me = psutil.Process(process.popen.pid)
        child = until(me.children, "the trainer")[0]
        until(lambda: "gpt2core" in child.cmdline(), "the trainer's start")
        process.popen.send_signal(number)
        assert process.wait() == status
        gone(child)
        left = list(tmp_path.glob("taskloom-*"))
        assert (left == []) == (number == signal.SIGTERM)  # the next command deletes what SIGKILL leaves
    finally:
        process.end()
