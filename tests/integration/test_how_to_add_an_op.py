"""docs/how-to/add-an-op.md, followed literally: its code and its patch give an op that runs and is checked."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpt2core import layers
from gpt2core.gemm import libraries, table
from gpt2core.networks import gpt2, memory, program
from gpt2core.networks.network import network_of
from gpt2core.run import train
from gpt2core.run.fill import fill
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import FUSIONS
from gpt2core.spec.models import ModelConfig
from gpt2core.step import graph, slicing
from tests.support import poison

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-an-op.md"
PROGRAM = "gpt2core/networks/gpt2/program.py"
SMALL = TrainConfig(
    model=ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16), blas="own",
    batch=3, seq=10, steps=3, warmup=0, batch_slice=2, token_slice=4, data="synthetic", allow_oversubscription=True,
)  # fmt: skip


def block(language: str) -> str:
    """The one block of a language on the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.fixture
def followed(tmp_path, monkeypatch):
    """The new layer and the changed program replace those of the checkout."""
    layer = tmp_path / "layers"
    layer.mkdir()
    (layer / "scale.py").write_text(block("python"))
    monkeypatch.setattr(layers, "__path__", [*layers.__path__, str(layer)])
    changed = tmp_path / PROGRAM
    changed.parent.mkdir(parents=True)
    shutil.copy(ROOT / PROGRAM, changed)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=block("diff"), text=True, check=True)
    assert "scale.forward(" in changed.read_text()
    spec = importlib.util.spec_from_file_location("gpt2core.networks.gpt2.program", changed)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(gpt2, "program", module, raising=False)
    monkeypatch.setitem(sys.modules, "gpt2core.networks.gpt2.program", module)
    yield importlib.import_module("gpt2core.layers.scale")
    sys.modules.pop("gpt2core.layers.scale", None)
    delattr(layers, "scale")


def check_declarations(config: TrainConfig) -> None:
    config = slicing.resolve(dataclasses.replace(config, steps=1))
    data = network_of(config).data(config)
    chosen = table.choose(libraries.load(config.blas, config.precision), [], lambda _: None)
    poison.check(
        program.build(config), memory.plan(config), lambda held: fill(held, config, data), chosen
    )


@pytest.mark.usefixtures("followed")
@pytest.mark.parametrize("fusion", FUSIONS)
def test_the_op_stands_in_the_program_and_declares_what_it_does(fusion):
    config = dataclasses.replace(SMALL, fusion=fusion)
    step = program.build(config)
    calls = [(call.name, call.phase) for op in step.ops for call in op.calls]
    assert [phase for name, phase in calls if name == "scale"] == ["forward", "backward"]
    for sync in ("step", "none"):
        graph.validate(step, graph.build(step, sync))
    check_declarations(config)


def test_a_wrong_declaration_fails_by_name(followed, monkeypatch):
    """The check that the page promises fails if rows that are written are declared as only read."""
    from gpt2core.step.ops import Read

    monkeypatch.setattr(followed, "Update", Read)
    with pytest.raises(AssertionError, match=r"scale s0 does not declare what it does: residual\[0\]\[0\] differs"):
        check_declarations(SMALL)


def test_it_trains_to_the_same_bits_under_every_scheduler(followed):
    x = np.ones((3, 16), np.float32)
    followed.scale_rows(x, 1, 3)
    assert x.tolist() == [[1.0] * 16, [4.0] * 16, [4.0] * 16]
    found = [
        train.train(dataclasses.replace(SMALL, scheduler=scheduler, threads=threads))
        for scheduler, threads in (("serial", 1), ("fork-join", 2), ("task", 2))
    ]
    assert len({run.weights_sha256 for run in found}) == 1
    assert {(op.op, op.phase) for op in found[0].ops} >= {("scale", "forward"), ("scale", "backward")}
