"""No function of the core has more than MOST parameters: what belongs together is a NamedTuple or a data class."""

from __future__ import annotations

import ast
from pathlib import Path

CORE = Path(__file__).parents[2] / "gpt2core"
MOST = 12


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
    """How many parameters a function has; *args and **options are one each."""
    given = function.args
    return sum(
        [len(given.posonlyargs), len(given.args), len(given.kwonlyargs), given.vararg is not None,
         given.kwarg is not None]
    )  # fmt: skip


def longest(source: str) -> dict[int, int]:
    """The number of parameters of functions with more than MOST, by their line."""
    functions = (
        each for each in ast.walk(ast.parse(source))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    )  # fmt: skip
    return {each.lineno: parameters(each) for each in functions if parameters(each) > MOST}


def test_parameters_are_counted() -> None:
    names = ", ".join(f"p{number}" for number in range(MOST - 1))
    assert longest(f"def f({names}, /, a): ...") == {}
    assert longest(f"def f({names}, /, a, *more): ...") == {1: MOST + 1}
    assert longest(f"class C:\n    async def f({names}, *, a, b): ...") == {2: MOST + 1}
    assert longest(f"f = lambda {names}, a, **options: 1") == {1: MOST + 1}


def test_no_list_of_parameters_is_too_long() -> None:
    files = sorted(CORE.rglob("*.py"))
    found = {f"{path.relative_to(CORE)}:{line}": count for path in files
             for line, count in longest(path.read_text(encoding="utf-8")).items()}  # fmt: skip
    assert len(files) > 100
    assert found == {}
