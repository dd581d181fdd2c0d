"""The form of every error answer (RFC 9457) and the meaning of its types."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Problem(BaseModel):
    """application/problem+json. `type` is stable; extra members depend on it."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    errors: list[dict[str, Any]] | None = None  # [{"pointer": "/base/threads", "field", "value", "accepted"}]


class ProblemType(BaseModel):
    """Meaning of a problem type."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str
    title: str
    status: int
    description: str


class ProblemTypeList(BaseModel):
    """Every problem type, by its name."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    items: list[ProblemType]
