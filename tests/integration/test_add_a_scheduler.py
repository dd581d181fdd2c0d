"""docs/how-to/add-a-scheduler.md, followed literally; and a test scheduler with its own threads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpt2core.schedulers
from gpt2core.run.train import train
from gpt2core.schedulers.scheduler import Job, Prepared, Scheduler, Stage
from gpt2core.schedulers.serial.loop import serial_loop
from gpt2core.spec import schedulers
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import Cancelled, ConfigError
from gpt2core.spec.models import ModelConfig
from gpt2core.spec.result import TrainResult
from gpt2core.taskbench.bench import TaskBench
from gpt2core.taskbench.granularity import MetgConfig
from tests.support.present import present

ROOT = Path(__file__).parents[2]
REGISTRY = "gpt2core/spec/schedulers.py"
SMALL = TrainConfig(
    model=ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16),
    batch=3, seq=10, steps=4, warmup=1, lr=1e-2, batch_slice=2, token_slice=4, data="synthetic", scheduler="serial",
)  # fmt: skip


def page() -> dict[str, str]:
    """The code blocks of the page, by their files."""
    text = (ROOT / "docs/how-to/add-a-scheduler.md").read_text()
    found = re.findall(r"`(gpt2core/[\w/]+\.py)`:?\n\n```python\n(.*?)```", text, re.S)
    assert len(found) == 3
    return dict(found)


def as_documented(folder: Path) -> None:
    """Write the page's files into a copy of gpt2core, and its line into the registry."""
    for name, block in page().items():
        path = folder / name
        if name == REGISTRY:
            text = path.read_text()
            head, brace, rest = text.partition("\n}\n")
            assert "SCHEDULERS = {" in head
            path.write_text(f"{head}\n{block.rstrip()}{brace}{rest}")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(block)


def outcome(result: TrainResult) -> tuple[tuple[float, ...], str]:
    return tuple(result.losses), present(result.weights_sha256)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the page's scheduler to this process: its folder beside ours, its line in the registry."""
    blocks = page()
    for name, block in blocks.items():
        if name != REGISTRY:
            path = tmp_path / Path(name).relative_to("gpt2core/schedulers")
            path.parent.mkdir(exist_ok=True)
            path.write_text(block)
    monkeypatch.setattr(gpt2core.schedulers, "__path__", [*gpt2core.schedulers.__path__, str(tmp_path)])
    name, module = re.findall(r'"([^"]+)"', blocks[REGISTRY])
    monkeypatch.setitem(schedulers.SCHEDULERS, name, module)
    yield
    for module in [each for each in sys.modules if each.startswith("gpt2core.schedulers.reversed")]:
        del sys.modules[module]


@pytest.mark.usefixtures("added")
def test_the_page_trains_to_the_same_bits() -> None:
    result = train(TrainConfig.from_dict({**SMALL.to_dict(), "scheduler": "reversed"}))
    assert outcome(result) == outcome(train(SMALL))
    assert result.config["scheduler"] == "reversed"
    assert sum(op.calls for op in result.ops) == result.threads[0].calls > 0
    with pytest.raises(ConfigError, match="1 with scheduler reversed"):
        TrainConfig(scheduler="reversed", threads=2)


def test_command_line_and_contract_know_it_without_numba(tmp_path: Path) -> None:
    for name in ("gpt2core", "taskloom"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    as_documented(tmp_path)
    program = (
        "import sys, taskloom.options, taskloom.contract.runs as runs; from click.testing import CliRunner; "
        "from taskloom.cli import main; from gpt2core.spec.config import TrainConfig; "
        "assert TrainConfig(scheduler=runs.RunSpec(scheduler='reversed').scheduler); "
        "print(CliRunner().invoke(main, ['train', '--help']).output); assert 'numba' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    shown = subprocess.run(
        [sys.executable, "-P", "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert "reversed" in shown.stdout


class Foreign(Scheduler):
    """A scheduler like a foreign runtime: it creates its threads itself, has options, and describes its environment."""

    name, order, options = "foreign", "program", ("assignment",)

    def prepare(self, job: Job) -> Prepared:
        return ForeignRun(job)

    def environment(self, options: object) -> dict[str, Any]:
        return {"runtime": "threading", "options": options}


class ForeignRun(Prepared):
    def __init__(self, job: Job) -> None:
        self.job = job

    def run(self, stage: Stage) -> None:
        bound = self.job.bound
        arguments = (0, bound.tasks, bound.context, stage.record, self.job.control, stage.end)

        def body() -> None:
            self.observed = [tuple(os.sched_getaffinity(0)) for _ in self.job.cores]
            with stage.inside(0):
                serial_loop(*arguments)

        thread = threading.Thread(target=body)
        thread.start()
        while thread.is_alive():
            thread.join(0.01)
            stage.watch()


SCHEDULER = Foreign()


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(schedulers.SCHEDULERS, "foreign", __name__)


@pytest.mark.usefixtures("foreign")
def test_a_scheduler_of_the_tests_trains_measures_and_stops() -> None:
    config = TrainConfig.from_dict({**SMALL.to_dict(), "scheduler": "foreign"})
    result = train(config)
    assert outcome(result) == outcome(train(SMALL))
    assert result.environment["scheduler"] == {"runtime": "threading", "options": {"assignment": "static"}}
    assert result.threads[0].observed_cores == tuple(sorted(os.sched_getaffinity(0)))
    assert result.graph["t1_s"] > 0
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        train(TrainConfig.from_dict({**config.to_dict(), "steps": 100_000}), stop=stop)


@pytest.mark.usefixtures("foreign")
def test_a_scheduler_of_the_tests_runs_the_patterns() -> None:
    assert "foreign" in schedulers.parallel()
    assert MetgConfig(scheduler=("foreign", "task")).scheduler == ("foreign", "task")
    assert TaskBench("stencil_1d", "foreign", 4, [min(os.sched_getaffinity(0))]).run(3, 20) > 0
    with pytest.raises(ConfigError, match="foreign"):
        MetgConfig(scheduler=("serial",))
