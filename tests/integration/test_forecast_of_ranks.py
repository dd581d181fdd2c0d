"""Forecasts for more ranks against the plans of so many ranks, and against steps of one and of two."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from gpt2core.measure import profile as profiles
from gpt2core.networks import program
from gpt2core.networks.exchanged import layout_of
from gpt2core.networks.vgg.tensors import Vgg
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig
from gpt2core.step import graph
from gpt2core.step.ops import Op, Program, Tile
from taskloom.analysis.outlook import outlook
from taskloom.analysis.processes import Process
from taskloom.analysis.profile import Profile, profile_of
from taskloom.analysis.rank_work import ALWAYS, ARRIVED, FOLD, SEND, Ranks
from tests.support.ranked import COMPILES_S, HYBRID, TENSOR

WIDE = {
    "tensor": dataclasses.replace(TENSOR, batch=6),
    "hybrid": dataclasses.replace(HYBRID, model=Vgg(width=16, hidden=96), batch=24, batch_slice=2),
}
SUMS = re.compile(f"(encoder|projection|fc_projection|.*_dinp|fc){FOLD}")
ERROR, ATTEMPTS = 0.5, 5  # generous: this machine may do something else


def cost(op: Op, tile: Tile) -> int:
    """FLOP of a task, but bytes of what adds the ranks' parts."""
    return tile.bytes if SUMS.match(op.name) else tile.flop or tile.bytes


def as_profile(config: TrainConfig) -> Profile:
    """The profile of rank 0 if each task took its cost in seconds."""
    step, alone = program.build(config), program.build(dataclasses.replace(config, ranks=1))
    seconds = [float(cost(*task)) for task in step.tasks]
    whole = profiles.undivided(step, alone, config.ranks)
    return profile_of(profiles.profile(config.to_dict(), {}, step, graph.build(step, "none"), seconds, whole))


def costs(step: Program) -> Counter[str]:
    found = Counter[str]()
    for op, tile in step.tasks:
        found[f"{op.name} {op.phase}"] += cost(op, tile)
    return found


@pytest.mark.parametrize(("parallel", "ranks"), [("tensor", 4), ("hybrid", 3), ("hybrid", 4)])
def test_messages_are_those_of_the_plan_of_so_many_ranks(parallel, ranks):
    wish = program.decided(dataclasses.replace(WIDE[parallel], ranks=2))
    profile, layout = as_profile(wish), layout_of(dataclasses.replace(wish, ranks=ranks), 0)
    found = defaultdict[str, float](float)
    for each in Ranks(2, ranks, "strong", parallel).exchanges(profile):
        found[profile.kinds[profile.kind[each.send]][0].removesuffix(SEND)] += each.bytes
    expected = {kind: layout.bytes_of(kind)[0] for kind in layout.kinds if kind not in ALWAYS}
    assert expected
    shards = {kind: expected.pop(kind) for kind in ("gradients", "weights") if kind in expected}
    assert {kind: found[kind] for kind in expected} == pytest.approx(expected)
    assert {kind: found[kind] for kind in shards} == pytest.approx(shards, rel=0.02)  # which end at cache lines


@pytest.mark.parametrize(("parallel", "ranks"), [("tensor", 4), ("hybrid", 3), ("hybrid", 4)])
def test_work_is_that_of_the_plan_of_so_many_ranks(parallel, ranks):
    wish = program.decided(dataclasses.replace(WIDE[parallel], ranks=2))
    profile, found = as_profile(wish), defaultdict[str, float](float)
    for kind, cost_ in zip(profile.kind, Ranks(2, ranks, "strong", parallel).scaled(profile).seconds, strict=True):
        found[" ".join(profile.kinds[kind])] += cost_
    expected = costs(program.build(dataclasses.replace(wish, ranks=ranks)))
    assert expected.keys() == found.keys()
    compared = [name for name in expected if not re.match(f"loss_|fold |classes |.*({SEND}|{ARRIVED}) ", name)]
    assert {name: found[name] for name in compared} == pytest.approx({n: expected[n] for n in compared}, rel=0.02)


GPT = ModelConfig(layers=2, heads=4, channels=128, vocab=512, context=64)
SMALL = {
    "data": TrainConfig(model=GPT, batch=8, seq=64, batch_slice=1, token_slice=64),
    "tensor": TrainConfig(model=GPT, batch=8, seq=64, batch_slice=1, token_slice=64),
    "hybrid": TrainConfig(model=Vgg(width=8, hidden=512), batch=32, batch_slice=4),
}


def measured(folder: Path, config: TrainConfig) -> tuple[Process, Profile]:
    """A run in fresh processes, and its profile."""
    artifacts = folder / "artifacts"
    artifacts.mkdir(exist_ok=True)
    done = subprocess.run(
        launch.command(folder / "result.json", ranks=config.ranks), input=json.dumps(config.to_dict()), text=True,
        capture_output=True, check=False, timeout=COMPILES_S, env=launch.environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    variant = {"scheduler": config.scheduler, "ranks": config.ranks}
    profile = profile_of(json.loads(gzip.decompress((artifacts / "profile.json.gz").read_bytes())))
    return Process(config.ranks, result, variant), profile


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(ATTEMPTS * 60 + COMPILES_S)
@pytest.mark.parametrize("scheduler", ["fork-join", "task"])
@pytest.mark.parametrize("parallel", SMALL)
def test_the_forecast_is_near_the_steps_of_one_rank_and_of_two(tmp_path, parallel, scheduler):
    wish = dataclasses.replace(
        SMALL[parallel], parallel=parallel, scheduler=scheduler, fusion="rows", data="synthetic", steps=30, warmup=5,
        allow_oversubscription=True,
    )  # fmt: skip
    errors: list[dict[int, float]] = []
    while len(errors) < ATTEMPTS:
        runs = [measured(tmp_path, dataclasses.replace(wish, ranks=ranks)) for ranks in (1, 2)]
        (found,) = outlook([run for run, _ in runs], {run.run_id: profile for run, profile in runs}).ranks
        errors.append({point.ranks: point.error for point in found.curves[0].points if point.error is not None})
        if all(abs(error) < ERROR for error in errors[-1].values()):
            break
    print(parallel, scheduler, errors)
    assert all(each.keys() == {1, 2} for each in errors)
    assert max(map(abs, errors[-1].values())) < ERROR
