"""SQL of members of JSON columns, on both databases."""

from __future__ import annotations

import json
import math
from typing import Any

from sqlalchemy import Double, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from taskloom.contract.bodies import MOST


class json_text(FunctionElement[str]):
    """The JSON text of an object's member: json_text(column, name)."""

    type = Text()
    inherit_cache = True


class json_value(FunctionElement[str]):
    """A member that is text, as text."""

    type = Text()
    inherit_cache = True


class json_number(FunctionElement[float]):
    """A member that is a number; null if it is none."""

    type = Double()
    inherit_cache = True


def _member(element: FunctionElement[Any], compiler: SQLCompiler, options: Any, last: str = "->") -> str:
    column, *names = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{' -> '.join([column, *names[:-1]])} {last} {names[-1]}"


@compiles(json_text, "sqlite")
@compiles(json_text, "postgresql")
def _json_text(element: json_text, compiler: SQLCompiler, **options: Any) -> str:
    path = _member(element, compiler, options)
    return f"({path})" if compiler.dialect.name == "sqlite" else f"(({path})::text)"


@compiles(json_value, "sqlite")
@compiles(json_value, "postgresql")
def _json_value(element: json_value, compiler: SQLCompiler, **options: Any) -> str:
    return f"({_member(element, compiler, options, '->>')})"


@compiles(json_number, "sqlite")
@compiles(json_number, "postgresql")
def _json_number(element: json_number, compiler: SQLCompiler, **options: Any) -> str:
    value = _member(element, compiler, options, "->>")
    if compiler.dialect.name == "sqlite":
        return f"(CASE WHEN typeof({value}) IN ('integer', 'real') THEN {value} END)"
    kind = _member(element, compiler, options)
    return f"(CASE WHEN json_typeof({kind}) = 'number' THEN ({value})::double precision END)"


def spellings(value: Any) -> list[str]:
    """Texts of a JSON value in databases: SQLite omits spaces, and 1 equals 1.0."""
    same = [value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST:
        same.append(float(value))
    elif isinstance(value, float) and math.isfinite(value) and value.is_integer():
        same.append(int(value))
    return sorted({json.dumps(each, separators=between) for each in same for between in ((", ", ": "), (",", ":"))})
