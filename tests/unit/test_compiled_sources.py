"""The key of the cache of compiled code contains every source file of compiled code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpt2core.compile.target import COMPILED

ROOT = Path(__file__).parents[2]
DECORATORS = {"kernel", "runtime", "inlined", "entry", "intrinsic", "njit"}
Name = tuple[Path, str]


def names_in(node: ast.AST) -> set[str]:
    """Outside names that a node uses; annotations of a signature are not part of the code."""
    inside = node.body if isinstance(node, ast.FunctionDef) else [node]
    names = [name for part in inside for name in ast.walk(part) if isinstance(name, ast.Name)]
    local = {argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)}
    if isinstance(node, ast.FunctionDef):
        local |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name.id for name in names} - local


def is_compiled(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef):
        return False
    said = {inner.id for each in node.decorator_list for inner in ast.walk(each) if isinstance(inner, ast.Name)}
    said |= {inner.attr for each in node.decorator_list for inner in ast.walk(each) if isinstance(inner, ast.Attribute)}
    return bool(said & DECORATORS)


class Module:
    """The meaning of a module's names: a name of another module, or its definition here."""

    def __init__(self, path: Path) -> None:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        self.compiled = [node for node in ast.walk(tree) if is_compiled(node)]
        self.imported: dict[str, Name] = {}
        self.made_from: dict[str, set[str]] = {}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gpt2core"):
                folder = ROOT / (node.module or "").replace(".", "/")
                for alias in node.names:
                    inner = folder / f"{alias.name}.py"
                    file = inner if inner.exists() else folder.with_suffix(".py")
                    self.imported[alias.asname or alias.name] = (file, alias.name)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.made_from[node.name] = names_in(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                stored = (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
                for name in stored:
                    if isinstance(name.ctx, ast.Store):  # not the `a` of `a.b = c`
                        self.made_from[name.id] = names_in(node)


def sources_of_compiled_code() -> dict[Path, Name]:
    """Files that compiled code uses beside its own, with a name that leads to each. Numba checks a function's own file
    itself, and the facts that target.py finds on this machine are part of the key.
    """
    modules = {path: Module(path) for path in (ROOT / "gpt2core").rglob("*.py")}
    found: dict[Path, Name] = {}
    seen: set[Name] = set()
    todo = [(path, name) for path, module in modules.items() for f in module.compiled for name in names_in(f)]
    while todo:
        path, name = todo.pop()
        if (path, name) in seen or path == ROOT / "gpt2core/compile/target.py":
            continue
        seen.add((path, name))
        module = modules[path]
        if name in module.imported:
            file, inner = module.imported[name]
            found.setdefault(file, (path, name))
            todo.append((file, inner))
        todo += [(path, inner) for inner in module.made_from.get(name, ())]
    return found


@pytest.fixture(scope="module")
def sources() -> dict[Path, Name]:
    return sources_of_compiled_code()


def test_there_are_sources(sources: dict[Path, Name]) -> None:
    assert {"jit.py", "lanes.py", "multiply.py", "sizes.py", "control.py"} <= {file.name for file in sources}


def test_the_cache_of_compiled_code_follows_its_sources(sources: dict[Path, Name]) -> None:
    parts = [ROOT / "gpt2core" / part for part in COMPILED]
    for file, (where, name) in sources.items():
        assert any(part == file or part in file.parents for part in parts), f"{name} of {where} is made from {file}"
