"""The import graph of our packages, built on a copy without links: it has no circle, and the contracts cover it."""

from __future__ import annotations

import graphlib
import re
import shutil
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]


def contracts():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {each["name"]: each for each in settings["tool"]["importlinter"]["contracts"]}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "taskloom", copy / "copied", ignore=shutil.ignore_patterns("__pycache__", "ui"))
    for path in (copy / "copied").rglob("*.py"):
        path.write_text(re.sub(r"\btaskloom(?=[.\s])", "copied", path.read_text()))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(copy))
        assert not any(path.is_symlink() for path in (copy / "copied").rglob("*"))
        return grimp.build_graph("copied", exclude_type_checking_imports=True, cache_dir=None)


def test_no_module_imports_itself_through_others(graph):
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imported) > 300
    assert any(imported.values())
    list(graphlib.TopologicalSorter(imported).static_order())  # CycleError names the circle


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("the public face imports neither server nor worker", "source_modules"),
        ("server, worker, provisioner, contract and analysis import nothing of the public face", "forbidden_modules"),
    ],
)
def test_contracts_cover_every_module_of_the_public_face(name, key):
    face = {f"taskloom.{path.stem}" for path in (ROOT / "taskloom").glob("*.py") if path.stem != "__init__"}
    assert set(contracts()[name][key]) == face | {"taskloom.commands"}


def test_tests_share_only_their_package():
    """No test changes the import path, and none imports another one or a conftest.py."""
    own = re.compile(r"\bsys\.path\b|^\s*(?:from|import) (?:test_|conftest)", re.MULTILINE)
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert len(files) > 200
    assert [str(path.relative_to(ROOT)) for path in files if own.search(path.read_text(encoding="utf-8"))] == []
