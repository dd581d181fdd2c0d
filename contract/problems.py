"""The one shape of an error answer: RFC 9457."""

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
