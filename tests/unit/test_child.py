"""A trainer as a child process, tested with programs of a line or two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
import pytest

from gpt2core.process import child as processes
from gpt2core.process import launch
from gpt2core.process.child import LINE_CHARS, PIECE_CHARS, Child, Exited, Printed, Reported, Waiting, spawning_on

DEADLINE_S = 30.0


def start(program: str, settings: dict[str, Any] | None = None, cores: list[int] | None = None) -> tuple[Child, Any]:
    inbox: SimpleQueue[Any] = SimpleQueue()
    return Child(Waiting([sys.executable, "-c", program], cores), settings or {}, inbox), inbox


def everything(inbox: SimpleQueue[Any]) -> list[Any]:
    """All messages up to the last, which is Exited."""
    messages: list[Any] = []
    while not messages or not isinstance(messages[-1], Exited):
        messages.append(inbox.get(timeout=DEADLINE_S))
    return messages


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + DEADLINE_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["closed after some events", "never open"])
def test_a_trainer_that_nobody_hears_ends_without_a_result(tmp_path: Path, how: str) -> None:
    settings = {"model": "tiny", "batch": 1, "seq": 2, "steps": 1_000_000, "scheduler": "serial", "data": "synthetic"}
    command = launch.command(tmp_path / "result.json")
    if how == "never open":
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=launch.environment(),
    )  # fmt: skip
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(json.dumps(settings))
    process.stdin.close()
    if how != "never open":
        assert any('"event": "step"' in line for line in process.stdout)
    process.stdout.close()
    try:
        assert process.wait(DEADLINE_S) == launch.EXIT_FAILED
        assert process.stderr.read().startswith("error: standard output ")
    finally:
        process.kill()
        process.stderr.close()
    assert list(tmp_path.iterdir()) == []


def test_events_lines_and_the_end_arrive() -> None:
    program = 'import sys; print(\'{"event": "step", "step": 1}\'); print(\'[1]\'); sys.exit(4)'
    messages = everything(start(program)[1])
    assert Reported({"event": "step", "step": 1}) in messages
    assert Printed("[1]") in messages
    assert messages[-1] == Exited(4)


def test_settings_are_read_from_standard_input_and_nowhere_else() -> None:
    program = "import sys, json; print(json.load(sys.stdin)['data']); print(sys.argv)"
    messages = everything(start(program, {"data": "x; rm -rf /"})[1])
    assert Printed("x; rm -rf /") in messages
    assert Printed("['-c']") in messages


def test_the_child_has_its_cores_before_its_first_instruction_and_the_parent_keeps_its_own() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    messages = everything(start("import os; print(sorted(os.sched_getaffinity(0)))", cores=[core])[1])
    assert Printed(f"[{core}]") in messages
    assert os.sched_getaffinity(0) == before


def test_cores_that_are_not_there_are_an_error_and_change_nothing() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(OSError), spawning_on([5000]):
        pass
    assert os.sched_getaffinity(0) == before


def test_libraries_are_held_to_one_thread() -> None:
    messages = everything(start("import os; print(os.environ['OPENBLAS_NUM_THREADS'])")[1])
    assert Printed("1") in messages


def test_a_child_that_never_reads_its_settings_ends_as_it_likes() -> None:
    assert everything(start("raise SystemExit(7)", {"data": "x" * 1_000_000})[1])[-1] == Exited(7)


def test_terminate_and_kill_reach_the_child() -> None:
    waits = "import signal; print('up', flush=True); signal.pause()"
    for stop, name in ((Child.terminate, "SIGTERM"), (Child.kill, "SIGKILL")):
        child, inbox = start(waits)
        assert inbox.get(timeout=DEADLINE_S) == Printed("up")
        stop(child)
        end = everything(inbox)[-1]
        assert end.signal_name == name


def test_a_child_that_lives_on_after_its_error_is_killed_and_ends_with_the_error(monkeypatch) -> None:
    monkeypatch.setattr(processes, "FAILED_S", 0.2)
    event = {"event": "error", "slug": "bad-config", "detail": "lr = -1", "exit_code": launch.EXIT_BAD_INPUT}
    child, inbox = start(f"import signal; print({json.dumps(event)!r}, flush=True); signal.pause()")
    assert everything(inbox) == [Reported(event), Exited(launch.EXIT_BAD_INPUT)]
    child.kill()


def test_a_launcher_that_ends_with_the_signal_of_another_rank_ends_with_the_error() -> None:
    """MPICH's ends with 9 if it has killed a rank before it notices the end of the one with the error."""
    event = {"event": "error", "slug": "bad-config", "detail": "lr = -1", "exit_code": launch.EXIT_BAD_INPUT}
    _, inbox = start(f"print({json.dumps(event)!r}); raise SystemExit(9)")
    assert everything(inbox) == [Reported(event), Exited(launch.EXIT_BAD_INPUT)]


def test_stopping_what_has_ended_is_no_error() -> None:
    child, inbox = start("pass")
    everything(inbox)
    child.terminate()
    child.kill()


def test_nothing_the_child_started_outlives_it() -> None:
    program = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "
        "print(p.pid, flush=True)"
    )
    messages = everything(start(program)[1])  # the grandchild, which keeps standard output open, must have ended
    grandchild = int(next(m.text for m in messages if isinstance(m, Printed)))
    wait_until_gone(grandchild)


def test_a_trainer_ends_with_the_process_that_started_it_but_not_with_a_thread() -> None:
    trainer = "from gpt2core.process import trainer; trainer.main(lambda stop: (trainer.started(), stop.wait()))"
    parent = (
        "import sys, threading; from queue import SimpleQueue; from gpt2core.process.child import Child, Waiting; "
        f"box = SimpleQueue(); command = [sys.executable, '-c', {trainer!r}]; "
        "t = threading.Thread(target=lambda: Child(Waiting(command), {}, box)); t.start(); "
        "t.join(); print(box.get().event['pid'], flush=True); box.get()"
    )
    started = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert started.stdout
    with started, started.stdout as output:
        pid = int(output.readline())
        assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        started.kill()
    wait_until_gone(pid)


def test_long_lines_and_bytes_that_are_no_text_are_survived() -> None:
    program = "import sys; sys.stdout.buffer.write(b'\\xff' * 5000 + b'\\n')"
    text = next(m.text for m in everything(start(program)[1]) if isinstance(m, Printed))
    assert len(text) == LINE_CHARS


def test_text_without_an_end_of_line_is_read_in_pieces() -> None:
    _, inbox = start(f"print({3 * PIECE_CHARS} * 'x', end='')")
    *printed, _ = everything(inbox)
    assert printed == 3 * [Printed(LINE_CHARS * "x")]
