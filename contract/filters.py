"""The names that filters of lists accept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from taskloom.contract.bodies import Model

FilterKind = Literal["integer", "number", "text", "choice", "boolean", "instant", "json"]
Filtered = Literal["runs", "experiments", "series"]


class FilterName(Model):
    """A name that filters of a list accept."""

    name: str
    kind: FilterKind = Field(description="kind of its values; choice: one of `choices`; json: JSON, for = and != only")
    operators: list[str] = Field(description="operators that it takes")
    choices: list[str] = Field(description="accepted values, or values that are stored; empty: others")
    description: str = Field(description="what it is")


class FilterNames(Model):
    """The names that filters of a list accept."""

    items: list[FilterName]
