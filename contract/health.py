"""Health of the server, for monitoring."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from taskloom.contract.bodies import Model


class Health(Model):
    """Answer of a live process."""

    status: Literal["ok"]
    version: str = Field(description="version of the server, with the commit of its sources: 0.1.0+g1a2b3c4")


class Readiness(Model):
    """Answer of a server that is ready to work."""

    status: Literal["ready"]
