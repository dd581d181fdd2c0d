"""A graph is proven once; a cached one is checked, limited in size, and never used for another program."""

from __future__ import annotations

import ast
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpt2core.networks import program
from gpt2core.run import prepare, proofs
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, GraphError
from gpt2core.spec.fields import SYNCS
from gpt2core.spec.sources import ROOT
from gpt2core.step import graph
from gpt2core.step.ops import Access, Mode, Op, Program, Tile
from gpt2core.step.paths import Edges

CONFIG = TrainConfig(batch=2, seq=16, batch_slice=1, token_slice=8, threads=1)
ONCE = ["build", "validate"]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty folder of cached graphs."""
    monkeypatch.setenv("TASKLOOM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TASKLOOM_PROVE", raising=False)
    return tmp_path / "proofs"


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the derivations and proofs that were executed, in their order."""
    seen: list[str] = []

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: (seen.append(name), function(*arguments))[1]

    for name in ONCE:
        monkeypatch.setattr(graph, name, noting(name, getattr(graph, name)))
    return seen


def with_last(step: Program, **changes: Any) -> Program:
    """The program after changes to the last tile of its last op, or to that op."""
    last: Op = step.ops[-1]
    if changes.keys() <= {"accesses", "label"}:
        changes = {"tiles": (*last.tiles[:-1], dataclasses.replace(last.tiles[-1], **changes))}
    return dataclasses.replace(step, ops=(*step.ops[:-1], dataclasses.replace(last, **changes)))


@pytest.mark.parametrize("sync", SYNCS)
def test_a_program_is_proven_once(kept: Path, done: list[str], sync: str) -> None:
    first = proofs.proven(program.build(CONFIG), sync)
    again = proofs.proven(program.build(CONFIG), sync)
    assert done == ONCE
    for field in dataclasses.fields(graph.Graph):
        one, other = (getattr(each, field.name) for each in (first, again))
        assert (list(one) == list(other)) if isinstance(one, Edges) else (one == other), field.name
    graph.validate(program.build(CONFIG), again)
    assert len(list(kept.iterdir())) == 1


def test_a_proof_can_be_asked_for(kept: Path, done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(prepare.plan(CONFIG).graph.edges) == list(prepare.plan(CONFIG).graph.edges)
    assert done == ONCE
    prepare.plan(CONFIG, prove=True)
    assert done == ONCE * 2
    monkeypatch.setenv("TASKLOOM_PROVE", "always")
    prepare.plan(CONFIG)
    assert done == ONCE * 3
    assert len(list(kept.iterdir())) == 1
    monkeypatch.setenv("TASKLOOM_PROVE", "never")
    with pytest.raises(ConfigError, match="TASKLOOM_PROVE"):
        prepare.plan(CONFIG)


def test_everything_that_a_proof_follows_from_is_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    step = program.build(CONFIG)
    tile: Tile = step.ops[-1].tiles[-1]
    region = tile.accesses[-1].region
    others = [
        (step, "phase"), (step, "step"), (step, "none"),
        (with_last(step, accesses=tile.accesses[:-1]), "step"),
        (with_last(step, accesses=(*tile.accesses[:-1], Access(Mode.READ, region + 1))), "step"),
        (with_last(step, accesses=(*tile.accesses[:-1], Access(Mode.REDUCE, region))), "step"),
        (with_last(step, label="another"), "step"), (with_last(step, filler=not step.ops[-1].filler), "step"),
        (with_last(step, layer=99), "step"),
        (dataclasses.replace(step, ops=step.ops[:-1]), "step"),
        (dataclasses.replace(step, ops=(*step.ops[:-2], step.ops[-1], step.ops[-2])), "step"),
        (dataclasses.replace(step, constants=frozenset({0})), "step"),
        (program.build(dataclasses.replace(CONFIG, token_slice=16)), "step"),
    ]  # fmt: skip
    names = {proofs.identity(*each) for each in others}
    monkeypatch.setattr(proofs, "source_hash", lambda _: "other sources")
    assert len(names | {proofs.identity(step, "step")}) == len(others) + 1


def test_other_sources_than_those_of_the_name_do_not_make_graphs() -> None:
    left = {"step.graph"}
    seen: set[str] = set()
    while left - seen:
        module = (left - seen).pop()
        seen.add(module)
        text = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpt2core."):
                found = str(node.module).removeprefix("gpt2core.")
                inside = (ROOT / found.replace(".", "/")).is_dir()
                left |= {f"{found}.{each.name}" for each in node.names} if inside else {found}
    assert seen > {"step.graph", "step.ops", "step.paths"}
    assert {module.partition(".")[0] for module in seen - {"spec.errors", "spec.phases"}} == {"step"}
    assert proofs.SOURCES == ("step", "spec/phases.py", "run/proofs.py")


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:0], lambda b: b[:100] + b"x" + b[101:]])
def test_a_damaged_file_is_made_again(kept: Path, done: list[str], damage: Callable[[bytes], bytes]) -> None:
    step = program.build(CONFIG)
    first = proofs.proven(step, "none")
    (path,) = kept.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert list(proofs.proven(step, "none").edges) == list(first.edges)
    assert done == ONCE * 2
    assert path.read_bytes() == whole


def test_the_file_of_another_program_is_made_again(kept: Path, done: list[str]) -> None:
    step = program.build(CONFIG)
    proofs.proven(step, "step")
    (path,) = kept.iterdir()
    path.rename(kept / f"{proofs.identity(step, 'phase')}.graph")
    assert proofs.proven(step, "phase").label.count("after forward") == 1
    assert done == ONCE * 2


def test_a_wrong_program_is_refused_each_time(kept: Path) -> None:
    step = program.build(CONFIG)
    wrong = dataclasses.replace(step, constants=frozenset(range(len(step.regions))))
    for _ in range(2):
        with pytest.raises(GraphError, match="declared constant"):
            proofs.proven(wrong, "step")
    assert not kept.exists()


def test_a_folder_that_cannot_be_written_costs_only_the_next_proof(kept: Path, done: list[str]) -> None:
    kept.write_text("in the way")
    for _ in range(2):
        assert proofs.proven(program.build(CONFIG), "step")
    assert done == ONCE * 2


def test_the_folder_is_bounded_and_keeps_what_was_used_last(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = program.build(CONFIG)
    paths = {sync: kept / f"{proofs.identity(step, sync)}.graph" for sync in ("phase", "step", "none")}
    for at, (sync, path) in enumerate(paths.items(), start=1):
        proofs.proven(step, sync)
        os.utime(path, (at, at))
    two_bytes = paths["phase"].stat().st_size + paths["none"].stat().st_size
    paths["none"].unlink()
    (kept / ".left.part").write_bytes(b"unfinished")
    os.utime(kept / ".left.part", (0, 0))
    proofs.proven(step, "phase")  # it counts as used now
    monkeypatch.setattr(proofs, "FOLDER_BYTES", two_bytes)
    proofs.proven(step, "none")
    assert set(kept.iterdir()) == {paths["phase"], paths["none"]}
    monkeypatch.setattr(proofs, "EDGES_BYTES", 10)
    proofs.proven(program.build(dataclasses.replace(CONFIG, token_slice=16)), "step")
    assert len(list(kept.iterdir())) == 2
